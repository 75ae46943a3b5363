/* Compares products by matrices in fp32 and int8, attention, and log-probabilities with sums in double precision.
   Compiled with a LEVEL, and with the folder of layers.c. */

#include "layers.c"

#include <stdio.h>
#include <stdlib.h>

static int are_extreme; /* random numbers are -1 or 1 */

static float chance(void) {
    float number = 2.f * (float)rand() / (float)RAND_MAX - 1.f;
    return are_extreme ? copysignf(1.f, number) : number;
}

/* the product of row r and the weights [I] of an output; in int8, of the rounded row and rounded weights */
static double expected(long type, const float *weights, const float *rows, const float *rounded, long R, long I,
                       long r) {
    double sum = 0.;
    float most = 0.f;
    const uint8_t *integers = (const uint8_t *)(rounded + R) + r * groups_of(INT8, I) * GROUP;
    for (long i = 0; i < I; i++) most = most > fabsf(weights[i]) ? most : fabsf(weights[i]);
    float scale = most / 127.f, inverse = 1.f / scale;
    for (long i = 0; i < I; i++)
        if (type == INT8) sum += (int8_t)(integers[i] - OFFSET) * (double)rintf(weights[i] * inverse);
        else sum += rows[r * I + i] * (double)weights[i];
    return type == INT8 ? sum * rounded[r] * scale : sum;
}

/* how many of the products of two rows of each slot and every third output are not those in ``all`` [R, O] */
static long lists_differ(const Matrix *matrix, const float *rows, long R, const float *all) {
    long wrong = 0, I = matrix->I, O = matrix->O, S = R / 2, longest = (O + 2) / 3;
    char *weights = calloc(O, EXPORTED(size_of_weights)(matrix->type, I));
    float *listed = malloc(R * longest * 4 + 4), *rounded = malloc(R * (4 + EXPORTED(size_of_weights)(matrix->type, I)) + 4);
    int64_t *list = malloc(longest * 8), *lengths = malloc(S * 8 + 8);
    const int64_t **lists = malloc(S * sizeof *lists + 8);
    for (long n = 0; n < longest; n++) list[n] = 3 * n;
    for (long s = 0; s < S; s++) lists[s] = list, lengths[s] = s % 2 ? longest : 1;
    Shortlists given = {lists, lengths, NULL, longest};
    EXPORTED(unpack)(matrix, weights);
    EXPORTED(multiply_lists)(matrix, weights, &given, rows, S, 2, listed, rounded, 3);
    for (long s = 0; s < S; s++)
        for (long k = 0; k < 2; k++)
            for (long n = 0; n < lengths[s]; n++) {
                float found = listed[s * 2 * longest + k * lengths[s] + n], right = all[(2 * s + k) * O + 3 * n];
                wrong += matrix->type == INT8 ? found != right : !(fabsf(found - right) < 1e-5 * (1. + sqrt((double)I)));
            }
    free(weights), free(listed), free(rounded), free(list), free(lengths), free(lists);
    return wrong;
}

static int differs(long type, long R, long I, long O) {
    long wrong = 0;
    char *blocks = calloc(EXPORTED(size_of_blocks)(type, I, O), 1);
    float *weight = malloc(O * I * 4), *rows = malloc(R * I * 4), *output = malloc(R * O * 4);
    float *rounded = calloc(EXPORTED(rounded_size)(R, I), 4), *scales = malloc(O * 4), *bias = malloc(O * 4);
    uint32_t *sums = calloc(O, 4);
    for (long n = 0; n < O * I; n++) weight[n] = chance();
    for (long n = 0; n < R * I; n++) rows[n] = chance();
    for (long o = 0; o < O; o++) bias[o] = chance();
    EXPORTED(pack)(weight, type, I, O, blocks, scales, sums);
    Matrix matrix = {blocks, bias, scales, sums, type, I, O};
    EXPORTED(multiply)(&matrix, rows, R, output, rounded, 3);
    for (long r = 0; r < R; r++)
        for (long o = 0; o < O; o++) {
            double right = expected(type, weight + o * I, rows, rounded, R, I, r) + bias[o];
            wrong += !(fabs(output[r * O + o] - right) < 1e-5 * (1. + sqrt((double)I)));
        }
    wrong += lists_differ(&matrix, rows, R, output);
    if (wrong) printf("type %ld, %ld x %ld x %ld: %ld of %ld differ\n", type, R, I, O, wrong, R * O);
    free(weight), free(blocks), free(rows), free(output), free(rounded), free(scales), free(bias), free(sums);
    return wrong != 0;
}

static float *chances(long count) {
    float *found = malloc(count * sizeof(float));
    for (long n = 0; n < count; n++) found[n] = chance();
    return found;
}

/* attention of K queries of one head to E entries, of which query k sees those from k - back to k + ahead */
static int attention_differs(long K, long E, long W, long X, long back, long ahead) {
    float *queries = chances(K * W), *keys = chances(W * E), *values = chances(E * X);
    float *scores = malloc(QUERIES_AT_ONCE * (E + LANES) * sizeof(float));
    float *output = malloc(K * X * sizeof(float)), *weights = malloc(K * E * sizeof(float));
    Head head = {.keys = keys, .values = values, .W = W, .X = X, .E = E, .used = E};
    head.back = back, head.ahead = ahead, head.weights = weights;
    attend_head(&head, queries, W, K, scores, output, X);
    long wrong = 0;
    for (long k = 0; k < K; k++) {
        double right[E], total = 0.;
        for (long e = 0; e < E; e++) {
            double product = 0.;
            for (long w = 0; w < W; w++) product += (double)queries[k * W + w] * keys[w * E + e];
            total += right[e] = e < k - back || e > k + ahead ? 0. : exp(product / sqrt((double)W));
        }
        for (long e = 0; e < E; e++) wrong += !(fabs(weights[k * E + e] - right[e] / total) < 1e-6);
        for (long x = 0; x < X; x++) {
            double sum = 0.;
            for (long e = 0; e < E; e++) sum += right[e] / total * values[e * X + x];
            wrong += !(fabs(output[k * X + x] - sum) < 1e-5);
        }
    }
    if (wrong) printf("attention of %ld to %ld, widths %ld and %ld: %ld differ\n", K, E, W, X, wrong);
    free(queries), free(keys), free(values), free(scores), free(output), free(weights);
    return wrong != 0;
}

/* log-probabilities of R tokens, of which ``most`` are computed together */
static int scores_differ(long R, long I, long V, long most) {
    float *weight = chances(V * I), *rows = chances(R * I), *logits = malloc(most * V * sizeof(float));
    float *found = malloc(R * sizeof(float));
    char *blocks = calloc(EXPORTED(size_of_blocks)(FP32, I, V), 1);
    int64_t tokens[R];
    for (long r = 0; r < R; r++) tokens[r] = rand() % V;
    EXPORTED(pack)(weight, FP32, I, V, blocks, NULL, NULL);
    Matrix matrix = {blocks, NULL, NULL, NULL, FP32, I, V};
    EXPORTED(score_tokens)(&matrix, rows, tokens, R, most, logits, NULL, 3, found);
    long wrong = 0;
    for (long r = 0; r < R; r++) {
        double total = 0., own = 0.;
        for (long v = 0; v < V; v++) {
            double logit = 0.;
            for (long i = 0; i < I; i++) logit += (double)weight[v * I + i] * rows[r * I + i];
            total += exp(logit);
            if (v == tokens[r]) own = logit;
        }
        wrong += !(fabs(found[r] - (own - log(total))) < 1e-4);
    }
    if (wrong) printf("log-probabilities of %ld of %ld tokens: %ld differ\n", R, V, wrong);
    free(weight), free(rows), free(logits), free(found), free(blocks);
    return wrong != 0;
}

int main(void) {
    int found = 0;
    long windows[][2] = {{ALL, ALL}, {ALL, 0}, {2, 2}, {3, 0}};
    for (int w = 0; w < 4; w++)
        for (long K = 1; K < 12; K += 2) {
            long back = windows[w][0], ahead = windows[w][1];
            found |= attention_differs(K, K, 3, 9, back, ahead) | attention_differs(K, K, 16, 64, back, ahead);
            found |= attention_differs(K, 37, 8, 33, back, ahead);
        }
    found |= attention_differs(300, 300, 64, 64, ALL, 0);
    found |= scores_differ(1, 7, 1, 1) | scores_differ(9, 20, 37, 4) | scores_differ(40, 64, 8000, 16);
    long sizes[] = {1, 2, 3, 4, 7, 16, 33, 100}, large[] = {64, 256, 2048};
    for (int type = FP32; type <= INT8; type += INT8 - FP32)
        for (int r = 0; r < 8; r++)
            for (int o = 0; o < 8; o++) {
                for (int i = 0; i < 8; i++) found |= differs(type, sizes[r], sizes[i], sizes[o]);
                found |= differs(type, sizes[r], large[o % 3], sizes[o]);
            }
    found |= differs(FP32, 40, 512, 2048) | differs(INT8, 40, 512, 2048); /* several threads */
    are_extreme = 1;
    found |= differs(INT8, 16, 100, 100);
    return found;
}
