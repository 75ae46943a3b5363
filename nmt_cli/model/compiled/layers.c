/* The encoder's and the decoder's layers, without dropout, in fp32 or with products in int8.

   The result of a sentence depends on that sentence only, to the last bit. NaN stays in its row.

   Legend: R rows, I inputs, O outputs, D d_model, S slots, K beam, H heads, W width of a head's queries and
   keys, X of its values, E entries. */

#include "vectors.h"

#if defined __x86_64__
#include <immintrin.h>
#endif
#if defined _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#define BLOCK (2 * LANES)  /* outputs of a matrix that are computed together */
/* rows that read a block together: two vectors of sums for each must fit into the registers */
#if defined __AVX512F__ || defined __aarch64__
#define ROWS_AT_ONCE 8
#else
#define ROWS_AT_ONCE 4
#endif
#define QUERIES_AT_ONCE 4  /* hypotheses that read keys and values together */
#define LEAST_SHARED 4000000 /* multiplications that are worth more than one thread */
#define LARGEST 127.f      /* of the integers that stand for numbers */
#define SMALLEST_SCALE 1e-30f

/* a weight matrix [O, I] in blocks of outputs, the last one filled up with 0: in fp32 [O / BLOCK, I, BLOCK],
   or as int8 [O / BLOCK, I / 4, BLOCK, 4] with the scale [O] and 128 times the sum [O] of each output.
   ``bias`` [O] may be NULL. */
typedef struct {
    const void *blocks;
    const float *bias, *scales;
    const int32_t *sums;
    long I, O;
} matrix;

typedef struct {
    const float *weight, *bias; /* [D]; bias may be NULL */
    float epsilon;
} norm;

/* a layer; that of an encoder has nothing for the memory */
typedef struct {
    matrix queries_keys_values, output;
    matrix memory_queries, memory_output;
    matrix inner, outer;
    norm within, to_memory, feed_forward;
} layer;

enum activation { NONE, RELU, SWISH, GELU, GELU_TANH };

/* what the layers of a stack have in common */
typedef struct {
    const layer *layers;
    long N; /* layers */
    long H, W, X, D, F;
    long is_pre_norm, activation;
    long threads;
} stack;

/* vectors [V, D] times ``scale``, plus those of positions; then a norm, unless its weight is NULL */
typedef struct {
    const float *vectors, *positions;
    norm after;
    float scale;
    long D, starts_with_zeros; /* instead of the vector of the first token */
} embedding;

/* the past and the memory of some slots in one layer: keys [S, H, W, E], values [S, H, E, X] */
typedef struct {
    float *past_keys, *past_values;
    const float *memory_keys, *memory_values;
} entries;

/* some slots in a step */
typedef struct {
    const entries *of_layers; /* [N] */
    long S, past_room, memory_room;
    const int64_t *places;    /* [S, K], where the past gets new entries */
    const uint8_t *is_past;   /* [S, K, is_past_room], which of the entries a hypothesis attends to */
    long is_past_room;
    const int64_t *lengths; /* [S], how many entries the memory has */
} part;

/* sizes ---------------------------------------------------------------------------------------------- */

long outputs_of_block(void) { return BLOCK; }

/* the numbers that ``encode`` and ``decode`` need beside the rows, for R rows and up to E entries */
long room_for(const stack *of, long R, long E) {
    long projected = of->H * (2 * of->W + of->X), attended = of->H * of->X;
    long inside = projected + attended > of->F ? projected + attended : of->F;
    long widest = attended > of->F ? attended : of->F;
    widest = widest > of->D ? widest : of->D;
    long integers = R * (widest / 4 + 2), scores = of->threads * QUERIES_AT_ONCE * (E + LANES);
    return R * (of->D + inside) + E * of->H * (of->W + of->X) + integers + scores;
}

static long size_of(const matrix *of) { return of->I * of->O; }

/* the threads for a product of so many multiplications, or for several that follow each other: waking a
   thread takes as long as a million of them */
static int threads_for(long multiplications, long threads) {
    return multiplications < LEAST_SHARED ? 1 : threads;
}

static int threads_of_stack(const stack *of, long R) {
    const layer *by = of->layers;
    long size = size_of(&by->queries_keys_values) + size_of(&by->output) + size_of(&by->memory_queries) +
                size_of(&by->memory_output) + size_of(&by->inner) + size_of(&by->outer);
    return threads_for(R * of->N * size, of->threads);
}

/* products ------------------------------------------------------------------------------------------- */

void pack(const float *weight, long O, long I, float *blocks) {
    for (long first = 0; first < O; first += BLOCK)
        for (long i = 0; i < I; i++)
            for (long o = first; o < first + BLOCK; o++)
                *blocks++ = o < O ? weight[o * I + i] : 0.f;
}

void pack_int8(const int8_t *weight, long O, long I, int8_t *blocks, int32_t *sums) {
    for (long o = 0; o < O; o++) {
        sums[o] = 0;
        for (long i = 0; i < I; i++) sums[o] += 128 * weight[o * I + i];
    }
    for (long first = 0; first < O; first += BLOCK)
        for (long i = 0; i < I; i += 4)
            for (long o = first; o < first + BLOCK; o++)
                for (long j = i; j < i + 4; j++) *blocks++ = o < O && j < I ? weight[o * I + j] : 0;
}

/* the products [count, BLOCK] of rows [count, I] and a block; the sums are added up in the same order
   whatever ``count`` is */
INLINE void multiply_block(const float *rows, long stride, const float *block, long I, int count,
                           float *products) {
    floats low[ROWS_AT_ONCE], high[ROWS_AT_ONCE];
    for (int r = 0; r < count; r++) low[r] = high[r] = ZERO;
    for (long i = 0; i < I; i++, block += BLOCK) {
        floats first = load(block), second = load(block + LANES);
        for (int r = 0; r < count; r++) {
            low[r] += rows[r * stride + i] * first;
            high[r] += rows[r * stride + i] * second;
        }
    }
    for (int r = 0; r < count; r++) {
        store(products + r * BLOCK, low[r]);
        store(products + r * BLOCK + LANES, high[r]);
    }
}

/* sums, plus the products of four bytes without sign and four integers each */
#if defined __AVX512VNNI__
#define HAS_INT8 1
INLINE ints add_products(ints sums, int32_t bytes, const int8_t *weights) {
    __m512i four = _mm512_set1_epi32(bytes), own = _mm512_loadu_si512(weights);
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, four, own);
}
#elif defined __AVXVNNI__
#define HAS_INT8 1
INLINE ints add_products(ints sums, int32_t bytes, const int8_t *weights) {
    __m256i four = _mm256_set1_epi32(bytes), own = _mm256_loadu_si256((const __m256i *)weights);
    return (ints)_mm256_dpbusd_avx_epi32((__m256i)sums, four, own);
}
#else
#define HAS_INT8 0
INLINE ints add_products(ints sums, int32_t bytes, const int8_t *weights) {
    (void)bytes, (void)weights;
    return sums;
}
#endif

/* whether matrices may be int8 */
long has_int8(void) { return HAS_INT8; }

/* the same of a block in int8, and of rows in int8 plus 128; I is a multiple of 4 */
INLINE void multiply_block_int8(const uint8_t *rows, long stride, const int8_t *block, long I, int count,
                                int32_t *products) {
    ints low[ROWS_AT_ONCE], high[ROWS_AT_ONCE];
    for (int r = 0; r < count; r++) low[r] = high[r] = (ints){0};
    for (long i = 0; i < I; i += 4, block += 4 * BLOCK)
        for (int r = 0; r < count; r++) {
            int32_t bytes;
            memcpy(&bytes, rows + r * stride + i, 4);
            low[r] = add_products(low[r], bytes, block);
            high[r] = add_products(high[r], bytes, block + 4 * LANES);
        }
    for (int r = 0; r < count; r++) {
        *(ints *)(products + r * BLOCK) = low[r];
        *(ints *)(products + r * BLOCK + LANES) = high[r];
    }
}

/* returns the scale of a row [I], which is not a number if one in the row is not finite; the row over the
   scale, as whole numbers plus 128 */
static float round_row(const float *row, long I, uint8_t *integers) {
    floats largest = ZERO, nan = ZERO; /* x - x is NaN where x is not finite */
    long i = 0;
    for (; i + LANES <= I; i += LANES) {
        floats x = load(row + i);
        largest = larger(largest, larger(-x, x));
        nan += x - x;
    }
    float most = largest_of(largest), not_finite = sum_of(nan);
    for (; i < I; i++) {
        most = most > fabsf(row[i]) ? most : fabsf(row[i]);
        not_finite += row[i] - row[i];
    }
    float scale = (most > SMALLEST_SCALE ? most : SMALLEST_SCALE) / LARGEST + not_finite;
    float inverse = isnan(scale) ? 0.f : 1.f / scale;
    if (isnan(scale)) memset(integers, 128, I);
    else
        for (i = 0; i < I; i++)
            integers[i] = (uint8_t)((int32_t)((row[i] * inverse + ROUNDING) - ROUNDING) + 128);
    return scale;
}

INLINE float activated(float x, long activation) {
    switch (activation) {
        case RELU: return x < 0.f ? 0.f : x;
        case SWISH: return x / (1.f + expf(-x));
        case GELU: return .5f * x * (1.f + erff(x * .707106781f));
        case GELU_TANH: return x / (1.f + expf(-1.59576912f * (x + .044715f * x * x * x)));
        default: return x;
    }
}

/* the activation of x W^T + b [R, O] of rows [R, I]; ``room`` has R * (I + 8) bytes */
static void multiply_rows(const matrix *by, const float *rows, long R, long activation, float *output,
                          void *room, int threads) {
    long I = by->I, O = by->O, stride = (I + 3) / 4 * 4;
    float *row_scales = room;
    uint8_t *integers = (uint8_t *)(row_scales + R);
    if (by->scales)
        for (long r = 0; r < R; r++) row_scales[r] = round_row(rows + r * I, I, integers + r * stride);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long o = 0; o < O; o += BLOCK) {
        long width = O - o < BLOCK ? O - o : BLOCK;
        float bias[BLOCK] = {0.f}, scales[BLOCK] = {0.f};
        int32_t sums[BLOCK] = {0};
        if (by->bias) memcpy(bias, by->bias + o, width * sizeof(float));
        if (by->scales) {
            memcpy(scales, by->scales + o, width * sizeof(float));
            memcpy(sums, by->sums + o, width * sizeof(int32_t));
        }
        for (long r = 0, count; r < R; r += count) {
            float products[ROWS_AT_ONCE * BLOCK];
            long left = R - r;
            count = left >= ROWS_AT_ONCE ? ROWS_AT_ONCE : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            if (by->scales) {
                const uint8_t *from = integers + r * stride;
                const int8_t *block = (const int8_t *)by->blocks + o * stride;
                int32_t found[ROWS_AT_ONCE * BLOCK];
                if (count == ROWS_AT_ONCE)
                    multiply_block_int8(from, stride, block, stride, ROWS_AT_ONCE, found);
                else if (count == 4) multiply_block_int8(from, stride, block, stride, 4, found);
                else if (count == 2) multiply_block_int8(from, stride, block, stride, 2, found);
                else multiply_block_int8(from, stride, block, stride, 1, found);
                for (long k = 0; k < count; k++)
                    for (long j = 0; j < BLOCK; j++)
                        products[k * BLOCK + j] =
                            (float)(found[k * BLOCK + j] - sums[j]) * scales[j] * row_scales[r + k];
            } else {
                const float *from = rows + r * I, *block = (const float *)by->blocks + o * I;
                if (count == ROWS_AT_ONCE) multiply_block(from, I, block, I, ROWS_AT_ONCE, products);
                else if (count == 4) multiply_block(from, I, block, I, 4, products);
                else if (count == 2) multiply_block(from, I, block, I, 2, products);
                else multiply_block(from, I, block, I, 1, products);
            }
            for (long k = 0; k < count; k++) {
                float *to = output + (r + k) * O + o, *sum = products + k * BLOCK;
                for (long j = 0; j < BLOCK; j++) sum[j] += bias[j];
                if (activation == RELU)
                    for (long j = 0; j < BLOCK; j++) sum[j] = activated(sum[j], RELU);
                else if (activation != NONE)
                    for (long j = 0; j < BLOCK; j++) sum[j] = activated(sum[j], activation);
                memcpy(to, sum, width * sizeof(float));
            }
        }
    }
}

void multiply(const matrix *by, const float *rows, long R, float *output, void *room, long threads) {
    multiply_rows(by, rows, R, NONE, output, room, threads_for(R * size_of(by), threads));
}

/* residual sums ---------------------------------------------------------------------------------------- */

/* LayerNorm of a + b [R, D]; b may be NULL */
static void normalize(const norm *by, const float *a, const float *b, long R, long D, float *output) {
    for (long r = 0; r < R; r++, a += D, output += D) {
        const float *other = b ? b + r * D : NULL;
        floats sums = ZERO, squares = ZERO;
        float sum = 0.f, square = 0.f;
        long d = 0;
        for (; d + LANES <= D; d += LANES) {
            floats total = load(a + d);
            if (other) total += load(other + d);
            store(output + d, total);
            sums += total;
        }
        for (; d < D; d++) sum += output[d] = a[d] + (other ? other[d] : 0.f);
        float mean = (sum + sum_of(sums)) / D;
        for (d = 0; d + LANES <= D; d += LANES) {
            floats from_mean = load(output + d) - mean;
            squares += from_mean * from_mean;
        }
        for (; d < D; d++) square += (output[d] - mean) * (output[d] - mean);
        float scale = 1.f / sqrtf((square + sum_of(squares)) / D + by->epsilon);
        for (d = 0; d < D; d++)
            output[d] = (output[d] - mean) * scale * by->weight[d] + (by->bias ? by->bias[d] : 0.f);
    }
}

/* the rows [S*K, D] of tokens [S, K] at positions [S] */
void embed(const embedding *by, const int64_t *tokens, const int64_t *positions, long S, long K,
           float *rows) {
    long D = by->D;
    for (long r = 0; r < S * K; r++) {
        const float *vector = by->vectors + tokens[r] * D;
        const float *place = by->positions + positions[r / K] * D;
        memcpy(rows + r * D, place, D * sizeof(float));
        if (by->starts_with_zeros && positions[r / K] == 0) continue;
        for (long d = 0; d < D; d++) rows[r * D + d] += by->scale * vector[d];
    }
    if (by->after.weight) normalize(&by->after, rows, NULL, S * K, D, rows);
}

/* returns the rows [R, D] that enter a sub-layer; with pre-norm they are in ``room`` */
static const float *entering(const stack *of, const norm *by, const float *rows, long R, float *room) {
    if (!of->is_pre_norm) return rows;
    normalize(by, rows, NULL, R, of->D, room);
    return room;
}

/* adds the output of a sub-layer to rows [R, D]; with post-norm, normalizes the sum */
static void close_residual(const stack *of, const norm *by, const float *branch, long R, float *rows) {
    if (!of->is_pre_norm) normalize(by, rows, branch, R, of->D, rows);
    else
        for (long i = 0; i < R * of->D; i++) rows[i] += branch[i];
}

/* attention -------------------------------------------------------------------------------------------- */

/* LANES numbers, of which those behind the first ``available`` mean nothing and are not read */
INLINE floats load_some(const float *from, long available) {
    if (available >= LANES) return load(from);
    float some[LANES] = {0.f};
    memcpy(some, from, available * sizeof(float));
    return load(some);
}

/* scores [QUERIES_AT_ONCE, room] of the first ``used`` entries by queries [W] and keys [W, E] */
static void score(const float *const *queries, const float *keys, long W, long E, long used,
                  float *scores, long room) {
    for (long e = 0; e < used; e += LANES) {
        floats sums[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
        for (long w = 0; w < W; w++) {
            floats key = load_some(keys + w * E + e, (W - w) * E - e);
            for (int k = 0; k < QUERIES_AT_ONCE; k++) sums[k] += queries[k][w] * key;
        }
        for (int k = 0; k < QUERIES_AT_ONCE; k++) store(scores + k * room + e, sums[k]);
    }
}

/* softmax of scores [E] times ``scale``; entries of which ``is_kept`` is 0 count as -inf */
static void softmax(float *scores, const uint8_t *is_kept, long E, float scale) {
    long end = (E + LANES - 1) / LANES * LANES;
    for (long e = 0; e < E; e++) scores[e] = is_kept && !is_kept[e] ? -INFINITY : scores[e] * scale;
    for (long e = E; e < end; e++) scores[e] = -INFINITY;
    floats largest = load(scores), sum = ZERO;
    for (long e = LANES; e < end; e += LANES) largest = larger(largest, load(scores + e));
    float most = largest_of(largest);
    for (long e = 0; e < end; e += LANES) {
        floats weights = exponential(load(scores + e) - most);
        store(scores + e, weights);
        sum += weights;
    }
    float total = sum_of(sum);
    for (long e = 0; e < end; e += LANES) store(scores + e, load(scores + e) / total);
}

/* sums of LANES or 2 * LANES columns of values [E, X], weighted by the scores of QUERIES_AT_ONCE hypotheses,
   of which ``count`` get an output */
INLINE void weighted_sums(const float *scores, long room, const float *values, long E, long X,
                          int is_double, long stride, long count, float *output) {
    floats low[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    floats high[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    for (long e = 0; e < E; e++) {
        floats first = load(values + e * X), second = is_double ? load(values + e * X + LANES) : ZERO;
        for (int k = 0; k < QUERIES_AT_ONCE; k++) {
            low[k] += scores[k * room + e] * first;
            if (is_double) high[k] += scores[k * room + e] * second;
        }
    }
    for (long k = 0; k < count; k++) {
        store(output + k * stride, low[k]);
        if (is_double) store(output + k * stride + LANES, high[k]);
    }
}

/* softmax(Q K^T / sqrt(W)) V of one head: K queries [W] and outputs [X] with strides, keys [W, E], values
   [E, X]. Only the first ``used`` entries are read; of these, hypothesis k attends to those with is_kept
   [K, kept_room], or to all if that is NULL. ``scores`` have room for E + LANES numbers of each of
   QUERIES_AT_ONCE. */
static void attend_head(const float *queries, long stride, long K, const float *keys, const float *values,
                        long W, long X, long E, long used, const uint8_t *is_kept, long kept_room,
                        float *scores, float *output, long output_stride) {
    long room = E + LANES;
    for (long first = 0; first < K; first += QUERIES_AT_ONCE) {
        const float *rows[QUERIES_AT_ONCE]; /* the last hypothesis again where there are fewer */
        long count = K - first < QUERIES_AT_ONCE ? K - first : QUERIES_AT_ONCE;
        for (int k = 0; k < QUERIES_AT_ONCE; k++)
            rows[k] = queries + (first + (k < count ? k : count - 1)) * stride;
        score(rows, keys, W, E, used, scores, room);
        for (int k = 0; k < QUERIES_AT_ONCE; k++)
            softmax(scores + k * room, is_kept && k < count ? is_kept + (first + k) * kept_room : NULL,
                    used, 1.f / sqrtf((float)W));
        float *to = output + first * output_stride;
        long x = 0;
        for (; x + 2 * LANES <= X; x += 2 * LANES)
            weighted_sums(scores, room, values + x, used, X, 1, output_stride, count, to + x);
        for (; x + LANES <= X; x += LANES)
            weighted_sums(scores, room, values + x, used, X, 0, output_stride, count, to + x);
        for (; x < X; x++)
            for (long k = 0; k < count; k++) {
                float sum = 0.f;
                for (long e = 0; e < used; e++) sum += scores[k * room + e] * values[e * X + x];
                to[k * output_stride + x] = sum;
            }
    }
}

/* writes a row's keys [H, W] and values [H, X] into the entry ``place`` of [H, W, E] and [H, E, X] */
static void append(const float *new_keys, const float *new_values, long H, long W, long X, long E,
                   long place, float *keys, float *values) {
    for (long h = 0; h < H; h++, keys += W * E, values += E * X) {
        for (long w = 0; w < W; w++) keys[w * E + place] = new_keys[h * W + w];
        memcpy(values + place * X, new_values + h * X, X * sizeof(float));
    }
}

/* the number of entries before those that no hypothesis attends to */
static long num_used(const uint8_t *is_kept, long kept_room, long K, long E) {
    for (long e = E; e > 0; e--)
        for (long k = 0; k < K; k++)
            if (is_kept[k * kept_room + e - 1]) return e;
    return 0;
}

/* attention of each hypothesis of ``in`` to its past: ``projected`` [S*K, H*(2W+X)], ``attended`` [S*K, H*X] */
static void attend_to_past(const stack *of, int threads, const part *in, const entries *to, long K,
                           const float *projected, float *scores, float *attended) {
    long H = of->H, W = of->W, X = of->X, E = in->past_room, stride = H * (2 * W + X);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long s = 0; s < in->S; s++) {
        const uint8_t *is_kept = in->is_past + s * K * in->is_past_room;
        const float *rows = projected + s * K * stride;
        float *keys = to->past_keys + s * H * W * E, *values = to->past_values + s * H * E * X;
        float *own_scores = scores + omp_get_thread_num() * QUERIES_AT_ONCE * (E + LANES);
        for (long k = 0; k < K; k++) {
            const float *row = rows + k * stride;
            append(row + H * W, row + 2 * H * W, H, W, X, E, in->places[s * K + k], keys, values);
        }
        long used = num_used(is_kept, in->is_past_room, K, E);
        for (long h = 0; h < H; h++)
            attend_head(rows + h * W, stride, K, keys + h * W * E, values + h * E * X, W, X, E, used,
                        is_kept, in->is_past_room, own_scores, attended + s * K * H * X + h * X, H * X);
    }
}

/* attention of each hypothesis of ``in`` to its source: ``queries`` [S*K, H*W] */
static void attend_to_memory(const stack *of, int threads, const part *in, const entries *to, long K,
                             const float *queries, float *scores, float *attended) {
    long H = of->H, W = of->W, X = of->X, E = in->memory_room;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long s = 0; s < in->S; s++) {
        const float *keys = to->memory_keys + s * H * W * E, *values = to->memory_values + s * H * E * X;
        float *own_scores = scores + omp_get_thread_num() * QUERIES_AT_ONCE * (E + LANES);
        for (long h = 0; h < H; h++)
            attend_head(queries + s * K * H * W + h * W, H * W, K, keys + h * W * E, values + h * E * X,
                        W, X, E, in->lengths[s], NULL, 0, own_scores,
                        attended + s * K * H * X + h * X, H * X);
    }
}

/* layers ----------------------------------------------------------------------------------------------- */

static void feed_forward(const stack *of, int threads, const layer *by, long R, float *rows, float *room,
                         void *rounding) {
    float *branch = room, *inside = room + R * of->D;
    const float *from = entering(of, &by->feed_forward, rows, R, branch);
    multiply_rows(&by->inner, from, R, of->activation, inside, rounding, threads);
    multiply_rows(&by->outer, inside, R, NONE, branch, rounding, threads);
    close_residual(of, &by->feed_forward, branch, R, rows);
}

/* one step of a decoder: rows [R, D] of the newest tokens of all hypotheses, and after its layers. R is K
   times the slots of all ``parts``, which have up to E entries. ``room`` is that of ``room_for``. */
void decode(const stack *of, const part *parts, long num_parts, long K, long R, long E, float *rows,
            float *room) {
    long projected_width = of->H * (2 * of->W + of->X), width = of->H * of->X;
    float *branch = room, *projected = branch + R * of->D, *attended = projected + R * projected_width;
    long inside = projected_width + width > of->F ? projected_width + width : of->F;
    float *scores = projected + R * inside;
    void *rounding = scores + of->threads * QUERIES_AT_ONCE * (E + LANES);
    int threads = threads_of_stack(of, R);
    for (long n = 0; n < of->N; n++) {
        const layer *by = of->layers + n;
        const float *from = entering(of, &by->within, rows, R, branch);
        multiply_rows(&by->queries_keys_values, from, R, NONE, projected, rounding, threads);
        for (long p = 0, row = 0; p < num_parts; row += parts[p++].S * K)
            attend_to_past(of, threads, parts + p, parts[p].of_layers + n, K, projected + row * projected_width,
                           scores, attended + row * width);
        multiply_rows(&by->output, attended, R, NONE, branch, rounding, threads);
        close_residual(of, &by->within, branch, R, rows);

        from = entering(of, &by->to_memory, rows, R, branch);
        multiply_rows(&by->memory_queries, from, R, NONE, projected, rounding, threads);
        for (long p = 0, row = 0; p < num_parts; row += parts[p++].S * K)
            attend_to_memory(of, threads, parts + p, parts[p].of_layers + n, K, projected + row * of->H * of->W,
                             scores, attended + row * width);
        multiply_rows(&by->memory_output, attended, R, NONE, branch, rounding, threads);
        close_residual(of, &by->to_memory, branch, R, rows);
        feed_forward(of, threads, by, R, rows, room, rounding);
    }
}

/* an encoder: rows [R, D] of sentences one after the other, of these lengths up to E */
void encode(const stack *of, const int64_t *lengths, long num_sentences, long R, long E, float *rows,
            float *room) {
    long H = of->H, W = of->W, X = of->X, stride = H * (2 * W + X), width = H * X;
    float *branch = room, *projected = branch + R * of->D, *attended = projected + R * stride;
    long inside = stride + width > of->F ? stride + width : of->F;
    float *keys = projected + R * inside, *values = keys + E * H * W, *scores = values + E * width;
    void *rounding = scores + of->threads * QUERIES_AT_ONCE * (E + LANES);
    int threads = threads_of_stack(of, R);
    for (long n = 0; n < of->N; n++) {
        const layer *by = of->layers + n;
        const float *from = entering(of, &by->within, rows, R, branch);
        multiply_rows(&by->queries_keys_values, from, R, NONE, projected, rounding, threads);
        for (long b = 0, row = 0; b < num_sentences; row += lengths[b++]) {
            const float *own = projected + row * stride;
            long L = lengths[b];
            for (long l = 0; l < L; l++)
                append(own + l * stride + H * W, own + l * stride + 2 * H * W, H, W, X, L, l, keys, values);
#pragma omp parallel for num_threads(threads) if (threads > 1)
            for (long h = 0; h < H; h++)
                attend_head(own + h * W, stride, L, keys + h * W * L, values + h * L * X, W, X, L, L, NULL,
                            0, scores + omp_get_thread_num() * QUERIES_AT_ONCE * (L + LANES),
                            attended + row * width + h * X, width);
        }
        multiply_rows(&by->output, attended, R, NONE, branch, rounding, threads);
        close_residual(of, &by->within, branch, R, rows);
        feed_forward(of, threads, by, R, rows, room, rounding);
    }
}
