/* The encoder's and the decoder's layers, without dropout, in fp32. Products by weights are in fp32, bf16 or
   int8.

   The result of a sentence depends on that sentence only, to the last bit. NaN stays in its sentence.

   Legend: N layers, R rows, I inputs, O outputs, D d_model, F d_ff, V vocabulary, B sentences, S slots,
   K beam or queries, H heads, W width of a head's queries and keys, X of its values, E entries. */

#include "layers.h"
#include "threads.h"
#include "vectors.h"

#if defined __x86_64__
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined __ARM_FEATURE_DOTPROD
#include <arm_neon.h>
#endif

#define BLOCK (2 * LANES) /* outputs of a matrix that are computed together */
/* rows that read a block together: two vectors of sums for each must fit into the registers */
#if defined __AVX512F__
#define ROWS_AT_ONCE 12
#elif defined __aarch64__
#define ROWS_AT_ONCE 8
#else
#define ROWS_AT_ONCE 6
#endif
/* AMX multiplies tiles of 16 rows by 16 groups; two tiles of rows are multiplied together */
#if defined __AMX_TILE__
#define ROWS_OF_TILE 16
#define GROUPS_OF_TILE 16
#else
#define ROWS_OF_TILE 0
#define GROUPS_OF_TILE 1
#endif
#define GROUPS_AHEAD 8        /* of a block, that are fetched into the first cache before their turn */
#define GROUPS_AT_ONCE 64     /* of an output, that are packed together */
#define QUERIES_AT_ONCE 4     /* that read keys and values together */
#define MOST_ROWS (ROWS_OF_TILE ? 2 * ROWS_OF_TILE : ROWS_AT_ONCE)
#define LEAST_SHARED 4000000  /* multiplications from which several threads are faster */
#define LARGEST 127.f         /* of int8 */
#define SMALLEST_SCALE 1e-30f /* of a row in int8 */

/* Groups of four bytes hold one number in fp32, two in bf16 or four in int8. */
enum type { FP32, BF16, INT8 };
#define GROUP 4

/* whether instructions take the integers of a row as unsigned; then rows have OFFSET added to them */
#if defined __AVX512VNNI__ || defined __AVXVNNI__
#define OFFSET 128
#else
#define OFFSET 0
#endif
/* what ``add_integers`` finds too much for an integer of an output, whatever the row has: ``sums`` are its sums */
#if defined __AVX2__ && !OFFSET
#define EXCESS(integer) ((integer) < 0 ? (integer) : 0)
#else
#define EXCESS(integer) (OFFSET * (integer))
#endif

/* attention weights that are wanted: those of sentence b in layer n are [H, queries, entries], and begin
   places[n] times as many numbers behind of_sentences[b]; in layers where the place is -1 none are wanted */
typedef struct {
    const int64_t *places;      /* [N]; NULL if none are wanted in any layer */
    float *const *of_sentences; /* [B] */
} Weights;

/* sentences whose tokens follow one another, as their rows do. In a decoder rows attend to those before them in
   their sentence, and to the memory of it. */
typedef struct {
    const int64_t *tokens, *lengths; /* [R], [B] */
    const Entries *memories;         /* [B]; NULL in an encoder */
    Weights within, to_memory;
    long B, R, E; /* E is the longest of all lengths, and of the memories */
} Sentences;

/* workspace -------------------------------------------------------------------------------------------- */

/* what layers compute of R rows, beside the rows themselves, with up to E entries */
typedef struct {
    float *branch, *projected, *attended, *inside, *keys, *values, *scores, *rounded;
    long E;
    int threads; /* that the layers use */
} Workspace;

static long numbers_of_group(long type) { return type == INT8 ? 4 : type == BF16 ? 2 : 1; }

/* the groups of a row or of an output's weights; those behind I numbers are 0 */
static long groups_of(long type, long I) {
    long groups = (I + numbers_of_group(type) - 1) / numbers_of_group(type);
    return type == FP32 ? groups : (groups + GROUPS_OF_TILE - 1) / GROUPS_OF_TILE * GROUPS_OF_TILE;
}

/* the size, in fp32 numbers, of R rows [I] that are rounded to any type, and of their scales; tiles also read,
   and ignore, what is behind the rows */
long EXPORTED(rounded_size)(long R, long I) { return R + (R + 2 * ROWS_OF_TILE) * groups_of(BF16, I); }

/* the threads for products of so many multiplications, one after the other */
static int threads_for(long multiplications, long threads) {
    return multiplications < LEAST_SHARED ? 1 : threads;
}

static long num_weights(const Matrix *matrix) { return matrix->I * matrix->O; }

static int threads_for_stack(const Stack *stack, long R) {
    const Layer *first = stack->layers;
    long size = num_weights(&first->queries_keys_values) + num_weights(&first->self_attention_output) +
                num_weights(&first->candidates) + num_weights(&first->forget_gates) +
                num_weights(&first->memory_queries) + num_weights(&first->memory_output) +
                num_weights(&first->inner) + num_weights(&first->outer);
    return threads_for(R * stack->N * size, stack->threads);
}

/* divides memory, if it is not NULL; returns the size that is needed, in fp32 numbers */
static long divide(const Stack *stack, long R, long E, float *memory, Workspace *parts) {
    long keys = stack->H * stack->W, values = stack->H * stack->X;
    long widest = stack->F > stack->D ? stack->F : stack->D;
    widest = widest > values ? widest : values;
    long of_unit = 2 * stack->D > keys ? 2 * stack->D : keys; /* or the queries to the memory */
    long projected = R * (stack->layers->candidates.O ? of_unit : 2 * keys + values);
    long attention = projected + R * values, inside = R * stack->F;
    long sizes[] = {R * stack->D, projected, R * values, inside > attention ? inside - attention : 0,
                    E * keys, E * values, stack->threads * QUERIES_AT_ONCE * (E + LANES),
                    stack->layers->inner.type == FP32 ? 0 : EXPORTED(rounded_size)(R, widest)};
    float *unused, **places[] = {&parts->branch, &parts->projected, &parts->attended, &unused,
                                 &parts->keys,   &parts->values,    &parts->scores,   &parts->rounded};
    long size = 0;
    for (int i = 0; i < 8; size += sizes[i++])
        if (memory) *places[i] = memory + size;
    if (memory) parts->inside = parts->projected; /* no row needs both at a time */
    parts->E = E;
    parts->threads = threads_for_stack(stack, R);
    return size;
}

long EXPORTED(workspace_size)(const Stack *stack, long R, long E) {
    Workspace none;
    return divide(stack, R, E, NULL, &none);
}

/* products --------------------------------------------------------------------------------------------- */

/* whether the CPU has instructions for products in bf16; without them, weights are given in fp32 */
long EXPORTED(has_bf16)(void) {
#if defined __AVX512BF16__
    return 1;
#else
    return 0;
#endif
}

long EXPORTED(size_of_blocks)(long type, long I, long O) {
    return (O + BLOCK - 1) / BLOCK * BLOCK * groups_of(type, I) * GROUP;
}

/* whether this process may use the instructions of this level; it asks Linux for AMX, once */
long EXPORTED(is_usable)(void) {
#if defined __AMX_TILE__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 1;
#endif
}

/* a number in bf16; the nearest, of two the even one */
INLINE uint16_t as_bf16(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return number == number ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

/* the scale of a row [I] in int8; NaN if a number is not finite */
static float scale_of(const float *row, long I) {
    int32_t most = 0; /* of the bits without the sign: they are in the order of the numbers, NaN the last */
    for (long i = 0; i < I; i++) {
        int32_t bits;
        memcpy(&bits, row + i, sizeof(bits));
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof(most));
    if (!isfinite(largest)) return NAN;
    return (largest > SMALLEST_SCALE ? largest : SMALLEST_SCALE) / LARGEST;
}

/* writes ``count`` of an output's weights, of at most GROUPS_AT_ONCE groups, in a type into these groups, which are
   BLOCK groups apart; in int8 divided by the scale, and returns the sum of their excess */
INLINE int32_t pack_groups(const float *row, long type, long count, float scale, char *block) {
    float inverse = 1.f / scale;
    int32_t excess = 0;
    union {
        char groups[GROUPS_AT_ONCE][GROUP];
        float floats[GROUPS_AT_ONCE];
        uint16_t halves[GROUPS_AT_ONCE * 2];
        int8_t integers[GROUPS_AT_ONCE * 4];
    } some = {{{0}}};
    if (type == FP32) memcpy(some.floats, row, count * sizeof(float));
    for (long i = 0; i < count && type == BF16; i++) some.halves[i] = as_bf16(row[i]);
    if (type == INT8 && inverse == inverse)
        for (long i = 0; i < count; i++) some.integers[i] = (int8_t)rintf(row[i] * inverse);
    for (long i = 0; i < count && type == INT8; i++) excess += EXCESS(some.integers[i]);
    for (long i = 0; i < count; i += numbers_of_group(type), block += BLOCK * GROUP)
        memcpy(block, some.groups[i / numbers_of_group(type)], GROUP);
    return excess;
}

/* writes the weights [O <= BLOCK, I] of a block's outputs into it, and in int8 their scales and sums [O].
   GROUPS_AT_ONCE groups of all outputs stay in the first cache while they are written */
INLINE void pack_block(const float *weight, long type, long I, long O, char *block, float *scales, uint32_t *sums) {
    for (long o = 0; o < O && type == INT8; o++) scales[o] = scale_of(weight + o * I, I);
    long most = GROUPS_AT_ONCE * numbers_of_group(type);
    for (long first = 0; first < I; first += most, block += GROUPS_AT_ONCE * BLOCK * GROUP)
        for (long o = 0; o < O; o++) {
            long count = I - first < most ? I - first : most;
            const float *row = weight + o * I + first;
            int32_t excess = pack_groups(row, type, count, type == INT8 ? scales[o] : 0.f, block + o * GROUP);
            if (type == INT8) sums[o] += (uint32_t)excess;
        }
}

/* writes a weight [O, I] in fp32 into the blocks of a matrix of a type; ``scales`` and ``sums`` [O] are for int8.
   Blocks and sums are 0 before */
void EXPORTED(pack)(const float *weight, long type, long I, long O, char *blocks, float *scales, uint32_t *sums) {
    for (long o = 0; o < O; o += BLOCK, blocks += groups_of(type, I) * BLOCK * GROUP) {
        long few = O - o < BLOCK ? O - o : BLOCK;
        if (type == FP32) pack_block(weight + o * I, FP32, I, few, blocks, 0, 0);
        if (type == BF16) pack_block(weight + o * I, BF16, I, few, blocks, 0, 0);
        if (type == INT8) pack_block(weight + o * I, INT8, I, few, blocks, scales + o, sums + o);
    }
}

/* the groups of a row or of an output's weights, filled up with 0 to whole vectors */
static long groups_of_vectors(long type, long I) { return (groups_of(type, I) + LANES - 1) / LANES * LANES; }

/* the size, in bytes, of an output's weights for ``multiply_lists`` */
long EXPORTED(size_of_weights)(long type, long I) { return groups_of_vectors(type, I) * GROUP; }

/* group i of the ``steps`` groups of an output */
INLINE const char *group_of(const Matrix *matrix, long steps, long o, long i) {
    return matrix->blocks + ((o / BLOCK * steps + i) * BLOCK + o % BLOCK) * GROUP;
}

/* writes the weights of a matrix, those of one output after the other, into memory [O] that is 0 before */
void EXPORTED(unpack)(const Matrix *matrix, char *weights) {
    long steps = groups_of(matrix->type, matrix->I), size = EXPORTED(size_of_weights)(matrix->type, matrix->I);
    for (long o = 0; o < matrix->O; o++, weights += size)
        for (long i = 0; i < steps; i++) memcpy(weights + i * GROUP, group_of(matrix, steps, o, i), GROUP);
}

/* sums [LANES], in int32, plus the products of the four integers of each group of a row and of weights, and the
   weights' EXCESS */
INLINE floats add_integers(floats sums, ints row, const char *weights) {
#if defined __AVX512VNNI__
    return (floats)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)row, _mm512_loadu_si512(weights));
#elif defined __AVXVNNI__
    return (floats)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)row,
                                           _mm256_loadu_si256((const __m256i *)weights));
#elif defined __ARM_FEATURE_DOTPROD
    return (floats)vdotq_s32((int32x4_t)sums, (int8x16_t)row, vld1q_s8((const int8_t *)weights));
#else
    /* The product by a weight w < 0 is -w * ~row + w, as ~row is -row - 1. Rows are from -127 to 127, so 16 bits
       hold the sum of two products: at most 2 * 127 * 128. sign_epi8 would do, but uses the ports that multiply. */
#if defined __AVX512BW__
    __m512i own = _mm512_loadu_si512(weights);
    __m512i flipped = (__m512i)row ^ _mm512_movm_epi8(_mm512_movepi8_mask(own));
    __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(own), flipped);
    return (floats)((ints)sums + (ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined __AVX2__
    __m256i own = _mm256_loadu_si256((const __m256i *)weights);
    __m256i flipped = (__m256i)row ^ _mm256_cmpgt_epi8(_mm256_setzero_si256(), own);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(own), flipped);
    return (floats)((ints)sums + (ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
#error "there is no level for this CPU"
#endif
#endif
}

/* sums [LANES], in int32 for int8, plus the products of groups [LANES] of a row and of weights */
INLINE floats add_products(long type, floats sums, floats row, const char *weights) {
    if (type == INT8) return add_integers(sums, (ints)row, weights);
#if defined __AVX512BF16__
    if (type == BF16)
        return (floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)row, (__m512bh)_mm512_loadu_si512(weights));
#endif
    return sums + row * load((const float *)weights);
}

/* the sums [count, BLOCK] of rows [count, steps] and a block [steps, BLOCK] of groups; they are added up in
   the same order whatever ``count`` is */
INLINE void multiply_block(long type, const char *rows, const char *block, long steps, int count,
                           floats *sums) {
    floats low[ROWS_AT_ONCE], high[ROWS_AT_ONCE];
    for (int r = 0; r < count; r++) low[r] = high[r] = ZERO;
    for (long i = 0; i < steps; i++, block += BLOCK * GROUP) {
        __builtin_prefetch(block + GROUPS_AHEAD * BLOCK * GROUP);
        __builtin_prefetch(block + (GROUPS_AHEAD * BLOCK + LANES) * GROUP);
        for (int r = 0; r < count; r++) {
            int32_t group;
            memcpy(&group, rows + (r * steps + i) * GROUP, GROUP);
            floats same = (floats)((ints){0} + group);
            low[r] = add_products(type, low[r], same, block);
            high[r] = add_products(type, high[r], same, block + LANES * GROUP);
        }
    }
    for (int r = 0; r < count; r++) sums[2 * r] = low[r], sums[2 * r + 1] = high[r];
}

#if defined __AMX_TILE__
/* lets this thread use eight tiles of 16 rows of 64 bytes, until it releases them */
static void set_up_tiles(void) {
    struct {
        uint8_t palette, start_row, unused[14];
        uint16_t bytes_of_row[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) tiles.bytes_of_row[i] = GROUPS_OF_TILE * GROUP, tiles.rows[i] = ROWS_OF_TILE;
    __asm__ volatile("" : : "r"(&tiles) : "memory"); /* all of it is written before: GCC 12 declares 8 bytes */
    _tile_loadconfig(&tiles);
}

/* adds the products of a tile of rows and one of weights to a tile of sums; intrinsics want literals */
#define ADD_PRODUCTS(type, sums, rows, weights)                    \
    if (type == BF16) { _tile_dpbf16ps(sums, rows, weights); } \
    else { _tile_dpbusd(sums, rows, weights); }

/* as ``multiply_block``, of ROWS_OF_TILE rows, or twice as many */
INLINE void multiply_tiles(long type, const char *rows, const char *block, long steps, int is_double,
                           floats *sums) {
    const char *second = rows + ROWS_OF_TILE * steps * GROUP;
    float *to = (float *)sums;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (long i = 0; i < steps; i += GROUPS_OF_TILE) {
        _tile_loadd(6, block + i * BLOCK * GROUP, BLOCK * GROUP);
        _tile_loadd(7, block + (i * BLOCK + LANES) * GROUP, BLOCK * GROUP);
        _tile_loadd(4, rows + i * GROUP, steps * GROUP);
        ADD_PRODUCTS(type, 0, 4, 6)
        ADD_PRODUCTS(type, 1, 4, 7)
        if (!is_double) continue;
        _tile_loadd(5, second + i * GROUP, steps * GROUP);
        ADD_PRODUCTS(type, 2, 5, 6)
        ADD_PRODUCTS(type, 3, 5, 7)
    }
    _tile_stored(0, to, BLOCK * GROUP);
    _tile_stored(1, to + LANES, BLOCK * GROUP);
    if (!is_double) return;
    to += ROWS_OF_TILE * BLOCK;
    _tile_stored(2, to, BLOCK * GROUP);
    _tile_stored(3, to + LANES, BLOCK * GROUP);
}
#endif

INLINE void multiply_some(long type, const char *rows, const char *block, long steps, long count,
                          floats *sums) {
    if (count == ROWS_AT_ONCE) multiply_block(type, rows, block, steps, ROWS_AT_ONCE, sums);
    else if (count == 4) multiply_block(type, rows, block, steps, 4, sums);
    else if (count == 2) multiply_block(type, rows, block, steps, 2, sums);
    else multiply_block(type, rows, block, steps, 1, sums);
}

/* rounds a row [I] to int8, plus OFFSET; returns its scale, which is NaN if a number is not finite */
static float round_to_int8(const float *row, long I, uint8_t *integers) {
    float scale = scale_of(row, I), inverse = 1.f / scale;
    if (isnan(scale)) memset(integers, OFFSET, I);
    else
        for (long i = 0; i < I; i++)
            integers[i] = (uint8_t)((int32_t)((row[i] * inverse + ROUNDING) - ROUNDING) + OFFSET);
    return scale;
}

static void round_to_bf16(const float *row, long I, uint16_t *numbers) {
    for (long i = 0; i < I; i++) numbers[i] = as_bf16(row[i]);
}

static floats activated(floats x, long activation) {
    if (activation == GELU) return x * (.5f * (1.f + error_function(x * .707106781f)));
    floats y = activation == SWISH ? x : 1.59576912f * (x + .044715f * x * x * x);
    return x / (1.f + exponential(-y));
}

/* a product of rows by a matrix: ``from`` are the rows, as groups, and ``scales`` [R] are those of int8 */
typedef struct {
    const Matrix *matrix;
    const char *from;
    const float *scales;
    long R, activation;
    float *output; /* [R, O] */
} Product;

/* the output of some blocks of a matrix */
static void multiply_blocks(const void *context, long first, long end, int thread) {
    const Product *product = context;
    const Matrix *matrix = product->matrix;
    long O = matrix->O, R = product->R, type = matrix->type, activation = product->activation;
    long steps = groups_of(type, matrix->I);
    (void)thread;
#if defined __AMX_TILE__
    if (type != FP32) set_up_tiles();
#endif
    for (long o = first * BLOCK; o < end * BLOCK; o += BLOCK) {
        long width = O - o < BLOCK ? O - o : BLOCK;
        const char *block = matrix->blocks + o * steps * GROUP;
        floats bias[2] = {ZERO, ZERO}, scales[2] = {ZERO, ZERO};
        uints sums[2] = {(uints)ZERO, (uints)ZERO};
        if (matrix->bias) memcpy(bias, matrix->bias + o, width * sizeof(float));
        if (type == INT8) {
            memcpy(scales, matrix->scales + o, width * sizeof(float));
            memcpy(sums, matrix->sums + o, width * sizeof(uint32_t));
        }
        for (long r = 0, count; r < R; r += count) {
            long left = R - r;
            floats found[2 * MOST_ROWS];
            const char *some = product->from + r * steps * GROUP;
            count = left >= ROWS_AT_ONCE ? ROWS_AT_ONCE : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            if (type == FP32) multiply_some(FP32, some, block, steps, count, found);
#if defined __AMX_TILE__
            else {
                int is_double = left > ROWS_OF_TILE;
                count = left < MOST_ROWS ? left : MOST_ROWS;
                if (type == BF16) multiply_tiles(BF16, some, block, steps, is_double, found);
                else multiply_tiles(INT8, some, block, steps, is_double, found);
            }
#else
            else if (type == BF16) multiply_some(BF16, some, block, steps, count, found);
            else multiply_some(INT8, some, block, steps, count, found);
#endif
            float *to = product->output + r * O + o;
            for (long k = 0; k < count; k++, to += O)
                for (long v = 0; v < 2; v++) {
                    floats some = found[2 * k + v];
                    if (type == INT8) {
                        ints exact = (ints)((uints)some - sums[v]);
                        some = __builtin_convertvector(exact, floats) * scales[v] * product->scales[r + k];
                    }
                    some += bias[v];
                    if (activation == RELU) some = blend(some < 0.f, ZERO, some);
                    else if (activation != NONE) some = activated(some, activation);
                    if (width == BLOCK) store(to + v * LANES, some);
                    else if (width > v * LANES) store_first(to + v * LANES, width - v * LANES, some);
                }
        }
    }
#if defined __AMX_TILE__
    if (type != FP32) _tile_release();
#endif
}

/* writes rows [R, I] in a type as [R, groups] groups, of which those that are too many are 0, and the ``scales``
   [R] of int8 */
static void round_rows(long type, const float *rows, long R, long I, long groups, float *scales, char *to) {
    long whole = I / numbers_of_group(type);
    for (long r = 0; r < R; r++, rows += I, to += groups * GROUP) {
        memset(to + whole * GROUP, 0, (groups - whole) * GROUP);
        if (type == INT8) scales[r] = round_to_int8(rows, I, (uint8_t *)to);
        else if (type == BF16) round_to_bf16(rows, I, (uint16_t *)to);
        else memcpy(to, rows, I * sizeof *rows);
    }
}

/* the activation of x W^T + b [R, O] of rows [R, I]; ``rounded`` has the size of ``rounded_size``: the scales
   [R] of int8, then rows [R, groups] */
static void multiply_rows(const Matrix *matrix, const float *rows, long R, long activation,
                          float *output, float *rounded, int threads) {
    long I = matrix->I, type = matrix->type;
    const char *from = type == FP32 ? (const char *)rows : (const char *)(rounded + R);
    if (type != FP32) round_rows(type, rows, R, I, groups_of(type, I), rounded, (char *)from);
    Product product = {matrix, from, rounded, R, activation, output};
    share_work((matrix->O + BLOCK - 1) / BLOCK, threads, multiply_blocks, &product);
}

void EXPORTED(multiply)(const Matrix *matrix, const float *rows, long R, float *output, float *rounded,
              long threads) {
    int useful = threads_for(R * num_weights(matrix), threads);
    multiply_rows(matrix, rows, R, NONE, output, rounded, useful);
}

/* products of the rows of slots by the outputs in lists */
typedef struct {
    const Matrix *matrix;
    const char *weights; /* of each output, as ``unpack`` writes them */
    const Shortlists *lists;
    const char *rows; /* [S, K, groups] */
    const float *scales;
    long K, groups;
    float *output; /* [S, K * longest list], of which the first K * list are written */
} ListedProduct;

INLINE void multiply_list(long type, const ListedProduct *product, long slot) {
    const Matrix *matrix = product->matrix;
    const int64_t *list = product->lists->tokens[slot];
    long K = product->K, length = product->lists->lengths[slot], size = product->groups * GROUP;
    float *output = product->output + slot * K * product->lists->longest;
    for (long n = 0; n < length; n++) {
        const char *weights = product->weights + list[n] * size;
        for (long k = 0; k < K; k++) {
            const char *row = product->rows + (slot * K + k) * size;
            floats sums = ZERO;
            for (long i = 0; i < size; i += LANES * GROUP)
                sums = add_products(type, sums, load((const float *)(row + i)), weights + i);
            float found;
            if (type == INT8) {
                int32_t exact = (int32_t)(sum_of_integers((ints)sums) - matrix->sums[list[n]]);
                found = (float)exact * matrix->scales[list[n]] * product->scales[slot * K + k];
            } else found = sum_of(sums);
            output[k * length + n] = found + (matrix->bias ? matrix->bias[list[n]] : 0.f);
        }
    }
}

static void multiply_some_lists(const void *context, long first, long end, int thread) {
    const ListedProduct *product = context;
    (void)thread;
    for (long slot = first; slot < end; slot++)
        if (product->matrix->type == FP32) multiply_list(FP32, product, slot);
        else if (product->matrix->type == BF16) multiply_list(BF16, product, slot);
        else multiply_list(INT8, product, slot);
}

/* the products [K, list] of the rows [S, K, I] of S slots and the outputs in the list of each slot, for each slot
   behind K times the longest list of those before it; in int8 as ``multiply`` computes them, to the last bit.
   ``rounded`` has room for the scales [S, K] and rows of ``size_of_weights``. */
void EXPORTED(multiply_lists)(const Matrix *matrix, const char *weights, const Shortlists *lists, const float *rows,
                    long S, long K, float *output, float *rounded, long threads) {
    long R = S * K, groups = groups_of_vectors(matrix->type, matrix->I);
    char *to = (char *)(rounded + R);
    round_rows(matrix->type, rows, R, matrix->I, groups, rounded, to);
    ListedProduct product = {matrix, weights, lists, to, rounded, K, groups, output};
    int useful = threads_for(R * lists->longest * matrix->I, threads);
    share_work(S, useful, multiply_some_lists, &product);
}

/* residual sums ---------------------------------------------------------------------------------------- */

/* LayerNorm of a + b [R, D]; b may be NULL */
static void normalize(const Norm *norm, const float *a, const float *b, long R, long D, float *output) {
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
        float scale = 1.f / sqrtf((square + sum_of(squares)) / D + norm->epsilon);
        for (d = 0; d < D; d++) {
            float bias = norm->bias ? norm->bias[d] : 0.f;
            output[d] = (output[d] - mean) * scale * norm->weight[d] + bias;
        }
    }
}

/* weight i of an output of a matrix in fp32 or bf16 */
INLINE float weight_of(const Matrix *matrix, long o, long i) {
    long numbers = numbers_of_group(matrix->type), steps = groups_of(matrix->type, matrix->I);
    const char *group = group_of(matrix, steps, o, i / numbers);
    uint32_t bits;
    float number;
    memcpy(&bits, group, GROUP);
    if (matrix->type == BF16) bits = i % 2 ? bits & 0xffff0000 : bits << 16; /* x86 and ARM begin at the low byte */
    memcpy(&number, &bits, GROUP);
    return number;
}

/* the rows [R, D] of tokens [R] at a position */
static void embed(const Embedding *embedding, const int64_t *tokens, long R, int64_t position,
                  float *rows) {
    long D = embedding->D;
    const float *place = embedding->positions + position * D;
    for (long r = 0; r < R; r++) {
        float *row = rows + r * D;
        memcpy(row, place, D * sizeof(float));
        if (embedding->starts_with_zeros && position == 0) continue;
        if (embedding->vectors)
            for (long d = 0; d < D; d++) row[d] += embedding->scale * embedding->vectors[tokens[r] * D + d];
        else
            for (long d = 0; d < D; d++) row[d] += embedding->scale * weight_of(embedding->shared, tokens[r], d);
    }
    if (embedding->after.weight) normalize(&embedding->after, rows, NULL, R, D, rows);
}

/* returns the rows [R, D] that enter a sub-layer; with pre-norm they are ``normalized`` */
static const float *entering_rows(const Stack *stack, const Norm *norm, const float *rows, long R,
                                  float *normalized) {
    if (!stack->is_pre_norm) return rows;
    normalize(norm, rows, NULL, R, stack->D, normalized);
    return normalized;
}

/* adds the output of a sub-layer to rows [R, D]; with post-norm, normalizes the sum */
static void close_residual(const Stack *stack, const Norm *norm, const float *branch, long R,
                           float *rows) {
    if (!stack->is_pre_norm) normalize(norm, rows, branch, R, stack->D, rows);
    else
        for (long i = 0; i < R * stack->D; i++) rows[i] += branch[i];
}

/* attention -------------------------------------------------------------------------------------------- */

/* LANES numbers, of which those behind the first ``available`` mean nothing and are not read */
INLINE floats load_some(const float *from, long available) {
    if (available >= LANES) return load(from);
    float some[LANES] = {0.f};
    memcpy(some, from, available * sizeof(float));
    return load(some);
}

/* scores [QUERIES_AT_ONCE, room] of the entries from ``first`` to ``end`` by queries [W] and keys [W, E] */
static void score(const float *const *queries, const float *keys, long W, long E, long first, long end,
                  float *scores, long room) {
    for (long e = first; e < end; e += LANES) {
        floats sums[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
        for (long w = 0; w < W; w++) {
            floats key = load_some(keys + w * E + e, (W - w) * E - e);
            for (int k = 0; k < QUERIES_AT_ONCE; k++) sums[k] += queries[k][w] * key;
        }
        for (int k = 0; k < QUERIES_AT_ONCE; k++) store(scores + k * room + e - first, sums[k]);
    }
}

/* softmax of scores [used] times ``scale``; those before ``first``, those from E on, and those of which ``is_kept``
   is 0, count as -inf */
static void softmax(float *scores, const uint8_t *is_kept, long first, long E, long used, float scale) {
    long end = (used + LANES - 1) / LANES * LANES;
    for (long e = 0; e < first; e++) scores[e] = -INFINITY;
    for (long e = first; e < E; e++) scores[e] = is_kept && !is_kept[e] ? -INFINITY : scores[e] * scale;
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

/* sums of ``width`` columns of values [E, X], at most 2 * LANES, weighted by the scores of QUERIES_AT_ONCE
   queries, of which ``count`` get an output. Whatever E and ``width`` are, all is added up in the same way: a
   query's output must not depend on later entries, which have scores of 0. */
INLINE void weighted_sums(const float *scores, long room, const float *values, long E, long X, long width,
                          long stride, long count, float *output) {
    int is_double = width > LANES;
    floats low[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    floats high[QUERIES_AT_ONCE] = {ZERO, ZERO, ZERO, ZERO};
    for (long e = 0; e < E; e++) {
        floats first = load_some(values + e * X, width), second = is_double ? load(values + e * X + LANES) : ZERO;
        for (int k = 0; k < QUERIES_AT_ONCE; k++) {
            low[k] += scores[k * room + e] * first;
            if (is_double) high[k] += scores[k * room + e] * second;
        }
    }
    for (long k = 0; k < count; k++) {
        memcpy(output + k * stride, low + k, (width < LANES ? width : LANES) * sizeof(float));
        if (is_double) store(output + k * stride + LANES, high[k]);
    }
}

enum { ALL = 1 << 30 }; /* entries: more than there are */

/* what the queries of a head attend to; only the first ``used`` entries are read */
typedef struct {
    const float *keys, *values; /* [W, E], [E, X] */
    long W, X, E, used;
    const uint8_t *is_kept; /* [K, kept_room], which of the entries query k attends to; NULL: all */
    long kept_room;
    long back, ahead; /* query k attends to the entries from k - back to k + ahead only */
    float *weights;   /* [K, E], where the weights go; NULL if they are not wanted */
} Head;

/* softmax(Q K^T / sqrt(W)) V of one head: K queries [W] and outputs [X] with strides. ``scores`` have room for
   ``used`` + LANES numbers of each of QUERIES_AT_ONCE. */
static void attend_head(const Head *head, const float *queries, long stride, long K, float *scores,
                        float *output, long output_stride) {
    long W = head->W, X = head->X, E = head->E, room = head->used + LANES;
    for (long first = 0; first < K; first += QUERIES_AT_ONCE) {
        const float *rows[QUERIES_AT_ONCE]; /* the last query again where there are fewer */
        long count = K - first < QUERIES_AT_ONCE ? K - first : QUERIES_AT_ONCE;
        long begin = first > head->back ? first - head->back : 0;
        long end = first + count + head->ahead < head->used ? first + count + head->ahead : head->used;
        long used = end - begin; /* of the scores, which begin with that of entry ``begin`` */
        for (int k = 0; k < QUERIES_AT_ONCE; k++)
            rows[k] = queries + (first + (k < count ? k : count - 1)) * stride;
        score(rows, head->keys, W, E, begin, end, scores, room);
        for (int k = 0; k < count; k++) {
            const uint8_t *is_kept = head->is_kept ? head->is_kept + (first + k) * head->kept_room : NULL;
            long own_begin = first + k - head->back - begin, own_end = first + k + head->ahead + 1 - begin;
            softmax(scores + k * room, is_kept, own_begin > 0 ? own_begin : 0, own_end < used ? own_end : used,
                    used, 1.f / sqrtf((float)W));
        }
        for (long k = 0; k < count && head->weights; k++) {
            float *weights = head->weights + (first + k) * E;
            memset(weights, 0, E * sizeof(float));
            memcpy(weights + begin, scores + k * room, used * sizeof(float));
        }
        const float *values = head->values + begin * X;
        float *to = output + first * output_stride;
        long x = 0;
        for (; x + 2 * LANES <= X; x += 2 * LANES)
            weighted_sums(scores, room, values + x, used, X, 2 * LANES, output_stride, count, to + x);
        for (; x + LANES <= X; x += LANES)
            weighted_sums(scores, room, values + x, used, X, LANES, output_stride, count, to + x);
        if (x < X) weighted_sums(scores, room, values + x, used, X, X - x, output_stride, count, to + x);
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

/* writes the rows [R, H*(W+X)] of layer n, keys and then values, of sentences one after the other into the
   entries of each */
void EXPORTED(write_entries)(const Stack *stack, const float *rows, long n, const Entries *sentences, long B) {
    long H = stack->H, W = stack->W, X = stack->X, width = H * (W + X);
    for (long b = 0; b < B; b++) {
        long E = sentences[b].E;
        float *keys = sentences[b].of_layers + n * width * E;
        for (long e = 0; e < E; e++, rows += width) append(rows, rows + H * W, H, W, X, E, e, keys, keys + H * W * E);
    }
}

/* the memory of a thread for scores */
static float *own_scores(const Workspace *work, int thread) {
    return work->scores + thread * QUERIES_AT_ONCE * (work->E + LANES);
}

/* attention in layer n of a step; ``projected`` and ``attended`` of ``work`` have rows [B*K] */
typedef struct {
    const Stack *stack;
    const Step *step;
    const Workspace *work;
    long n;
} StepAttention;

/* attention of the hypotheses of some sentences to their past; ``projected`` [B*K, H*(2W+X)] have their newest
   entries, which are appended first. Writes ``attended`` [B*K, H*X]. */
static void attend_to_past(const void *context, long first, long end, int thread) {
    const StepAttention *own_attention = context;
    const Step *step = own_attention->step;
    const Stack *stack = own_attention->stack;
    const Workspace *work = own_attention->work;
    const Past *past = step->past;
    long H = stack->H, W = stack->W, X = stack->X, K = past->K, stride = H * (2 * W + X);
    for (long b = first; b < end; b++) {
        long s = step->slots[b], E = past->entries[s].E;
        float *keys = past->entries[s].of_layers + own_attention->n * H * (W + X) * E, *values = keys + H * W * E;
        const uint8_t *is_kept = past->is_past + s * K * past->E;
        const float *rows = work->projected + b * K * stride;
        float *attended = work->attended + b * K * H * X;
        for (long k = 0; k < K; k++) {
            const float *row = rows + k * stride;
            append(row + H * W, row + 2 * H * W, H, W, X, E, past->places[s * K + k], keys, values);
        }
        Head head = {keys, values, W, X, E, past->ends[s], is_kept, past->E, ALL, ALL, NULL};
        for (long h = 0; h < H; h++, head.keys += W * E, head.values += E * X)
            attend_head(&head, rows + h * W, stride, K, own_scores(work, thread), attended + h * X, H * X);
    }
}

/* attention of the hypotheses of some sentences to their source; ``projected`` are the queries [B*K, H*W] */
static void attend_to_memory(const void *context, long first, long end, int thread) {
    const StepAttention *own_attention = context;
    const Step *step = own_attention->step;
    const Stack *stack = own_attention->stack;
    const Workspace *work = own_attention->work;
    long H = stack->H, W = stack->W, X = stack->X, K = step->past->K;
    for (long b = first; b < end; b++) {
        const Entries *memory = step->memories + step->slots[b];
        long E = memory->E;
        const float *queries = work->projected + b * K * H * W;
        const float *keys = memory->of_layers + own_attention->n * H * (W + X) * E, *values = keys + H * W * E;
        float *attended = work->attended + b * K * H * X;
        Head head = {keys, values, W, X, E, E, NULL, 0, ALL, ALL, NULL};
        for (long h = 0; h < H; h++, head.keys += W * E, head.values += E * X)
            attend_head(&head, queries + h * W, H * W, K, own_scores(work, thread), attended + h * X, H * X);
    }
}

/* attention of K rows of a sentence to E entries */
typedef struct {
    const Stack *stack;
    const Workspace *work;
    const float *queries, *keys, *values; /* [K, stride], [H, W, E], [H, E, X] */
    float *attended;                      /* [K, H*X] */
    float *weights;                       /* [H, K, E]; NULL if they are not wanted */
    long stride, K, E, back, ahead;
} SentenceAttention;

static void attend_heads(const void *context, long first, long end, int thread) {
    const SentenceAttention *own = context;
    long H = own->stack->H, W = own->stack->W, X = own->stack->X, K = own->K, E = own->E;
    for (long h = first; h < end; h++) {
        float *weights = own->weights ? own->weights + h * K * E : NULL;
        Head head = {.keys = own->keys + h * W * E, .values = own->values + h * E * X, .W = W, .X = X, .E = E};
        head.used = E, head.back = own->back, head.ahead = own->ahead, head.weights = weights;
        attend_head(&head, own->queries + h * W, own->stride, K, own_scores(own->work, thread),
                    own->attended + h * X, H * X);
    }
}

/* where the weights [size] of sentence b in layer n go; NULL if they are not wanted */
static float *wanted_weights(const Weights *weights, long n, long b, long size) {
    return weights->places && weights->places[n] >= 0 ? weights->of_sentences[b] + weights->places[n] * size : NULL;
}

/* attention of the rows of each sentence to each other in layer n, from ``projected`` to ``attended`` */
static void attend_within(const Stack *stack, const Sentences *sentences, long n, const Workspace *work) {
    long H = stack->H, W = stack->W, X = stack->X, stride = H * (2 * W + X);
    for (long b = 0, row = 0; b < sentences->B; row += sentences->lengths[b++]) {
        const float *projected = work->projected + row * stride;
        long L = sentences->lengths[b];
        for (long l = 0; l < L; l++)
            append(projected + l * stride + H * W, projected + l * stride + 2 * H * W, H, W, X, L, l,
                   work->keys, work->values);
        float *attended = work->attended + row * H * X;
        float *weights = wanted_weights(&sentences->within, n, b, H * L * L);
        long window = stack->window ? stack->window : ALL, ahead = sentences->memories ? 0 : window;
        SentenceAttention own = {stack,    work,    projected, work->keys, work->values, attended,
                                 weights,  stride,  L,         L,          window, ahead};
        share_work(H, work->threads, attend_heads, &own);
    }
}

/* attention of the rows of each sentence to its memory in layer n; ``projected`` are the queries [R, H*W] */
static void attend_to_memories(const Stack *stack, const Sentences *sentences, long n, const Workspace *work) {
    long H = stack->H, W = stack->W, X = stack->X;
    for (long b = 0, row = 0; b < sentences->B; row += sentences->lengths[b++]) {
        const float *queries = work->projected + row * H * W;
        long K = sentences->lengths[b], E = sentences->memories[b].E;
        const float *keys = sentences->memories[b].of_layers + n * H * (W + X) * E, *values = keys + H * W * E;
        float *attended = work->attended + row * H * X;
        float *weights = wanted_weights(&sentences->to_memory, n, b, H * K * E);
        SentenceAttention own = {stack, work, queries, keys, values, attended, weights, H * W, K, E, ALL, ALL};
        share_work(H, work->threads, attend_heads, &own);
    }
}

/* recurrent units --------------------------------------------------------------------------------------- */

/* ``projected`` gets the candidates [R, D] of rows [R, D], and behind them what their forget gates are the sigmoid
   of */
static void begin_recurrence(const Stack *stack, const Layer *layer, const float *rows, long R,
                             const Workspace *work) {
    const float *from = entering_rows(stack, &layer->recurrence_norm, rows, R, work->branch);
    float *gates = work->projected + R * stack->D;
    multiply_rows(&layer->candidates, from, R, NONE, work->projected, work->rounded, work->threads);
    multiply_rows(&layer->forget_gates, from, R, NONE, gates, work->rounded, work->threads);
}

/* the state [D] of a row from the one before it, which is 0 if it is NULL, and the unit's output [D] */
static void recur(const float *candidates, const float *gates, const float *before, long D, float *state,
                  float *output) {
    for (long d = 0; d < D; d += LANES) {
        floats forget = 1.f / (1.f + exponential(-load_first(gates + d, D - d)));
        floats kept = before ? load_first(before + d, D - d) : ZERO;
        floats found = forget * kept + (1.f - forget) * load_first(candidates + d, D - d);
        store_first(state + d, D - d, found);
        store_first(output + d, D - d, blend(found < ZERO, ZERO, found));
    }
}

/* the recurrent unit of layer n for a step of R = B * K hypotheses, which have the states of their parents */
static void recur_step(const Stack *stack, const Step *step, long n, const Workspace *work, float *rows) {
    long D = stack->D, K = step->past->K, R = step->B * K;
    const Layer *layer = stack->layers + n;
    begin_recurrence(stack, layer, rows, R, work);
    for (long r = 0; r < R; r++) {
        float *state = step->past->entries[step->slots[r / K]].of_layers + (r % K * stack->N + n) * D;
        const float *candidates = work->projected + r * D;
        recur(candidates, candidates + R * D, state, D, state, work->branch + r * D);
    }
    close_residual(stack, &layer->recurrence_norm, work->branch, R, rows);
}

/* the recurrent unit of a layer for all rows of sentences; states take the place of candidates */
static void recur_within(const Stack *stack, const Layer *layer, const Sentences *sentences, const Workspace *work,
                         float *rows) {
    long D = stack->D, R = sentences->R;
    begin_recurrence(stack, layer, rows, R, work);
    for (long b = 0, row = 0; b < sentences->B; b++)
        for (long l = 0; l < sentences->lengths[b]; l++, row++) {
            float *state = work->projected + row * D;
            recur(state, state + R * D, l ? state - D : NULL, D, state, work->branch + row * D);
        }
    close_residual(stack, &layer->recurrence_norm, work->branch, R, rows);
}

/* layers ----------------------------------------------------------------------------------------------- */

/* ``products`` of a sub-layer's first matrix by the rows [R, D] that enter it */
static void begin_sublayer(const Stack *stack, const Norm *norm, const Matrix *matrix, const float *rows,
                           long R, long activation, const Workspace *work, float *products) {
    const float *from = entering_rows(stack, norm, rows, R, work->branch);
    multiply_rows(matrix, from, R, activation, products, work->rounded, work->threads);
}

/* rows [R, D] after a sub-layer whose last matrix multiplies ``from`` */
static void end_sublayer(const Stack *stack, const Norm *norm, const Matrix *matrix, const float *from,
                         long R, const Workspace *work, float *rows) {
    multiply_rows(matrix, from, R, NONE, work->branch, work->rounded, work->threads);
    close_residual(stack, norm, work->branch, R, rows);
}

static void feed_forward(const Stack *stack, const Layer *layer, long R, const Workspace *work,
                         float *rows) {
    const Norm *norm = &layer->feed_forward_norm;
    begin_sublayer(stack, norm, &layer->inner, rows, R, stack->activation, work, work->inside);
    end_sublayer(stack, norm, &layer->outer, work->inside, R, work, rows);
}

/* the rows [R, D], after the last layer, of the newest tokens of R = B * K hypotheses; slots have up to E
   entries. ``memory`` has the size of ``workspace_size``. */
void EXPORTED(make_step)(const Stack *stack, const Embedding *embedding, const Step *step, long E, float *rows,
               float *memory) {
    long K = step->past->K, R = step->B * K;
    Workspace work;
    divide(stack, R, E, memory, &work);
    for (long b = 0; b < step->B; b++) {
        long s = step->slots[b];
        embed(embedding, step->tokens + s * K, K, step->positions[s], rows + b * K * stack->D);
    }
    for (long n = 0; n < stack->N; n++) {
        const Layer *layer = stack->layers + n;
        const Norm *norm = &layer->self_attention_norm;
        StepAttention attention = {stack, step, &work, n};
        if (layer->candidates.O) recur_step(stack, step, n, &work, rows);
        else {
            begin_sublayer(stack, norm, &layer->queries_keys_values, rows, R, NONE, &work, work.projected);
            share_work(step->B, work.threads, attend_to_past, &attention);
            end_sublayer(stack, norm, &layer->self_attention_output, work.attended, R, &work, rows);
        }
        norm = &layer->memory_attention_norm;
        begin_sublayer(stack, norm, &layer->memory_queries, rows, R, NONE, &work, work.projected);
        share_work(step->B, work.threads, attend_to_memory, &attention);
        end_sublayer(stack, norm, &layer->memory_output, work.attended, R, &work, rows);
        feed_forward(stack, layer, R, &work, rows);
    }
    if (stack->last.weight) normalize(&stack->last, rows, NULL, R, stack->D, rows);
}

/* the rows [R, D] of ``sentences`` after the layers of an encoder or a decoder; ``memory`` has the size of
   ``workspace_size`` */
void EXPORTED(compute_rows)(const Stack *stack, const Embedding *embedding, const Sentences *sentences, float *rows,
                  float *memory) {
    long R = sentences->R;
    const int64_t *tokens = sentences->tokens;
    for (long b = 0, row = 0; b < sentences->B; b++)
        for (long l = 0; l < sentences->lengths[b]; l++, row++)
            embed(embedding, tokens + row, 1, l, rows + row * stack->D);
    Workspace work;
    divide(stack, R, sentences->E, memory, &work);
    for (long n = 0; n < stack->N; n++) {
        const Layer *layer = stack->layers + n;
        const Norm *norm = &layer->self_attention_norm;
        if (layer->candidates.O) recur_within(stack, layer, sentences, &work, rows);
        else {
            begin_sublayer(stack, norm, &layer->queries_keys_values, rows, R, NONE, &work, work.projected);
            attend_within(stack, sentences, n, &work);
            end_sublayer(stack, norm, &layer->self_attention_output, work.attended, R, &work, rows);
        }
        if (sentences->memories) {
            norm = &layer->memory_attention_norm;
            begin_sublayer(stack, norm, &layer->memory_queries, rows, R, NONE, &work, work.projected);
            attend_to_memories(stack, sentences, n, &work);
            end_sublayer(stack, norm, &layer->memory_output, work.attended, R, &work, rows);
        }
        feed_forward(stack, layer, R, &work, rows);
    }
    if (stack->last.weight) normalize(&stack->last, rows, NULL, R, stack->D, rows);
}

/* the log-probabilities of tokens by their logits */
typedef struct {
    const float *logits;   /* [R, V] */
    const int64_t *tokens; /* [R] */
    float *scores;         /* [R] */
    long V;
} Scoring;

static void score_rows(const void *context, long first, long end, int thread) {
    const Scoring *own = context;
    const float *logits = own->logits + first * own->V;
    (void)thread;
    EXPORTED(log_sum_exponentials)(logits, end - first, own->V, own->scores + first);
    for (long r = first; r < end; r++, logits += own->V) own->scores[r] = logits[own->tokens[r]] - own->scores[r];
}

/* the log-probabilities [R] of ``tokens`` [R] by a decoder's rows [R, D]. ``logits`` have room for those of
   ``most`` rows, which are computed together, and ``rounded`` for that many rows. */
void EXPORTED(score_tokens)(const Matrix *output, const float *rows, const int64_t *tokens, long R, long most,
                  float *logits, float *rounded, long threads, float *scores) {
    for (long first = 0, count; first < R; first += count) {
        count = R - first < most ? R - first : most;
        int useful = threads_for(count * num_weights(output), threads);
        multiply_rows(output, rows + first * output->I, count, NONE, logits, rounded, useful);
        Scoring scoring = {logits, tokens + first, scores + first, output->O};
        share_work(count, useful, score_rows, &scoring);
    }
}
