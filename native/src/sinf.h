/* The size of sin(x) in float32, written so that a compiler can vectorise it. The snakes square it: no sign is needed.
 *
 * x = n pi + r with |r| <= pi / 2, pi in two parts of which n times the first is exact for |n| < 2^20; then an odd
 * polynomial of degree 11 (relative error 2.4e-11), all in float64: in float32 the sum near pi / 2 is off by 2 ulp.
 * Error at most 0.51 ulp up to H3K_SIN_LIMIT; tests/test_snake.c walks it.
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
    double r = (wide - n * 0x1.921fb544p+1) - n * 0x1.0b4611a626331p-33;
    double z = r * r;
    double p = -2.3888786321486777e-08;
    p = p * z + 2.7525377549950103e-06;
    p = p * z - 1.984086807781918e-4;
    p = p * z + 8.333331107604413e-3;
    p = p * z - 0.1666666662612605;
    return (float)(r + r * z * p);
}

#endif
