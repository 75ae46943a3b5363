/* Vectors of the CPU's width, in fp32. The vector types are an extension of GCC 9 and Clang. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* GCC computes vectors that are longer than a register one number at a time. */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define INLINE static inline __attribute__((always_inline))
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t uints __attribute__((vector_size(4 * LANES), aligned(4)));

static const floats ZERO;
static const float LOWEST = -87.f, HIGHEST = 88.f; /* between them e^x is a normal number */
static const float ROUNDING = 12582912.f;          /* 1.5 * 2^23: x + this - this is a whole number */

INLINE floats load(const float *from) { return *(const floats *)from; }
INLINE void store(float *to, floats values) { *(floats *)to = values; }
INLINE floats blend(ints where, floats a, floats b) {
    return (floats)((where & (ints)a) | (~where & (ints)b));
}
INLINE floats larger(floats a, floats b) { return blend(a > b, a, b); } /* NaN if b is */
INLINE floats rounded(floats x) { return (x + ROUNDING) - ROUNDING; }

/* the first n numbers, if there are not LANES; the others are -inf */
INLINE floats load_first(const float *from, long n) {
    if (n >= LANES) return load(from);
    float some[LANES];
    for (long i = 0; i < LANES; i++) some[i] = i < n ? from[i] : -INFINITY;
    return load(some);
}

INLINE void store_first(float *to, long n, floats values) {
    if (n >= LANES) store(to, values);
    else memcpy(to, &values, n * sizeof *to);
}

INLINE int any(ints where) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int i = 0; i < LANES; i++) found |= where[i];
    return found;
}

INLINE float sum_of(floats x) {
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

INLINE uint32_t sum_of_integers(ints x) {
    uint32_t sum = 0; /* modulo 2^32 */
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < LANES; i++) sum += (uint32_t)x[i];
    return sum;
}

INLINE float largest_of(floats x) {
    float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < LANES; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* the largest of n numbers */
INLINE float largest_in(const float *x, long n) {
    floats largest = ZERO - INFINITY;
    for (long i = 0; i < n; i += LANES) largest = larger(largest, load_first(x + i, n - i));
    return largest_of(largest);
}

/* 2^n e^r with n = x / ln 2 rounded, and a polynomial for e^r; relative error 1e-7; 0 below LOWEST,
   infinity above HIGHEST */
INLINE floats exponential(floats x) {
    floats y = larger(ZERO + LOWEST, x);
    y = blend(y > HIGHEST, ZERO + HIGHEST, y);
    floats n = rounded(y * 1.44269504f);
    floats r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    floats power = (floats)((__builtin_convertvector(n, ints) + 127) << 23);
    floats found = blend(x > HIGHEST, ZERO + INFINITY, (p * r * r + r + 1.f) * power);
    return blend(x < LOWEST, ZERO, found);
}

/* The error function by Norbert Juffa's polynomials: an odd one, and from 0.93 on 1 - e^p; the largest error is 1.02
   units in the last place */
INLINE floats error_function(floats x) {
    floats t = larger(-x, x), square = x * x;
    floats p = t * -1.72853470e-5f + 3.83197126e-4f;
    p = p * square + (t * -3.88396438e-3f + 2.42546219e-2f);
    p = p * t - 1.06777877e-1f;
    p = p * t - 6.34846687e-1f;
    p = p * t - 1.28717512e-1f;
    p = p * t - t;
    floats above = 1.f - exponential(p);
    floats q = square * -5.96761703e-4f + 4.99119423e-3f;
    q = q * square - 2.67681349e-2f;
    q = q * square + 1.12819925e-1f;
    q = q * square - 3.76125336e-1f;
    q = q * square + 1.28379166e-1f;
    return blend(t > 0.927734375f, blend(x < 0.f, -above, above), q * x + x);
}
