/* What the search does with logits, in one pass over memory each, in fp32.

   A row's result depends on that row only. NaN stays NaN.

   Legend: R rows, V vocabulary, S slots, K beam, C candidates of a slot. */

#include "logits.h"
#include "vectors.h"

#define MOST_CANDIDATES 256 /* as in kernels.py */
#define SUMMED_AT_ONCE 4096 /* numbers in fp32; their sums are added in double precision */
#define WINDOW (4 * LANES)  /* of logits */

static int any(ints where) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int i = 0; i < LANES; i++) found |= where[i];
    return found;
}

/* the exponentials of n numbers, at most LANES, minus ``most``; the others are 0 */
INLINE floats exponentials(const float *x, long n, float most) {
    float some[LANES];
    for (long i = 0; i < LANES; i++) some[i] = i < n ? x[i] - most : -INFINITY;
    return exponential(load(some));
}

/* the logarithm [R] of the sum of the exponentials of each row [R, V] */
void EXPORTED(log_sum_exponentials)(const float *logits, long R, long V, float *sums) {
    for (long r = 0; r < R; r++, logits += V) {
        floats largest = ZERO - INFINITY;
        long v = 0;
        for (; v + LANES <= V; v += LANES) largest = larger(largest, load(logits + v));
        float most = largest_of(largest);
        for (; v < V; v++) most = logits[v] > most ? logits[v] : most;
        double sum = 0.;
        for (v = 0; v + 2 * LANES <= V;) {
            floats even = ZERO, odd = ZERO; /* no addition waits for the one before */
            for (long end = v + SUMMED_AT_ONCE; v < end && v + 2 * LANES <= V; v += 2 * LANES) {
                even += exponential(load(logits + v) - most);
                odd += exponential(load(logits + v + LANES) - most);
            }
            sum += sum_of(even + odd);
        }
        for (; v < V; v += LANES) sum += sum_of(exponentials(logits + v, V - v, most));
        sums[r] = most + (float)log(sum);
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
   better, then the larger logit, then the earlier token. Where there are fewer than C, the total is
   -inf. */
void EXPORTED(best_continuations)(const float *logits, const float *normalizers, const float *scores, long S,
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
