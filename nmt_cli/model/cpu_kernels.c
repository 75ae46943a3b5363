/* Operations of the search between matrix products, each in one pass over memory, in fp32.

   A row's result depends on that row only. NaN stays NaN. The vector types are an extension of GCC 9 and
   Clang. MOST_HEAD_WIDTH and MOST_CANDIDATES are given by the compiler's command.

   Legend: R rows, I columns, V vocabulary, S slots, K beam, H heads, D width of a head, E entries. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* GCC computes vectors that are longer than a register one number at a time. */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define QUERIES_AT_ONCE 4  /* hypotheses that read keys and values together */
#define SUMMED_AT_ONCE 4096 /* numbers in fp32; their sums are added in double precision */
#define WINDOW (4 * LANES) /* of logits */
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));

static const floats ZERO;
static const float LOWEST = -87.f, HIGHEST = 88.f; /* between them e^x is a normal number */
static const float ROUNDING = 12582912.f;          /* 1.5 * 2^23: x + this - this is a whole number */

static floats load(const float *from) { return *(const floats *)from; }
static void store(float *to, floats values) { *(floats *)to = values; }
static floats select(ints where, floats a, floats b) {
    return (floats)((where & (ints)a) | (~where & (ints)b));
}
static floats larger(floats a, floats b) { return select(a > b, a, b); } /* NaN if b is */
static floats rounded(floats x) { return (x + ROUNDING) - ROUNDING; }

static float sum_of(floats x) {
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

static float largest_of(floats x) {
    float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static int any(ints where) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int i = 0; i < LANES; i++) found |= where[i];
    return found;
}

/* 2^n e^r with n = x / ln 2 rounded, and a polynomial for e^r; relative error 1e-7, and 0 where the
   result would be no normal number */
static floats exponential(floats x) {
    floats y = larger(ZERO + LOWEST, x);
    y = select(y > HIGHEST, ZERO + HIGHEST, y);
    floats n = rounded(y * 1.44269504f);
    floats r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    floats power = (floats)((__builtin_convertvector(n, ints) + 127) << 23);
    floats found = select(x > HIGHEST, ZERO + INFINITY, (p * r * r + r + 1.f) * power);
    return select(x < LOWEST, ZERO, found);
}

/* sums [R] of the exponentials of each row [R, V] */
void sum_exponentials(const float *logits, long R, long V, float *sums) {
    for (long r = 0; r < R; r++, logits += V) {
        double sum = 0.;
        long v = 0;
        while (v + 2 * LANES <= V) {
            floats even = ZERO, odd = ZERO; /* no addition waits for the one before */
            for (long end = v + SUMMED_AT_ONCE; v < end && v + 2 * LANES <= V; v += 2 * LANES) {
                even += exponential(load(logits + v));
                odd += exponential(load(logits + v + LANES));
            }
            sum += sum_of(even + odd);
        }
        for (; v < V; v += LANES) {
            long left = V - v < LANES ? V - v : LANES;
            float rest[LANES] = {0.f};
            memcpy(rest, logits + v, left * sizeof(float));
            floats of_rest = exponential(load(rest));
            for (long i = 0; i < left; i++) sum += of_rest[i];
        }
        sums[r] = sum;
    }
}

/* scales [R] of the rows [R, I], and the rows over them as whole numbers up to 127 */
void round_rows(const float *rows, long R, long I, float least, float *scales, int8_t *integers) {
    for (long r = 0; r < R; r++, rows += I, integers += I) {
        floats largest = ZERO, nan = ZERO; /* x - x is NaN where x is not a finite number */
        long i = 0;
        for (; i + LANES <= I; i += LANES) {
            floats x = load(rows + i);
            largest = larger(largest, larger(-x, x));
            nan += x - x;
        }
        float most = largest_of(largest), not_finite = sum_of(nan);
        for (; i < I; i++) {
            most = most > fabsf(rows[i]) ? most : fabsf(rows[i]);
            not_finite += rows[i] - rows[i];
        }
        float scale = (most > least ? most : least) / 127.f + not_finite;
        scales[r] = scale;
        if (isnan(scale)) {
            memset(integers, 0, I);
            continue;
        }
        float inverse = 1.f / scale;
        for (i = 0; i < I; i++)
            integers[i] = (int8_t)(int32_t)((rows[i] * inverse + ROUNDING) - ROUNDING);
    }
}

/* LayerNorm of a + b [R, I], where I is a multiple of LANES */
void add_norm(const float *a, const float *b, long R, long I, const float *weight,
              const float *bias, float epsilon, float *output) {
    for (long r = 0; r < R; r++, a += I, b += I, output += I) {
        floats sum = ZERO, squares = ZERO;
        for (long i = 0; i < I; i += LANES) {
            floats total = load(a + i) + load(b + i);
            store(output + i, total);
            sum += total;
        }
        float mean = sum_of(sum) / I;
        for (long i = 0; i < I; i += LANES) {
            floats from_mean = load(output + i) - mean;
            squares += from_mean * from_mean;
        }
        float scale = 1.f / sqrtf(sum_of(squares) / I + epsilon);
        for (long i = 0; i < I; i += LANES)
            store(output + i, (load(output + i) - mean) * scale * load(weight + i) + load(bias + i));
    }
}

/* scores, with room for each hypothesis, of LANES entries by QUERIES_AT_ONCE queries [D] and keys [D, E] */
static void score(const float *const *queries, const float *keys, long D, long E, float *scores,
                  long room) {
    floats sums[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    for (long d = 0; d < D; d++) {
        floats key = load(keys + d * E);
        for (int k = 0; k < QUERIES_AT_ONCE; k++) sums[k] += queries[k][d] * key;
    }
    for (int k = 0; k < QUERIES_AT_ONCE; k++) store(scores + k * room, sums[k]);
}

/* the number of entries [E] before those that are masked for all K hypotheses; E if all are, so that
   the softmax is not a number, like torch's */
static long num_used(const float *mask, long K, long E) {
    for (long e = E; e > 0; e--)
        for (long k = 0; k < K; k++)
            if (mask[k * E + e - 1] != -INFINITY) return e;
    return E;
}

/* softmax of scores * scale + mask, where entries behind E count as -inf */
static void softmax(float *scores, const float *mask, long E, float scale) {
    long end = (E + LANES - 1) / LANES * LANES;
    for (long e = 0; e < E; e++) scores[e] = scores[e] * scale + mask[e];
    for (long e = E; e < end; e++) scores[e] = -INFINITY;
    floats largest = load(scores), sum = ZERO;
    for (long e = LANES; e < end; e += LANES) largest = larger(largest, load(scores + e));
    float most = largest_of(largest);
    for (long e = 0; e < end; e += LANES) {
        floats x = load(scores + e) - most;
        floats weights = exponential(x);
        store(scores + e, weights);
        sum += weights;
    }
    float total = sum_of(sum);
    for (long e = 0; e < end; e += LANES) store(scores + e, load(scores + e) / total);
}

/* sums of 2 * LANES columns of values [E, D], weighted by the scores of QUERIES_AT_ONCE hypotheses, of
   which ``count`` get an output */
static void weighted_sums(const float *scores, long room, const float *values, long E, long D,
                          long stride, long count, float *output) {
    floats low[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO}, high[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    for (long e = 0; e < E; e++) {
        floats first = load(values + e * D), second = load(values + e * D + LANES);
        for (int k = 0; k < QUERIES_AT_ONCE; k++) {
            low[k] += scores[k * room + e] * first;
            high[k] += scores[k * room + e] * second;
        }
    }
    for (long k = 0; k < count; k++) {
        store(output + k * stride, low[k]);
        store(output + k * stride + LANES, high[k]);
    }
}

/* softmax(Q K^T / sqrt(D) + mask) V: queries [S*K, H*D] with a stride from row to row, keys
   [S, H, D, E], values [S, H, E, D], mask [S*H, K, E], output [S*K, H*D]; D is a multiple of 2 * LANES.
   Entries behind the last one that is not masked are not read. The scores need QUERIES_AT_ONCE times
   ``room``, at least E + LANES numbers. */
void attend(const float *queries, long stride, const float *keys, const float *values,
            const float *mask, long S, long K, long H, long D, long E, float *scores, long room,
            float *output) {
    float padded_keys[MOST_HEAD_WIDTH * LANES];
    for (long sh = 0; sh < S * H; sh++, keys += D * E, values += E * D, mask += K * E) {
        const float *of_slot = queries + sh / H * K * stride + sh % H * D, *own_keys = keys;
        long used = num_used(mask, K, E), width = E;
        if (E < LANES) { /* rows of LANES, so that whole vectors can be read */
            for (long d = 0; d < D; d++)
                memcpy(padded_keys + d * LANES, keys + d * E, E * sizeof(float));
            own_keys = padded_keys, width = LANES;
        }
        for (long first = 0; first < K; first += QUERIES_AT_ONCE) {
            const float *rows[QUERIES_AT_ONCE]; /* the last hypothesis again where there are fewer */
            long count = K - first < QUERIES_AT_ONCE ? K - first : QUERIES_AT_ONCE;
            for (int k = 0; k < QUERIES_AT_ONCE; k++)
                rows[k] = of_slot + (first + (k < count ? k : count - 1)) * stride;
            for (long e = 0; e < used; e += LANES) {
                /* the last vector begins earlier if it would pass the end */
                long begin = e + LANES <= width ? e : width - LANES;
                score(rows, own_keys + begin, D, width, scores + begin, room);
            }
            for (int k = 0; k < count; k++)
                softmax(scores + k * room, mask + (first + k) * E, used, 1.f / sqrtf((float)D));
            float *to = output + (sh / H * K + first) * H * D + sh % H * D;
            for (long d = 0; d < D; d += 2 * LANES)
                weighted_sums(scores, room, values + d, used, D, H * D, count, to + d);
        }
    }
}

/* writes keys and values [S*K, H*D] with a stride into [S, H, D, E] and [S, H, E, D] at places [S, K] */
void append(const float *new_keys, const float *new_values, long stride, const int64_t *places,
            float *keys, float *values, long S, long K, long H, long D, long E) {
    for (long row = 0; row < S * K; row++, new_keys += stride, new_values += stride)
        for (long h = 0; h < H; h++) {
            long head = (row / K * H + h) * D * E, place = places[row];
            for (long d = 0; d < D; d++) keys[head + d * E + place] = new_keys[h * D + d];
            memcpy(values + head + place * D, new_values + h * D, D * sizeof(float));
        }
}

/* continuations, best first: a total is a logit minus the normalizer plus the score */
typedef struct {
    float *totals;
    int64_t *parents, *tokens;
    float logits[MOST_CANDIDATES];
} candidates;

/* puts a continuation of hypothesis k into its place in the list of C, behind equal ones */
static void insert(candidates *best, long C, float total, float logit, long k, long token) {
    long place = C;
    for (; place > 0; place--) {
        float worse = best->totals[place - 1];
        int is_equal = total == worse && best->parents[place - 1] == k;
        if (!(total > worse || (is_equal && logit > best->logits[place - 1]))) break;
    }
    for (long c = C - 1; c > place; c--) {
        best->totals[c] = best->totals[c - 1], best->logits[c] = best->logits[c - 1];
        best->parents[c] = best->parents[c - 1], best->tokens[c] = best->tokens[c - 1];
    }
    if (place < C) {
        best->totals[place] = total, best->logits[place] = logit;
        best->parents[place] = k, best->tokens[place] = token;
    }
}

/* the C best continuations [S, C] of the K hypotheses of each slot, best first: their totals, the
   hypotheses that are continued, and the tokens. Of equal totals, that of an earlier hypothesis is
   better, then the larger logit, then the earlier token. Where there are padded_keyser than C, the total is
   -inf. */
void best_continuations(const float *logits, const float *normalizers, const float *scores, long S,
                        long K, long V, long C, float *totals, int64_t *parents, int64_t *tokens) {
    candidates best = {totals, parents, tokens, {0.f}};
    for (long sk = 0; sk < S * K; sk++, logits += V) {
        if (sk % K == 0) {
            best.totals = totals + sk / K * C;
            best.parents = parents + sk / K * C, best.tokens = tokens + sk / K * C;
            for (long c = 0; c < C; c++)
                best.totals[c] = -INFINITY, best.parents[c] = best.tokens[c] = 0;
        }
        float normalizer = normalizers[sk], score = scores[sk];
        for (long begin = 0, end; begin < V; begin = end) {
            end = begin + LANES < V ? begin + LANES : V;
            if (begin + WINDOW <= V) { /* is there one that belongs to the best? */
                floats largest = load(logits + begin);
                for (long v = LANES; v < WINDOW; v += LANES)
                    largest = larger(largest, load(logits + begin + v));
                if (!any(largest - normalizer + score >= best.totals[C - 1])) {
                    end = begin + WINDOW;
                    continue;
                }
            }
            for (long v = begin; v < end; v++)
                insert(&best, C, logits[v] - normalizer + score, logits[v], sk % K, v);
        }
    }
}
