/* h3k: the compute kernels, portable C11. This header is the whole ABI; core/kernels/bindings.py mirrors it.
 *
 * Conventions
 * - Every kernel takes one argument struct whose first field is `h3k_call call`; set `call.args_bytes` to the size of the
 *   whole struct. Fields never change meaning within one ABI version.
 * - Activations are float32, row-major, dense unless a leading dimension is given. Dimensions and strides are int64 and
 *   count elements. Weight pointers may have any alignment (they point into mapped files); float pointers are 4-byte aligned.
 * - Inputs and outputs do not overlap unless the entry says "in place".
 * - Kernels allocate nothing: scratch comes from the caller, its size from `*_scratch_bytes()`, any alignment.
 * - Kernels never print, exit or keep a pointer. They return a status; on anything but H3K_OK the output is undefined.
 * - `call.cancel` is polled before each tile; a non-zero cell ends the call with H3K_CANCELLED.
 * - Results are bit-identical for any number of threads and any number of rows in the call: each output element is summed
 *   in one stated order. No fast-math; products are fused with sums only in the variants that say so (see h3k_isa_name),
 *   so results repeat within one variant and differ in the last bits between two.
 * - NaN propagates. Denormals are kept.
 * - Thread-safe for distinct outputs, scratch and pools; one pool serves one call at a time.
 */
#ifndef H3K_H
#define H3K_H

#include <stdint.h>

#define H3K_ABI_VERSION 1
#define H3K_API __attribute__((visibility("default")))

typedef enum h3k_status {
    H3K_OK = 0,
    H3K_CANCELLED = 1,
    H3K_BAD_ARGUMENT = 2, /* null pointer, impossible dimension, wrong args_bytes, index out of range */
    H3K_BAD_SCRATCH = 3,  /* scratch is null or smaller than the entry's *_scratch_bytes() */
    H3K_NO_MEMORY = 4,    /* pool creation only */
} h3k_status;

H3K_API int32_t h3k_abi_version(void);
H3K_API const char *h3k_status_name(int32_t status); /* "ok", "cancelled", ...; "unknown status" otherwise */

/* ---- dispatch.c: kernels exist once per instruction set, one set serves the whole process
 * x86-64: "avx512vnni" "avxvnni" "avx2"; arm64: "i8mm" "dotprod"; everywhere: "generic". Unless chosen, the fastest this
 * processor runs. Choose before the first kernel runs, never during one. */
H3K_API const char *h3k_isa_name(void);              /* the set in use */
H3K_API const char *h3k_isa_offered(int32_t index);  /* sets this processor runs, fastest first; null past the last */
H3K_API h3k_status h3k_isa_choose(const char *name); /* null: the fastest; H3K_BAD_ARGUMENT for one not offered */

/* ---- threads
 * A pool of `threads` workers counting the caller; the others start at the first parallel call. After fork() the child's
 * calls run on the calling thread alone (same results); destroy in the child frees memory only. */
typedef struct h3k_pool h3k_pool;

H3K_API h3k_status h3k_pool_create(int32_t threads, h3k_pool **pool); /* 1 <= threads <= 256 */
H3K_API void h3k_pool_destroy(h3k_pool *pool);                        /* null is allowed */
H3K_API int32_t h3k_pool_thread_count(const h3k_pool *pool);          /* null: 1 */

/* Head of every argument struct. */
typedef struct h3k_call {
    int64_t args_bytes;             /* size of the whole argument struct */
    h3k_pool *pool;                 /* null: the calling thread alone */
    const volatile int32_t *cancel; /* null: cannot be cancelled */
    void *scratch;                  /* null where the entry needs none */
    int64_t scratch_bytes;
} h3k_call;

/* ---- weight formats: blocks.h has the layouts. k % block elements == 0. */
typedef enum h3k_format_id {
    H3K_FORMAT_F32 = 0,
    H3K_FORMAT_F16 = 1,
    H3K_FORMAT_BF16 = 2,
    H3K_FORMAT_Q8_0 = 3,
    H3K_FORMAT_Q4_0 = 4,
    H3K_FORMAT_Q4_1 = 5,
    H3K_FORMAT_Q5_0 = 6,
    H3K_FORMAT_Q5_1 = 7,
    H3K_FORMAT_Q2_K = 8,
    H3K_FORMAT_Q3_K = 9,
    H3K_FORMAT_Q4_K = 10,
    H3K_FORMAT_Q5_K = 11,
    H3K_FORMAT_Q6_K = 12,
    H3K_FORMAT_I8_ROW = 13, /* these have scales that lie apart from the rows, at any alignment: */
    H3K_FORMAT_F8_E4M3 = 14,
    H3K_FORMAT_NVFP4 = 15,
} h3k_format_id;

/* ---- matmul.c
 * y[m,n] = activation(x[m,k] . w[n,k]^T + bias[n])
 * SWIGLU: y = silu(x . w^T + bias) * (x . w_value^T + bias_value), both weights n rows of the same format.
 *
 * mode says how: FLOAT multiplies exactly unpacked weights in float32. The others take x as integers with one scale per
 * 256 elements of a row, as h3k_pack_rows makes them: NEAR 16 bits, EXACT and FAST 8 bits; sums of a weight group are
 * exact integers, scaled in float32. FAST may take the weights as int8 with one scale per 256. What an instruction set has
 * no faster way for is computed more exactly: h3k_packing(format, mode) tells what x must be packed as.
 *
 * Sum order of one element: k in chunks of 256, inside a chunk in the order of the instruction set, chunks added in order. */
typedef enum h3k_activation {
    H3K_ACTIVATION_NONE = 0,
    H3K_ACTIVATION_SILU = 1,
    H3K_ACTIVATION_GELU_TANH = 2,
    H3K_ACTIVATION_SWIGLU = 3,
} h3k_activation;

typedef enum h3k_mode {
    H3K_MODE_FLOAT = 0,
    H3K_MODE_NEAR = 1,
    H3K_MODE_EXACT = 2,
    H3K_MODE_FAST = 3,
} h3k_mode;

typedef enum h3k_packing_kind {
    H3K_PACKING_NONE = 0,  /* x as float32 */
    H3K_PACKING_I8 = 1,    /* int8 */
    H3K_PACKING_I16 = 2,   /* int16 */
    H3K_PACKING_I8X2 = 3,  /* 16 bits as two planes of int8: 256 high + low */
} h3k_packing_kind;

H3K_API int32_t h3k_packing(int32_t format, int32_t mode);                        /* -1 for an unknown format or mode */
H3K_API int64_t h3k_packed_bytes(int64_t rows, int64_t columns, int64_t packing); /* multiple of 64; 0 for NONE */

/* packed: h3k_packed_bytes(rows, columns, packing) bytes at a multiple of 64, their layout private to the library. */
typedef struct h3k_pack_rows_args {
    h3k_call call;
    const float *x; /* [rows, columns] */
    void *packed;
    int64_t rows, columns;
    int32_t packing;
    int32_t reserved; /* 0 */
} h3k_pack_rows_args;

H3K_API h3k_status h3k_pack_rows(const h3k_pack_rows_args *a);

typedef struct h3k_matmul_args {
    h3k_call call;
    const float *x;          /* [m, k] when h3k_packing(format, mode) is NONE, else null */
    const void *packed;      /* x packed, else null */
    const void *w;           /* [n, k] */
    const void *w_value;     /* SWIGLU only, else null */
    const void *w_scales;    /* formats with scales apart: f32 per row (null: w_scale alone), nvfp4: tiles; else null */
    const void *w_value_scales;
    const float *bias;       /* [n] or null */
    const float *bias_value; /* SWIGLU only, or null */
    float *y;                /* [m, n], row stride ldy >= n, or null: */
    void *packed_y;          /* [m, n] packed as packing_y: integer modes only */
    int64_t m, n, k, ldy;
    int64_t w_scales_row, w_value_scales_row; /* the row of the scales that belongs to row 0 of the weight */
    float w_scale, w_value_scale;             /* factor of the whole weight, formats with scales apart only */
    int32_t format, mode, activation, packing_y;
} h3k_matmul_args;

H3K_API int64_t h3k_matmul_scratch_bytes(int64_t threads);
H3K_API h3k_status h3k_matmul(const h3k_matmul_args *a);

/* ---- rows.c
 * y[i,:] = dequantise(table row ids[i] - first_row) for the ids with first_row <= id < first_row + table_rows;
 * other rows of y are left alone, so that a table stored in several spans takes one call per span. */
typedef struct h3k_embedding_args {
    h3k_call call;
    const int32_t *ids; /* [rows] */
    const void *table;  /* [table_rows, columns] */
    const void *scales; /* as w_scales of h3k_matmul_args */
    float *y;           /* [rows, columns] */
    int64_t rows, columns, table_rows, first_row, scales_row;
    float scale;
    int32_t format;
} h3k_embedding_args;

H3K_API h3k_status h3k_embedding(const h3k_embedding_args *a);

/* y[i,:] = x[index[i],:]; any 4-byte elements. An index outside [0, x_rows) is H3K_BAD_ARGUMENT. */
typedef struct h3k_take_rows_args {
    h3k_call call;
    const float *x;       /* [x_rows, columns] */
    const int32_t *index; /* [rows] */
    float *y;             /* [rows, columns] */
    int64_t rows, columns, x_rows;
} h3k_take_rows_args;

H3K_API h3k_status h3k_take_rows(const h3k_take_rows_args *a);

/* ---- attention.c
 * y[r, h, :] = sum_s softmax_s(q[r,h] . k[s,g] / sqrt(head_dim)) v[s,g],  g = h / (heads / kv_heads)
 * qkv: [rows, (heads + 2 kv_heads) * head_dim] = [q heads | k heads | v heads]; y: [rows, heads * head_dim].
 * causal: only s <= r. head_dim % 4 == 0, head_dim <= 256, heads % kv_heads == 0. No rows x rows memory.
 *
 * mode: NEAR multiplies int16 (13 bits and sign, exact sums), EXACT and FAST int8; FAST may give queries and keys
 * fewer bits. Where the instruction set has no such products, or with causal, the arithmetic is FLOAT.
 * kv: how a head's keys and values are kept while its rows are computed. Integers hold keys less their mean over the
 * sequence with one scale per key, values less theirs with one scale per channel and 64 keys. Kept bytes per row are
 * 2 head_dim bits / 8 + 8 + head_dim / 16 (head_dim rounded up to 16) for one key head per thread: 528 bf16 or NEAR,
 * 272 int8, 144 int4 at head_dim 128. FLOAT with f32 keeps nothing. Integer arithmetic keeps f32 and bf16 as its own
 * integers, which are no wider than bf16.
 * window_rows > 0: a row from window_start on, in frame (r - window_start) / window_rows, sees the rows before
 * window_start and the frames at most window_radius from its own. Rows before window_start see everything.
 * Integers and kept integers turn a key that is not finite into NaN for its head, a value for its channel. */
typedef enum h3k_kv_format {
    H3K_KV_F32 = 0,
    H3K_KV_BF16 = 1,
    H3K_KV_INT8 = 2,
    H3K_KV_INT4 = 3,
} h3k_kv_format;

typedef struct h3k_attention_args {
    h3k_call call;
    const float *qkv;
    float *y;
    int64_t rows, heads, kv_heads, head_dim;
    int64_t window_start, window_rows, window_radius;
    int32_t causal;
    int32_t mode; /* h3k_mode */
    int32_t kv;   /* h3k_kv_format */
    int32_t reserved; /* 0 */
} h3k_attention_args;

H3K_API int64_t h3k_attention_scratch_bytes(int64_t rows, int64_t head_dim, int64_t threads, int64_t mode, int64_t kv);
H3K_API h3k_status h3k_attention(const h3k_attention_args *a);
/* The products of such a call here: "float", "maddubs", "maddwd", "vpdpbusd", "vpdpwssd", "sdot" or "usmmla". */
H3K_API const char *h3k_attention_path(int32_t mode, int32_t causal);

/* ---- norm.c: sums in float64, sixteen interleaved partial sums
 * rms_norm:   y = x * rsqrt(mean(x^2) + eps) * weight      x, y: [rows, columns]; weight: [columns] or null; y may be x
 * layer_norm: y = (x - mean) * rsqrt(var + eps) * weight + bias     (two passes; y may be x) */
typedef struct h3k_rms_norm_args {
    h3k_call call;
    const float *x;
    const float *weight;
    float *y;
    int64_t rows, columns;
    double eps;
} h3k_rms_norm_args;

typedef struct h3k_layer_norm_args {
    h3k_call call;
    const float *x;
    const float *weight;
    const float *bias;
    float *y;
    int64_t rows, columns;
    double eps;
} h3k_layer_norm_args;

H3K_API h3k_status h3k_rms_norm(const h3k_rms_norm_args *a);
H3K_API h3k_status h3k_layer_norm(const h3k_layer_norm_args *a);

/* ---- modulate.c: table [entries, slots, columns], row_index [rows] in [0, entries), else H3K_BAD_ARGUMENT
 * norm_modulate:   y = rms_norm(x, weight) * (1 + table[i, scale_slot]) + table[i, shift_slot],  i = row_index[row]
 * gated_residual:  h += table[i, gate_slot] * y                                                   (in place)
 * gated_residual_norm: the first, then normed = norm_modulate of the new h with norm_table, in one pass over each row
 * scaled_residual: h += scale * y, scale from the vector [columns] or, when it is null, the number (in place) */
typedef struct h3k_norm_modulate_args {
    h3k_call call;
    const float *x;      /* [rows, columns] */
    const float *weight; /* [columns] or null */
    const float *table;
    const int32_t *row_index;
    float *y; /* [rows, columns]; may be x */
    int64_t rows, columns, entries, slots, shift_slot, scale_slot;
    double eps;
} h3k_norm_modulate_args;

typedef struct h3k_gated_residual_args {
    h3k_call call;
    float *h;
    const float *y;
    const float *table;
    const int32_t *row_index;
    int64_t rows, columns, entries, slots, gate_slot;
} h3k_gated_residual_args;

typedef struct h3k_gated_residual_norm_args {
    h3k_call call;
    float *h;
    const float *y;
    const float *table;      /* of the gate */
    const float *weight;     /* [columns] or null */
    const float *norm_table; /* of shift and scale, shaped like `table`; may be `table` */
    const int32_t *row_index;
    float *normed; /* [rows, columns]; may be y */
    int64_t rows, columns, entries, slots, gate_slot, shift_slot, scale_slot;
    double eps;
} h3k_gated_residual_norm_args;

typedef struct h3k_scaled_residual_args {
    h3k_call call;
    float *h;
    const float *y;
    const float *scale_vector;
    int64_t rows, columns;
    float scale;
    int32_t reserved; /* 0 */
} h3k_scaled_residual_args;

H3K_API h3k_status h3k_norm_modulate(const h3k_norm_modulate_args *a);
H3K_API h3k_status h3k_gated_residual(const h3k_gated_residual_args *a);
H3K_API h3k_status h3k_gated_residual_norm(const h3k_gated_residual_norm_args *a);
H3K_API h3k_status h3k_scaled_residual(const h3k_scaled_residual_args *a);

/* ---- activation.c
 * swiglu: y = silu(gate) * value, all [count]; y may be gate or value. For halves stored in different formats. */
typedef struct h3k_swiglu_args {
    h3k_call call;
    const float *gate;
    const float *value;
    float *y;
    int64_t count;
} h3k_swiglu_args;

H3K_API h3k_status h3k_swiglu(const h3k_swiglu_args *a);

/* ---- rope.c, in place on packed qkv
 * Each q and k head: x *= rsqrt(mean(x^2) + eps) * weight, then for c < half:
 *   x'[c] = x[c] cos[c] - x[c + half] sin[c],  x'[c + half] = x[c + half] cos[c] + x[c] sin[c].
 * cos, sin: [rows, half], 2 half <= head_dim; both null with half = 0: no rotation. v heads are untouched. */
typedef struct h3k_qk_norm_rope_args {
    h3k_call call;
    float *qkv;
    const float *q_weight; /* [head_dim] or null */
    const float *k_weight; /* [head_dim] or null */
    const float *cos;
    const float *sin;
    int64_t rows, heads, kv_heads, head_dim, half;
    double eps;
} h3k_qk_norm_rope_args;

H3K_API h3k_status h3k_qk_norm_rope(const h3k_qk_norm_rope_args *a);

#include "h3k_convolution.h"
#include "h3k_schemes.h"

#endif
