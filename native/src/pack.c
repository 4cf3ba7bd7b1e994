/* Transposes up to eight rows into a panel. */
#include <string.h>

#include "panel.h"
#include "vector.h"

/* Columns k..k+3 of four rows, as four vectors written H3K_PANEL floats apart. */
static inline void transpose_4x4(const float *restrict rows, int64_t stride, float *restrict panel)
{
    f32x4 v[4];
    for (int i = 0; i < 4; i++)
        v[i] = h3k_load4(rows + i * stride);
    h3k_transpose4(v);
    for (int i = 0; i < 4; i++)
        h3k_store4(panel + i * H3K_PANEL, v[i]);
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
