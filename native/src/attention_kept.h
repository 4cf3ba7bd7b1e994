/* A narrower copy of one head's keys and values for float arithmetic: bfloat16, int8 or int4.
 *
 * A tile holds the keys as panels [8 keys][head_dim] and the values as panels [8 channels][64 keys], columns innermost,
 * as the panel product wants them. Integers have one scale per column: per key, and per channel of the tile. Keys lose
 * their mean over the sequence (it changes no softmax), values theirs, which comes back when they are expanded.
 */
#ifndef H3K_ATTENTION_KEPT_H
#define H3K_ATTENTION_KEPT_H

#include "attention.h"

/* Packs the tile's `count` keys and values from qkv into panels of floats, missing keys 0. */
void h3k_attention_pack_keys(const h3k_attention_job *job, int64_t group, int64_t k0, int64_t count, float *panels);
void h3k_attention_pack_values(const h3k_attention_job *job, int64_t group, int64_t k0, int64_t count, float *panels);

/* The same from a kept head. */
void h3k_attention_expand(const h3k_attention_job *job, const uint8_t *kept, int64_t tile, float *keys, float *values);

#endif
