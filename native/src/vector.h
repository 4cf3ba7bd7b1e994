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

#endif
