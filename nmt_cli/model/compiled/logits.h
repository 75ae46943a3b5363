/* What logits.c offers to other sources. */

#include <stdint.h>

#include "level.h"

void EXPORTED(log_sum_exponentials)(const float *logits, long R, long V, float *sums);
void EXPORTED(best_continuations)(const float *logits, const float *normalizers, const float *scores, long S,
                        long K, long V, long C, float *totals, int64_t *parents, int64_t *tokens,
                        float *scratch);
