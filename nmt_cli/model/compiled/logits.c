/* What the search does with logits, in one pass over memory each, in fp32.

   A row's result depends on that row only. NaN stays NaN.

   Legend: R rows, V vocabulary, S slots, K beam, C candidates of a slot. */

#include "logits.h"
#include "vectors.h"

#define SUMMED_AT_ONCE 4096 /* numbers in fp32; their sums are added in double precision */
#define WINDOW (4 * LANES)  /* of logits */

/* the logarithm [R] of the sum of the exponentials of each row [R, V] */
void EXPORTED(log_sum_exponentials)(const float *logits, long R, long V, float *sums) {
    for (long r = 0; r < R; r++, logits += V) {
        float most = largest_in(logits, V);
        double sum = 0.;
        long v = 0;
        while (v + 2 * LANES <= V) {
            floats even = ZERO, odd = ZERO; /* no addition waits for the one before */
            for (long end = v + SUMMED_AT_ONCE; v < end && v + 2 * LANES <= V; v += 2 * LANES) {
                even += exponential(load(logits + v) - most);
                odd += exponential(load(logits + v + LANES) - most);
            }
            sum += sum_of(even + odd);
        }
        for (; v < V; v += LANES) sum += sum_of(exponential(load_first(logits + v, V - v) - most));
        sums[r] = most + (float)log(sum);
    }
}

/* continuations, best first: a total is a logit minus the normalizer plus the score */
typedef struct {
    float *totals;
    int64_t *parents, *tokens;
    float *logits;
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
   -inf. ``scratch`` has room for C numbers. */
void EXPORTED(best_continuations)(const float *logits, const float *normalizers, const float *scores, long S,
                        long K, long V, long C, float *totals, int64_t *parents, int64_t *tokens, float *scratch) {
    candidates best = {totals, parents, tokens, scratch};
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

/* log(1 + x) of numbers from 0 to 1, as 2 artanh(x / (2 + x)); error 1e-8 */
INLINE floats log_of_1_plus(floats x) {
    floats s = x / (x + 2.f), t = s * s;
    floats p = t * (1.f / 13) + 1.f / 11;
    p = p * t + 1.f / 9;
    p = p * t + 1.f / 7;
    p = p * t + 1.f / 5;
    p = p * t + 1.f / 3;
    return 2.f * s * (p * t + 1.f);
}

/* makes log-probabilities of logits [R, V] with their ``normalizers`` [R], and adds to the probabilities those
   of others; no probability is too small for a number in fp32 */
void EXPORTED(add_probabilities)(float *logits, const float *normalizers, const float *others,
                       const float *normalizers_of_others, long R, long V) {
    for (long r = 0; r < R; r++, logits += V, others += V)
        for (long v = 0; v < V; v += LANES) {
            floats a = load_first(logits + v, V - v) - normalizers[r];
            floats b = load_first(others + v, V - v) - normalizers_of_others[r];
            floats most = larger(a, b), least = blend(a > b, b, a);
            floats difference = blend(a == b, ZERO, least - most); /* also of -inf and -inf */
            store_first(logits + v, V - v, most + log_of_1_plus(exponential(difference)));
        }
}
