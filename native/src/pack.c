/* Transposes up to eight rows into a panel. */
#include <string.h>

#include "panel.h"
#include "vector.h"

/* Columns k..k+3 of four rows, as four vectors written H3K_PANEL floats apart. */
static inline void transpose_4x4(const float *restrict rows, int64_t stride, float *restrict panel)
{
    f32x4 a = h3k_load4(rows), b = h3k_load4(rows + stride);
    f32x4 c = h3k_load4(rows + 2 * stride), d = h3k_load4(rows + 3 * stride);
    f32x4 ab_low = h3k_shuffle(a, b, 0, 4, 1, 5), ab_high = h3k_shuffle(a, b, 2, 6, 3, 7);
    f32x4 cd_low = h3k_shuffle(c, d, 0, 4, 1, 5), cd_high = h3k_shuffle(c, d, 2, 6, 3, 7);
    h3k_store4(panel, h3k_shuffle(ab_low, cd_low, 0, 1, 4, 5));
    h3k_store4(panel + H3K_PANEL, h3k_shuffle(ab_low, cd_low, 2, 3, 6, 7));
    h3k_store4(panel + 2 * H3K_PANEL, h3k_shuffle(ab_high, cd_high, 0, 1, 4, 5));
    h3k_store4(panel + 3 * H3K_PANEL, h3k_shuffle(ab_high, cd_high, 2, 3, 6, 7));
}

void h3k_pack_panel(const float *restrict rows, int64_t stride, int64_t count, int64_t depth, float *restrict panel)
{
    int64_t k = 0;
    if (count == H3K_PANEL) {
        for (; k + 4 <= depth; k += 4) {
            transpose_4x4(rows + k, stride, panel + k * H3K_PANEL);
            transpose_4x4(rows + 4 * stride + k, stride, panel + k * H3K_PANEL + 4);
        }
    }
    for (; k < depth; k++) {
        for (int64_t j = 0; j < H3K_PANEL; j++)
            panel[k * H3K_PANEL + j] = j < count ? rows[j * stride + k] : 0.0f;
    }
}
