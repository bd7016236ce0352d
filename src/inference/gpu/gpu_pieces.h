/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_pieces: the rows that one of several GPUs has of what is split: heads, widths, channels.
 *
 * It knows no matrix and no operation; gpu_shard.h has both.
 *
 * Thread: any.
 * Memory: the caller's structs.
 * Invariant: the pieces of a split follow each other, in the whole and in the rank's. */

#include "gpu/gpu_shard.h"

struct gpu_rank {
    const struct gpu_program *whole;
    uint32_t rank, ranks;
};

bool gpu_rank_divides(const struct gpu_rank *rank, uint32_t count);
/* KV heads of a rank, or key heads of a state: a rank has one at least. */
uint32_t gpu_rank_heads(const struct gpu_rank *rank, uint32_t kv_heads);
/* The first of them. */
uint32_t gpu_rank_first_head(const struct gpu_rank *rank, uint32_t kv_heads);

/* Adds the rank's rows `first`.. of a piece of the whole matrix. */
void gpu_split_add(struct gpu_split *split, uint32_t first, uint32_t rows, uint32_t whole_rows);
/* A piece of which each rank has the same number of rows. */
void gpu_split_add_even(const struct gpu_rank *rank, struct gpu_split *split, uint32_t rows);
/* The value heads of a state, `each` rows of each: neighbours, or those of the rank's key heads. */
void gpu_split_add_value_heads(const struct gpu_rank *rank, struct gpu_split *split, uint32_t each);
/* Its key heads, of which several ranks may hold one: the groups of Mamba-2. */
void gpu_split_add_key_heads(const struct gpu_rank *rank, struct gpu_split *split);
/* The channels of a convolution: q, k and v, or x, B and C, or some of one kind. */
void gpu_split_add_channels(const struct gpu_rank *rank, struct gpu_split *split);
