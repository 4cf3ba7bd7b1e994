/* Asks the processor and, where registers are wider than the baseline's, whether the system saves them. */
#include "cpu_features.h"

bool h3k_always(void)
{
    return true;
}

#if defined(__x86_64__)
#include <cpuid.h>

bool h3k_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* gcc 12 has no name for AVX-VNNI: leaf 7.1, eax bit 4. */
bool h3k_has_avxvnni(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return h3k_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

bool h3k_has_avx512vnni(void)
{
    return h3k_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

#elif defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>

static bool system_says(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}

bool h3k_has_dotprod(void)
{
    return system_says("hw.optional.arm.FEAT_DotProd");
}

bool h3k_has_i8mm(void)
{
    return h3k_has_dotprod() && system_says("hw.optional.arm.FEAT_I8MM");
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

#define HWCAP_BIT_DOTPROD (1UL << 20)
#define HWCAP2_BIT_I8MM (1UL << 13)

bool h3k_has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_BIT_DOTPROD) != 0;
}

bool h3k_has_i8mm(void)
{
    return h3k_has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_BIT_I8MM) != 0;
}
#endif
