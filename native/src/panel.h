/* The inner product every matrix kernel is built on: rows of x times a packed panel of H3K_PANEL columns. */
#ifndef H3K_PANEL_H
#define H3K_PANEL_H

#include <stdint.h>

#define H3K_PANEL 8

/* panel[k][j] = rows[j][k] for j < count, 0 for the rest; k = 0..depth-1. Rows are `stride` floats apart. */
void h3k_pack_panel(const float *restrict rows, int64_t stride, int64_t count, int64_t depth, float *restrict panel);

#endif
