/* Four floats in one register, in the GCC and clang vector extension: the same source is SSE2 and NEON.
 * Operators work lane by lane, so a vector loop rounds exactly like the scalar loop it stands for. */
#ifndef H3K_VECTOR_H
#define H3K_VECTOR_H

#include <string.h>

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x4 h3k_load4(const float *from)
{
    f32x4 value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void h3k_store4(float *to, f32x4 value)
{
    memcpy(to, &value, sizeof value);
}

static inline f32x4 h3k_splat(float x)
{
    return (f32x4){x, x, x, x};
}

#define h3k_shuffle(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)

/* Element j of vector i becomes element i of vector j. Bits are moved, so any units of four bytes may be in there. */
static inline void h3k_transpose4(f32x4 v[4])
{
    f32x4 ab_low = h3k_shuffle(v[0], v[1], 0, 4, 1, 5), ab_high = h3k_shuffle(v[0], v[1], 2, 6, 3, 7);
    f32x4 cd_low = h3k_shuffle(v[2], v[3], 0, 4, 1, 5), cd_high = h3k_shuffle(v[2], v[3], 2, 6, 3, 7);
    v[0] = h3k_shuffle(ab_low, cd_low, 0, 1, 4, 5);
    v[1] = h3k_shuffle(ab_low, cd_low, 2, 3, 6, 7);
    v[2] = h3k_shuffle(ab_high, cd_high, 0, 1, 4, 5);
    v[3] = h3k_shuffle(ab_high, cd_high, 2, 3, 6, 7);
}

#endif
