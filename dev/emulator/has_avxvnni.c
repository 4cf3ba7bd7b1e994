/* The emulated machine runs AVX-VNNI (vex_vnni.c), which its CPUID does not say; native.mk renames the asking one. */
#include "cpu_features.h"

bool h3k_has_avxvnni(void)
{
    return h3k_has_avx2();
}
