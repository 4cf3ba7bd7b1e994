/* The size of sin(x) in float32, written so that a compiler can vectorise it. The snakes square it: no sign is needed.
 *
 * x = n pi + r with |r| <= pi / 2 in float64, pi in two parts of which n times the first is exact for |n| < 2^20; then an
 * odd polynomial of degree 11 (2.4e-11). Error at most 2 ulp up to H3K_SIN_LIMIT (tests/test_snake.c walks it).
 */
#ifndef H3K_SINF_H
#define H3K_SINF_H

#define H3K_SIN_LIMIT 3.0e6f

/* sin(x) or -sin(x), |x| <= H3K_SIN_LIMIT. */
static inline float h3k_sin_without_sign(float x)
{
    double wide = (double)x;
    /* Adding 1.5 * 2^52 rounds to the nearest integer. */
    double n = (wide * 0.3183098861837907 + 6755399441055744.0) - 6755399441055744.0;
    float r = (float)((wide - n * 0x1.921fb544p+1) - n * 0x1.0b4611a626331p-33);
    float z = r * r;
    float p = -0x1.9a67fep-26f;
    p = p * z + 0x1.71707ap-19f;
    p = p * z - 0x1.a017dap-13f;
    p = p * z + 0x1.11110cp-7f;
    p = p * z - 0x1.555556p-3f;
    return r + r * z * p;
}

#endif
