/* What logits.c offers to other sources, and what they have in common. */

#include <stdint.h>

#include "level.h"

/* the only tokens that may follow the hypotheses of some slots */
typedef struct {
    const int64_t *const *tokens;  /* of each slot, ascending */
    const int64_t *lengths, *ends; /* how many they are, and which of them is </s> */
    long longest;                  /* of the lengths */
} Shortlists;

void EXPORTED(log_sum_exponentials)(const float *logits, long R, long V, float *sums);
void EXPORTED(best_continuations)(const float *logits, const float *normalizers, const float *scores, long S,
                        long K, long V, long C, float *totals, int64_t *parents, int64_t *tokens,
                        float *scratch);
