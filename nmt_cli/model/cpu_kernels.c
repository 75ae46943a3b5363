/* Steps of the search between the products by weights, each in one pass over memory, in fp32.

   A row's result depends on that row only. NaN stays NaN. The vectors are those of GCC and Clang.

   Legend: R rows, I columns, V vocabulary, S slots, K beam, H heads, D width of a head, E entries. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define BEAM 4 /* hypotheses that read keys and values together */
#define MOST_ENTRIES 4096
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1)));

static const floats ZERO;
static const float LOWEST = -87.f, HIGHEST = 88.f; /* of exp in normal numbers */
static const float ROUNDING = 12582912.f;          /* 1.5 * 2^23: x + this - this is a whole number */

static floats load(const float *from) { return *(const floats *)from; }
static void store(float *to, floats values) { *(floats *)to = values; }
static floats chosen(ints where, floats a, floats b) {
    return (floats)((where & (ints)a) | (~where & (ints)b));
}
static floats larger(floats a, floats b) { return chosen(a > b, a, b); } /* NaN if b is */
static floats rounded(floats x) { return (x + ROUNDING) - ROUNDING; }

static float sum_of(floats x) {
    float sum = x[0];
    for (int i = 1; i < LANES; i++) sum += x[i];
    return sum;
}

static float largest_of(floats x) {
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = largest > x[i] ? largest : x[i];
    return largest;
}

/* 2^n e^r with n = x / ln 2 rounded, and a polynomial for e^r; relative error 1e-7. */
static floats exponential(floats x) {
    floats y = larger(ZERO + LOWEST, x);
    y = chosen(y > HIGHEST, ZERO + HIGHEST, y);
    floats n = rounded(y * 1.44269504f);
    floats r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    floats power = (floats)((__builtin_convertvector(n, ints) + 127) << 23);
    return chosen(x > HIGHEST, ZERO + INFINITY, (p * r * r + r + 1.f) * power);
}

/* sums [R] of the exponentials of each row [R, V] */
void sum_exponentials(const float *logits, long R, long V, float *sums) {
    for (long r = 0; r < R; r++, logits += V) {
        floats even = ZERO, odd = ZERO;
        long v = 0;
        for (; v + 2 * LANES <= V; v += 2 * LANES) {
            even += exponential(load(logits + v));
            odd += exponential(load(logits + v + LANES));
        }
        float sum = sum_of(even + odd), rest[LANES];
        for (; v < V; v += LANES) {
            long left = V - v < LANES ? V - v : LANES;
            for (long i = 0; i < LANES; i++) rest[i] = i < left ? logits[v + i] : 0.f;
            floats of_rest = exponential(load(rest));
            for (long i = 0; i < left; i++) sum += of_rest[i];
        }
        sums[r] = sum;
    }
}

/* scales [R] of the rows [R, I], and the rows over them as whole numbers up to 127 */
void round_rows(const float *rows, long R, long I, float least, float *scales, int8_t *whole) {
    for (long r = 0; r < R; r++, rows += I, whole += I) {
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
        for (i = 0; i + LANES <= I; i += LANES) {
            ints n = __builtin_convertvector(rounded(load(rows + i) / scale), ints);
            *(bytes *)(whole + i) = __builtin_convertvector(n, bytes);
        }
        for (; i < I; i++) whole[i] = (int8_t)(int32_t)((rows[i] / scale + ROUNDING) - ROUNDING);
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

/* scores [E] of the queries [D] of BEAM hypotheses, by keys [D, E], of LANES entries */
static void score(const float *const *queries, const float *keys, long D, long E, float *scores) {
    floats sums[BEAM] = {ZERO, ZERO, ZERO, ZERO};
    for (long d = 0; d < D; d++) {
        floats key = load(keys + d * E);
        for (int k = 0; k < BEAM; k++) sums[k] += queries[k][d] * key;
    }
    for (int k = 0; k < BEAM; k++) store(scores + k * MOST_ENTRIES, sums[k]);
}

/* softmax of scores * scale + mask, where entries behind E count as -inf */
static void weigh(float *scores, const float *mask, long E, float scale) {
    long end = (E + LANES - 1) / LANES * LANES;
    for (long e = 0; e < E; e++) scores[e] = scores[e] * scale + mask[e];
    for (long e = E; e < end; e++) scores[e] = -INFINITY;
    floats largest = load(scores), sum = ZERO;
    for (long e = LANES; e < end; e += LANES) largest = larger(largest, load(scores + e));
    float most = largest_of(largest);
    for (long e = 0; e < end; e += LANES) {
        floats x = load(scores + e) - most;
        floats weights = chosen(x < LOWEST, ZERO, exponential(x));
        store(scores + e, weights);
        sum += weights;
    }
    float whole = sum_of(sum);
    for (long e = 0; e < end; e += LANES) store(scores + e, load(scores + e) / whole);
}

/* softmax(Q K^T / sqrt(D) + mask) V: queries [S*K, H*D] with a stride from row to row, keys
   [S, H, D, E], values [S, H, E, D], mask [S*H, K, E], output [S*K, H*D]; D is a multiple of LANES */
void attend(const float *queries, long stride, const float *keys, const float *values,
            const float *mask, long S, long K, long H, long D, long E, float *output) {
    float scores[BEAM * MOST_ENTRIES];
    for (long sh = 0; sh < S * H; sh++, keys += D * E, values += E * D, mask += K * E) {
        const float *of_slot = queries + sh / H * K * stride + sh % H * D;
        float *to = output + (sh / H * K * H + sh % H) * D;
        for (long first = 0; first < K; first += BEAM) {
            const float *rows[BEAM]; /* the last hypothesis again where there are fewer */
            for (int k = 0; k < BEAM; k++)
                rows[k] = of_slot + (first + k < K ? first + k : K - 1) * stride;
            for (long e = 0; e + LANES <= E; e += LANES) score(rows, keys + e, D, E, scores + e);
            if (E % LANES && E > LANES) score(rows, keys + E - LANES, D, E, scores + E - LANES);
            for (long e = 0; E < LANES && e < E; e++)
                for (int k = 0; k < BEAM; k++) {
                    scores[k * MOST_ENTRIES + e] = 0.f;
                    for (long d = 0; d < D; d++)
                        scores[k * MOST_ENTRIES + e] += rows[k][d] * keys[d * E + e];
                }
            for (int k = 0; k < BEAM && first + k < K; k++)
                weigh(scores + k * MOST_ENTRIES, mask + (first + k) * E, E, 1.f / sqrtf((float)D));
            for (long d = 0; d < D; d += LANES) {
                floats sums[BEAM] = {ZERO, ZERO, ZERO, ZERO};
                for (long e = 0; e < E; e++) {
                    floats value = load(values + e * D + d);
                    for (int k = 0; k < BEAM; k++) sums[k] += scores[k * MOST_ENTRIES + e] * value;
                }
                for (int k = 0; k < BEAM && first + k < K; k++)
                    store(to + (first + k) * H * D + d, sums[k]);
            }
        }
    }
}

/* writes keys and values [S*K, H*D] with a stride into [S, H, D, E] and [S, H, E, D] at places [S, K] */
void append(const float *keys, const float *values, long stride, const int64_t *places, long S,
            long K, long H, long D, long E, float *to_keys, float *to_values) {
    for (long row = 0; row < S * K; row++, keys += stride, values += stride)
        for (long h = 0; h < H; h++) {
            long head = (row / K * H + h) * D * E, place = places[row];
            for (long d = 0; d < D; d++) to_keys[head + d * E + place] = keys[h * D + d];
            memcpy(to_values + head + place * D, values + h * D, D * sizeof(float));
        }
}
