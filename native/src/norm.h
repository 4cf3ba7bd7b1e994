/* Row sums in float64: eight partial sums, element i in sum i % 8, folded pairwise at the end. */
#ifndef H3K_NORM_H
#define H3K_NORM_H

#include <math.h>
#include <stdint.h>

static inline double h3k_fold8(const double sum[8])
{
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* sum of (x[i] - center)^2 */
static inline double h3k_sum_squares(const float *restrict x, int64_t count, double center)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) {
            double d = (double)x[i + j] - center;
            sum[j] += d * d;
        }
    for (int j = 0; i < count; i++, j++) {
        double d = (double)x[i] - center;
        sum[j] += d * d;
    }
    return h3k_fold8(sum);
}

static inline double h3k_sum(const float *restrict x, int64_t count)
{
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += (double)x[i + j];
    for (int j = 0; i < count; i++, j++)
        sum[j] += (double)x[i];
    return h3k_fold8(sum);
}

/* rsqrt(mean(x^2) + eps) */
static inline float h3k_inverse_rms(const float *restrict x, int64_t count, double eps)
{
    return (float)(1.0 / sqrt(h3k_sum_squares(x, count, 0.0) / (double)count + eps));
}

#endif
