/* Compares products by matrices in fp32 and int8 with sums in double precision. Compiled with a LEVEL, and with
   the folder of layers.c. */

#include "layers.c"

#include <stdio.h>
#include <stdlib.h>

static float chance(void) { return 2.f * (float)rand() / (float)RAND_MAX - 1.f; }

/* the sum of the products of a row of weights [I] and the rounded row r of ``rows`` */
static double expected(long type, const char *weight, const float *rows, const float *rounded, long R, long I,
                       long o, long r) {
    double sum = 0.;
    const uint8_t *integers = (const uint8_t *)(rounded + R) + r * groups_of(INT8, I) * GROUP;
    for (long i = 0; i < I; i++)
        if (type == INT8) sum += ((int)integers[i] - 128) * (double)((const int8_t *)weight)[o * I + i];
        else sum += rows[r * I + i] * (double)((const float *)weight)[o * I + i];
    return type == INT8 ? sum * rounded[r] : sum;
}

static int differs(long type, long R, long I, long O) {
    long size = type == INT8 ? 1 : 4, wrong = 0;
    char *weight = malloc(O * I * size), *blocks = malloc(EXPORTED(size_of_blocks)(type, I, O));
    float *rows = malloc(R * I * 4), *output = malloc(R * O * 4);
    float *rounded = calloc(EXPORTED(rounded_size)(R, I), 4), *scales = malloc(O * 4), *bias = malloc(O * 4);
    uint32_t *sums = calloc(O, 4);
    for (long n = 0; n < O * I; n++)
        if (type == INT8) ((int8_t *)weight)[n] = (int8_t)(rand() % 255 - 127);
        else ((float *)weight)[n] = chance();
    for (long n = 0; n < R * I; n++) rows[n] = chance();
    for (long o = 0; o < O; o++) bias[o] = chance(), scales[o] = .001f * (1.f + chance());
    EXPORTED(pack)(weight, type, I, O, blocks, sums);
    Matrix matrix = {blocks, bias, scales, sums, type, I, O};
    EXPORTED(multiply)(&matrix, rows, R, output, rounded, 3);
    for (long r = 0; r < R; r++)
        for (long o = 0; o < O; o++) {
            double sum = expected(type, weight, rows, rounded, R, I, o, r);
            double right = (type == INT8 ? sum * scales[o] : sum) + bias[o];
            wrong += !(fabs(output[r * O + o] - right) < 1e-5 * (1. + sqrt((double)I)));
        }
    if (wrong) printf("type %ld, %ld x %ld x %ld: %ld of %ld differ\n", type, R, I, O, wrong, R * O);
    free(weight), free(blocks), free(rows), free(output), free(rounded), free(scales), free(bias), free(sums);
    return wrong != 0;
}

int main(void) {
    int found = 0;
    long sizes[] = {1, 2, 3, 4, 7, 16, 33, 100}, large[] = {64, 256, 2048};
    for (int type = FP32; type <= INT8; type += INT8 - FP32)
        for (int r = 0; r < 8; r++)
            for (int o = 0; o < 8; o++) {
                for (int i = 0; i < 8; i++) found |= differs(type, sizes[r], sizes[i], sizes[o]);
                found |= differs(type, sizes[r], large[o % 3], sizes[o]);
            }
    found |= differs(FP32, 40, 512, 2048) | differs(INT8, 40, 512, 2048); /* several threads */
    return found;
}
