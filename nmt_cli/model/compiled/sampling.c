/* Draws tokens by their logits. A row's token depends on that row and its number only, and not on
   the other rows. Weights are in fp32, sums of them in double precision.

   Legend: R rows, V vocabulary, N entries. */

#include <float.h>

#include "level.h"
#include "vectors.h"

#define BLOCK 64 /* as in compiled_logits.py; a multiple of all LANES */

/* how tokens are drawn; as ``Sampling`` */
typedef struct {
    float temperature;
    long top_k; /* at most V; 0: all */
    double top_p;
} Sampling;

/* memory for one row */
typedef struct {
    uint64_t *entries; /* V */
    float *weights;    /* V, filled up to whole blocks */
    double *sums;      /* of the weights of each block */
} Scratch;

/* a token as a number: that of the larger logit is larger, of equal ones that of the lower token */
INLINE uint64_t entry_of(float logit, long token) {
    uint32_t bits;
    logit += 0.f; /* -0 becomes 0 */
    memcpy(&bits, &logit, sizeof bits);
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)token);
}

INLINE long token_of(uint64_t entry) { return 0xffffffffu - (uint32_t)entry; }

INLINE void swap(uint64_t *a, uint64_t *b) {
    uint64_t kept = *a;
    *a = *b, *b = kept;
}

/* moves the best of N entries to the front: the fewest whose weights together reach ``wanted``, the least of
   them last, or all. Without ``weights`` each counts as 1. Returns their number, and adds their weights to
   ``mass``. This is quickselect: entries are not sorted. */
static long select_best(uint64_t *entries, long N, const float *weights, double wanted, double *mass) {
    long begin = 0, end = N; /* those before begin are taken, those from end on are not */
    while (begin < end) {
        uint64_t *last = entries + end - 1, *middle = entries + begin + (end - begin) / 2;
        if (*middle > entries[begin]) swap(middle, entries + begin);
        if (*last > entries[begin]) swap(last, entries + begin);
        if (*middle > *last) swap(middle, last); /* the median of the three is the last now */
        long place = begin;
        for (long i = begin; i < end - 1; i++) { /* without a branch, which would be mispredicted */
            int is_better = entries[i] > *last;
            swap(entries + i, entries + place);
            place += is_better;
        }
        swap(last, entries + place);
        double sum = *mass;
        for (long i = begin; i < place; i++) sum += weights ? weights[token_of(entries[i])] : 1.;
        if (sum >= wanted) {
            end = place;
            continue;
        }
        *mass = sum + (weights ? weights[token_of(entries[place])] : 1.);
        begin = place + 1;
        if (*mass >= wanted) break;
    }
    return begin;
}

/* writes the entries of all logits that are so large at least; returns their number */
static long collect(const float *logits, long V, float least, uint64_t *entries) {
    long N = 0;
    least = least > -FLT_MAX ? least : -FLT_MAX; /* -inf is never drawn */
    for (long begin = 0; begin < V; begin += LANES) {
        if (!any(load_first(logits + begin, V - begin) >= least)) continue;
        for (long v = begin; v < begin + LANES && v < V; v++)
            if (logits[v] >= least) entries[N++] = entry_of(logits[v], v);
    }
    return N;
}

/* a logit that at least k entries of a row have or exceed: the k-th of the largest of each block, or -inf if
   there are fewer */
static float least_of_best(const float *logits, long V, long k, uint64_t *entries) {
    long N = (V + BLOCK - 1) / BLOCK;
    double number = 0.;
    if (k > N) return -INFINITY;
    for (long b = 0, v = 0; b < N; b++, v += BLOCK)
        entries[b] = entry_of(largest_in(logits + v, V - v < BLOCK ? V - v : BLOCK), v);
    long v = token_of(entries[select_best(entries, N, NULL, k, &number) - 1]);
    return largest_in(logits + v, V - v < BLOCK ? V - v : BLOCK);
}

/* writes the weights of a row, filled up with 0, and their sums; returns the sum of all, which is NaN if a
   logit is, or if all are -inf */
static double weigh(const float *logits, long V, float most, float temperature, Scratch of) {
    double total = 0.;
    for (long v = 0, b = 0; v < V; total += of.sums[b++]) {
        floats sum = ZERO;
        for (long end = v + BLOCK; v < end; v += LANES) {
            floats some = v < V ? load_first(logits + v, V - v) : ZERO - INFINITY;
            floats weight = exponential((some - most) / temperature);
            store(of.weights + v, weight);
            sum += weight;
        }
        of.sums[b] = sum_of(sum);
    }
    return total;
}

/* writes the weights of N entries only, and returns their sum */
static double weigh_some(const float *logits, long N, float most, float temperature, Scratch of) {
    double total = 0.;
    for (long n = 0; n < N; n++) {
        long token = token_of(of.entries[n]);
        total += of.weights[token] = exponential(ZERO + (logits[token] - most) / temperature)[0];
    }
    return total;
}

/* the first token where the sum of the weights so far exceeds ``wanted``, or the last one with a weight */
static long draw_from_all(long V, double wanted, Scratch of) {
    double sum = 0.;
    long block = 0, token = 0;
    while ((block + 1) * BLOCK < V && sum + of.sums[block] <= wanted) sum += of.sums[block++];
    for (long v = block * BLOCK; v < (block + 1) * BLOCK && sum <= wanted; v++) {
        sum += of.weights[v];
        token = of.weights[v] > 0.f ? v : token;
    }
    return token;
}

static long draw_one(const float *logits, long V, const Sampling *how, double uniform, Scratch of) {
    float most = largest_in(logits, V);
    double total, mass = 0., sum = 0.;
    long N, k = how->top_k;
    if (k) {
        N = collect(logits, V, least_of_best(logits, V, k, of.entries), of.entries);
        if (N > k) N = select_best(of.entries, N, NULL, k, &sum);
        total = weigh_some(logits, N, most, how->temperature, of);
    } else {
        total = weigh(logits, V, most, how->temperature, of);
        if (how->top_p == 1.) return draw_from_all(V, uniform * total, of);
        /* those of less weight have together less than what is outside of the nucleus */
        double least = 0.99 * (1. - how->top_p) * total / V;
        N = collect(logits, V, most + how->temperature * log(least), of.entries);
    }
    N = select_best(of.entries, N, of.weights, how->top_p * total, &mass);
    sum = 0.;
    N = select_best(of.entries, N, of.weights, nextafter(uniform * mass, INFINITY), &sum);
    return N ? token_of(of.entries[N - 1]) : 0;
}

/* draws a token for each row [R, V] of logits by its number in [0, 1): the first where the sum of the weights
   so far exceeds this share of all; with top_k or top_p below 1 in the order of the logits. If a row has NaN or
   -inf only, any. */
void EXPORTED(draw)(const float *logits, long R, long V, const Sampling *how, const double *uniforms,
          uint64_t *entries, double *sums, float *weights, int64_t *tokens) {
    Scratch of = {entries, weights, sums};
    for (long r = 0; r < R; r++, logits += V) tokens[r] = draw_one(logits, V, how, uniforms[r], of);
}
