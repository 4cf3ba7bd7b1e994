/* Row sums in float64: sixteen partial sums, element i in sum i % 16, folded in halves at the end: 8 apart, 4, 2, 1. */
#ifndef H3K_NORM_H
#define H3K_NORM_H

#include <math.h>
#include <stdint.h>

#define H3K_PARTIAL_SUMS 16

static inline double h3k_fold_sums(double sum[H3K_PARTIAL_SUMS])
{
    for (int apart = H3K_PARTIAL_SUMS / 2; apart > 0; apart /= 2)
        for (int j = 0; j < apart; j++)
            sum[j] += sum[j + apart];
    return sum[0];
}

/* sum of (x[i] - center)^2 */
static inline double h3k_sum_squares(const float *restrict x, int64_t count, double center)
{
    double sum[H3K_PARTIAL_SUMS] = {0};
    int64_t i = 0;
    for (; i + H3K_PARTIAL_SUMS <= count; i += H3K_PARTIAL_SUMS)
        for (int j = 0; j < H3K_PARTIAL_SUMS; j++) {
            double d = (double)x[i + j] - center;
            sum[j] += d * d;
        }
    for (int j = 0; i < count; i++, j++) {
        double d = (double)x[i] - center;
        sum[j] += d * d;
    }
    return h3k_fold_sums(sum);
}

static inline double h3k_sum(const float *restrict x, int64_t count)
{
    double sum[H3K_PARTIAL_SUMS] = {0};
    int64_t i = 0;
    for (; i + H3K_PARTIAL_SUMS <= count; i += H3K_PARTIAL_SUMS)
        for (int j = 0; j < H3K_PARTIAL_SUMS; j++)
            sum[j] += (double)x[i + j];
    for (int j = 0; i < count; i++, j++)
        sum[j] += (double)x[i];
    return h3k_fold_sums(sum);
}

/* rsqrt(mean + eps), the mean of squares from their sum */
static inline float h3k_inverse_root(double sum_squares, int64_t count, double eps)
{
    return (float)(1.0 / sqrt(sum_squares / (double)count + eps));
}

#endif
