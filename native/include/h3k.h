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

/* ---- matmul.c
 * y[m,n] = activation(x[m,k] . w[n,k]^T + bias[n])
 * SWIGLU: y = silu(x . w^T + bias) * (x . w_value^T + bias_value), both weights n rows of the same format.
 * y has row stride ldy >= n. k % block == 0 (f32 f16 bf16: 1; q8_0 q4_0 q4_1 q5_0 q5_1: 32; *_k: 256).
 * Sum order of one element: k in chunks of 256, inside a chunk one after the other from zero, chunks added in order. */
typedef enum h3k_activation {
    H3K_ACTIVATION_NONE = 0,
    H3K_ACTIVATION_SILU = 1,
    H3K_ACTIVATION_GELU_TANH = 2,
    H3K_ACTIVATION_SWIGLU = 3,
} h3k_activation;

typedef struct h3k_matmul_args {
    h3k_call call;
    const float *x;
    const void *w;
    const void *w_value;     /* SWIGLU only, else null */
    const float *bias;       /* or null */
    const float *bias_value; /* SWIGLU only, or null */
    float *y;
    int64_t m, n, k, ldy;
    int32_t activation;
    int32_t reserved; /* 0 */
} h3k_matmul_args;

H3K_API int64_t h3k_matmul_scratch_bytes(int64_t threads);
H3K_API h3k_status h3k_matmul_f32(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_f16(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_bf16(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q8_0(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q4_0(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q4_1(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q5_0(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q5_1(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q2_k(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q3_k(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q4_k(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q5_k(const h3k_matmul_args *a);
H3K_API h3k_status h3k_matmul_q6_k(const h3k_matmul_args *a);

/* ---- rows.c
 * y[i,:] = dequantise(table row ids[i] - first_row) for the ids with first_row <= id < first_row + table_rows;
 * other rows of y are left alone, so that a table stored in several spans takes one call per span. */
typedef struct h3k_embedding_args {
    h3k_call call;
    const int32_t *ids; /* [rows] */
    const void *table;  /* [table_rows, columns] */
    float *y;           /* [rows, columns] */
    int64_t rows, columns, table_rows, first_row;
} h3k_embedding_args;

H3K_API h3k_status h3k_embedding_f32(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_f16(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_bf16(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q8_0(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q4_0(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q4_1(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q5_0(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q5_1(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q2_k(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q3_k(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q4_k(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q5_k(const h3k_embedding_args *a);
H3K_API h3k_status h3k_embedding_q6_k(const h3k_embedding_args *a);

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
 * causal: only s <= r. head_dim % 4 == 0, head_dim <= 256, heads % kv_heads == 0. No rows x rows memory. */
typedef struct h3k_attention_args {
    h3k_call call;
    const float *qkv;
    float *y;
    int64_t rows, heads, kv_heads, head_dim;
    int32_t causal;
    int32_t reserved; /* 0 */
} h3k_attention_args;

H3K_API int64_t h3k_attention_scratch_bytes(int64_t head_dim, int64_t threads);
H3K_API h3k_status h3k_attention(const h3k_attention_args *a);

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
