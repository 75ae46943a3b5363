/* What this CPU can compute. The CPU is asked itself: /proc/cpuinfo hides its flags in some sandboxes.

   This is compiled once, for all levels of CPU. */

#include <string.h>

#if defined __x86_64__
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
/* registers that Linux has to save, by their bits in XCR0 */
enum { NONE = 0, AVX = 0x6, AVX512 = 0xe6, AMX = 0x60000 };

static const struct {
    const char *name;
    unsigned leaf, subleaf, place, bit, saved;
} FLAGS[] = {
    {"movbe", 1, 0, ECX, 22, NONE},         {"fma", 1, 0, ECX, 12, AVX},
    {"f16c", 1, 0, ECX, 29, AVX},           {"abm", 0x80000001, 0, ECX, 5, NONE},
    {"bmi1", 7, 0, EBX, 3, NONE},           {"bmi2", 7, 0, EBX, 8, NONE},
    {"avx2", 7, 0, EBX, 5, AVX},            {"avx512f", 7, 0, EBX, 16, AVX512},
    {"avx512dq", 7, 0, EBX, 17, AVX512},    {"avx512cd", 7, 0, EBX, 28, AVX512},
    {"avx512bw", 7, 0, EBX, 30, AVX512},    {"avx512vl", 7, 0, EBX, 31, AVX512},
    {"avx512_vnni", 7, 0, ECX, 11, AVX512}, {"avx512_bf16", 7, 1, EAX, 5, AVX512},
    {"avx_vnni", 7, 1, EAX, 4, AVX},        {"amx_bf16", 7, 0, EDX, 22, AMX},
    {"amx_tile", 7, 0, EDX, 24, AMX},       {"amx_int8", 7, 0, EDX, 25, AMX},
};

/* the registers that Linux saves */
static unsigned saved_registers(void) {
    unsigned found[4], low, high;
    if (!__get_cpuid(1, found, found + 1, found + 2, found + 3) || !(found[ECX] & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* whether the CPU has what Linux calls ``flag``, one of those that a level needs, and Linux lets programs use it */
long cpu_has(const char *flag) {
    unsigned found[4], saved = saved_registers();
    for (unsigned i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
        if (!strcmp(FLAGS[i].name, flag))
            return (saved & FLAGS[i].saved) == FLAGS[i].saved &&
                   __get_cpuid_count(FLAGS[i].leaf, FLAGS[i].subleaf, found, found + 1, found + 2, found + 3) &&
                   found[FLAGS[i].place] >> FLAGS[i].bit & 1;
    return 0;
}
#elif defined __aarch64__
#include <sys/auxv.h>

/* whether the CPU has what Linux calls ``flag``, one of those that a level needs */
long cpu_has(const char *flag) {
    unsigned long flags = getauxval(AT_HWCAP);
    if (!strcmp(flag, "asimd")) return (flags & HWCAP_ASIMD) != 0;
    return !strcmp(flag, "asimddp") && flags & HWCAP_ASIMDDP;
}
#else
long cpu_has(const char *flag) { return (void)flag, 0; }
#endif
