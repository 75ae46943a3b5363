/* Compares the functions of vectors with those of double precision, for one of so many numbers in fp32: the argument.
   With 1 it compares all of them. Prints the largest errors. */

#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_UNITS 2. /* in the last place */

static float number_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static double units(float found, double exact) {
    int power;
    frexp(exact, &power);
    return fabs(found - exact) / ldexp(1., (power < -125 ? -125 : power) - 24);
}

int main(int count, char **arguments) {
    uint64_t step = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
    double of_erf = 0., of_exp = 0.;
    for (uint64_t first = 0; first < 1ull << 32; first += LANES * step) {
        float x[LANES], powers[LANES], errors[LANES];
        for (int i = 0; i < LANES; i++) x[i] = number_of(first + i * step);
        store(powers, exponential(load(x)));
        store(errors, error_function(load(x)));
        for (int i = 0; i < LANES; i++) {
            if (isnan(x[i])) {
                if (!isnan(powers[i]) || !isnan(errors[i])) return 2;
                continue;
            }
            of_erf = fmax(of_erf, units(errors[i], erf(x[i])));
            if (x[i] < LOWEST || x[i] > HIGHEST) {
                if (powers[i] != (x[i] < 0.f ? 0.f : INFINITY)) return 3;
            } else of_exp = fmax(of_exp, units(powers[i], exp(x[i])));
        }
    }
    printf("erf %.3f, exp %.3f units in the last place\n", of_erf, of_exp);
    return of_erf > MOST_UNITS || of_exp > MOST_UNITS;
}
