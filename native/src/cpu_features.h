/* What this processor can do; each function answers for one row of the table in dispatch.c. */
#ifndef H3K_CPU_FEATURES_H
#define H3K_CPU_FEATURES_H

#include <stdbool.h>

bool h3k_always(void);

#if defined(__x86_64__)
bool h3k_has_avx2(void);       /* AVX2, FMA and F16C */
bool h3k_has_avxvnni(void);    /* the 256-bit dot product, VEX encoded */
bool h3k_has_avx512vnni(void); /* AVX-512 F, BW, VL, DQ and VNNI */
#elif defined(__aarch64__)
bool h3k_has_dotprod(void);
bool h3k_has_i8mm(void);
#endif

#endif
