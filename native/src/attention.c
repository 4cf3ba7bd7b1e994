/* The entry of attention: checks, the arithmetic and the storage a mode means here, and batches of heads.
 *
 * Where keys and values are kept, a batch holds one key head per thread: they are converted once, then all query rows of
 * their heads are computed from the copy. Scratch grows with rows x head_dim x threads and never with rows squared.
 */
#include <stddef.h>

#include "attention.h"

static const int64_t kv_bits[] = {
    [H3K_KV_F32] = 32, [H3K_KV_BF16] = 16, [H3K_KV_INT8] = 8, [H3K_KV_INT4] = 4,
};

/* Bits of a kept element: no wider than the arithmetic's integers. 0: nothing is kept. */
static int64_t kept_bits(int64_t mode, int64_t kv)
{
    int64_t most = mode == H3K_MODE_FLOAT ? 31 : mode == H3K_MODE_NEAR ? 16 : 8;
    if (kv_bits[kv] <= most)
        return kv_bits[kv];
    return most == 31 ? 0 : most;
}

static int64_t tile_bytes(int64_t padded_dim, int64_t bits)
{
    return 2 * H3K_ATTENTION_KEYS * padded_dim * bits / 8 + (2 * H3K_ATTENTION_KEYS + padded_dim) * (int64_t)sizeof(float);
}

/* The means of values and keys, then the tiles. */
static int64_t head_bytes(int64_t rows, int64_t padded_dim, int64_t bits)
{
    int64_t bytes = 2 * padded_dim * (int64_t)sizeof(float);
    bytes += h3k_ceil_div(rows, H3K_ATTENTION_KEYS) * tile_bytes(padded_dim, bits);
    return bits == 0 ? 0 : h3k_ceil_div(bytes, H3K_SCRATCH_ALIGN) * H3K_SCRATCH_ALIGN;
}

/* The integer block: float sums, scores and products, seven numbers a row, integers, and one tile of panels. */
static int64_t slot_bytes(int64_t head_dim)
{
    int64_t d = h3k_attention_padded(head_dim), keys = H3K_ATTENTION_KEYS;
    int64_t row = 4 * d + 4 * keys + 4 * H3K_ATTENTION_LANES + 7 * 4 + 2 * d + 2 * keys;
    int64_t integers = H3K_ATTENTION_INTEGER_ROWS * row + 4 * keys * d;
    int64_t floats = h3k_attention_float_slot_bytes(head_dim);
    return floats > integers ? floats : integers;
}

int64_t h3k_attention_scratch_bytes(int64_t rows, int64_t head_dim, int64_t threads, int64_t mode, int64_t kv)
{
    int64_t kept = head_bytes(rows, h3k_attention_padded(head_dim), kept_bits(mode, kv));
    return h3k_slots_bytes(slot_bytes(head_dim), threads) + threads * kept;
}

static bool is_integer(const h3k_attention_kernels *kernels, int32_t mode, int32_t causal)
{
    if (kernels == NULL || mode == H3K_MODE_FLOAT || causal)
        return false;
    return mode != H3K_MODE_NEAR || kernels->words_name != NULL;
}

const char *h3k_attention_path(int32_t mode, int32_t causal)
{
    const h3k_attention_kernels *kernels = h3k_kernels_chosen()->attention;
    if (!is_integer(kernels, mode, causal))
        return "float";
    return mode == H3K_MODE_NEAR ? kernels->words_name : kernels->bytes_name;
}

static bool is_possible(const h3k_attention_args *a)
{
    return a != NULL && a->call.args_bytes == (int64_t)sizeof *a && a->qkv != NULL && a->y != NULL && a->rows >= 0 &&
           a->heads >= 1 && a->kv_heads >= 1 && a->heads % a->kv_heads == 0 && a->head_dim >= 4 &&
           a->head_dim % 4 == 0 && a->head_dim <= H3K_ATTENTION_MAX_DIM && a->mode >= H3K_MODE_FLOAT &&
           a->mode <= H3K_MODE_FAST && a->kv >= H3K_KV_F32 && a->kv <= H3K_KV_INT4 && a->reserved == 0 &&
           a->window_rows >= 0 && a->window_start >= 0 && a->window_radius >= 0;
}

static h3k_attention_job open_job(const h3k_attention_args *a)
{
    h3k_attention_job job = {.args = a, .kernels = h3k_kernels_chosen()};
    job.width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    job.padded_dim = h3k_attention_padded(a->head_dim);
    job.tiles = h3k_ceil_div(a->rows, H3K_ATTENTION_KEYS);
    job.slot_bytes = slot_bytes(a->head_dim);
    job.integer = is_integer(job.kernels->attention, a->mode, a->causal);
    job.wide = a->mode == H3K_MODE_NEAR;
    /* Float arithmetic in place of a faster one reads qkv unless asked to save memory. */
    bool kept = job.integer || a->mode == H3K_MODE_FLOAT || a->kv >= H3K_KV_INT8;
    job.bits = kept ? (int32_t)kept_bits(a->mode, a->kv) : 0;
    job.tile_bytes = tile_bytes(job.padded_dim, job.bits);
    job.head_bytes = head_bytes(a->rows, job.padded_dim, job.bits);
    return job;
}

/* Key heads first .. first + heads - 1 and their query heads. */
typedef struct {
    const h3k_attention_job *job;
    int64_t first, heads, blocks, block_rows;
    uint8_t *kept;
} batch;

/* Behind the slots. */
static uint8_t *kept_heads(const h3k_attention_job *job, int32_t threads)
{
    uint8_t *slots = (uint8_t *)h3k_slot(job->args->call.scratch, 0, 0);
    return slots + h3k_slots_bytes(job->slot_bytes, threads) - H3K_SCRATCH_ALIGN;
}

static void *worker_slot(const h3k_attention_job *job, int32_t worker)
{
    return h3k_slot(job->args->call.scratch, job->slot_bytes, worker);
}

static void keep_head(const void *context, int64_t task, int32_t worker)
{
    const batch *b = context;
    h3k_attention_keep *keep = b->job->integer ? b->job->kernels->attention->keep : h3k_attention_float_keep;
    keep(b->job, b->first + task, b->kept + task * b->job->head_bytes, worker_slot(b->job, worker));
}

static void compute_block(const void *context, int64_t task, int32_t worker)
{
    const batch *b = context;
    const h3k_attention_job *job = b->job;
    int64_t shared = job->args->heads / job->args->kv_heads, head = b->first * shared + task / b->blocks;
    const uint8_t *kept = job->bits == 0 ? NULL : b->kept + task / b->blocks / shared * job->head_bytes;
    h3k_attention_block *block = job->integer ? job->kernels->attention->block : h3k_attention_float_block;
    block(job, head, task % b->blocks * b->block_rows, kept, worker_slot(job, worker));
}

h3k_status h3k_attention(const h3k_attention_args *a)
{
    if (!is_possible(a))
        return H3K_BAD_ARGUMENT;
    int32_t threads = h3k_pool_thread_count(a->call.pool);
    int64_t needed = h3k_attention_scratch_bytes(a->rows, a->head_dim, threads, a->mode, a->kv);
    h3k_status status = h3k_check_call(&a->call, sizeof *a, needed);
    if (status != H3K_OK)
        return status;
    h3k_attention_job job = open_job(a);
    batch b = {.job = &job, .block_rows = job.integer ? H3K_ATTENTION_INTEGER_ROWS : H3K_ATTENTION_ROWS};
    b.blocks = h3k_ceil_div(a->rows, b.block_rows);
    b.kept = kept_heads(&job, threads);
    for (; status == H3K_OK && b.first < a->kv_heads; b.first += b.heads) {
        b.heads = job.bits == 0 ? a->kv_heads : h3k_min(threads, a->kv_heads - b.first);
        if (job.bits != 0)
            status = h3k_parallel_for(&a->call, b.heads, keep_head, &b);
        if (status == H3K_OK)
            status = h3k_parallel_for(&a->call, b.heads * (a->heads / a->kv_heads) * b.blocks, compute_block, &b);
    }
    return status;
}
