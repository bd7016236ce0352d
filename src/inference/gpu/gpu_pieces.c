/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_pieces.h"

#include <assert.h>

bool gpu_rank_divides(const struct gpu_rank *rank, uint32_t count) {
    return count % rank->ranks == 0;
}

uint32_t gpu_rank_heads(const struct gpu_rank *rank, uint32_t kv_heads) {
    return kv_heads > rank->ranks ? kv_heads / rank->ranks : 1;
}

uint32_t gpu_rank_first_head(const struct gpu_rank *rank, uint32_t kv_heads) {
    return rank->rank * kv_heads / rank->ranks;
}

void gpu_split_add(struct gpu_split *split, uint32_t first, uint32_t rows, uint32_t whole_rows) {
    assert(split->piece_count < GPU_PIECES_MAX);
    split->pieces[split->piece_count++] =
        (struct gpu_piece){.first = split->whole + first, .own = split->own, .rows = rows};
    split->whole += whole_rows;
    split->own += rows;
}

void gpu_split_add_even(const struct gpu_rank *rank, struct gpu_split *split, uint32_t rows) {
    const uint32_t own = rows / rank->ranks;
    gpu_split_add(split, rank->rank * own, own, rows);
}

void gpu_split_add_value_heads(const struct gpu_rank *rank, struct gpu_split *split,
                               uint32_t each) {
    const struct gpu_recurrent_sizes *sizes = &rank->whole->recurrent;
    const uint32_t times = sizes->heads_are_tiled ? sizes->value_heads / sizes->key_heads : 1;
    for (uint32_t i = 0; i < times; i++)
        gpu_split_add_even(rank, split, sizes->value_heads / times * each);
}

void gpu_split_add_key_heads(const struct gpu_rank *rank, struct gpu_split *split) {
    const struct gpu_recurrent_sizes *sizes = &rank->whole->recurrent;
    gpu_split_add(split, gpu_rank_first_head(rank, sizes->key_heads) * sizes->key_dim,
                  gpu_rank_heads(rank, sizes->key_heads) * sizes->key_dim,
                  sizes->key_heads * sizes->key_dim);
}

void gpu_split_add_channels(const struct gpu_rank *rank, struct gpu_split *split) {
    const struct gpu_recurrent_sizes *sizes = &rank->whole->recurrent;
    if (sizes->key_heads == 0) {
        gpu_split_add_even(rank, split, sizes->channels);
        return;
    }
    if (sizes->is_mamba) gpu_split_add_value_heads(rank, split, sizes->value_dim);
    gpu_split_add_key_heads(rank, split);
    gpu_split_add_key_heads(rank, split);
    if (!sizes->is_mamba) gpu_split_add_value_heads(rank, split, sizes->value_dim);
}

bool gpu_split_next(const struct gpu_split *split, uint32_t first, uint32_t end,
                    struct gpu_piece *ret_run) {
    if (split->kind == GPU_SPLIT_LEAD || split->whole == 0 || first >= end) return false;
    if (split->kind == GPU_SPLIT_INPUTS) {
        *ret_run = (struct gpu_piece){.first = first, .own = first, .rows = end - first};
        return true;
    }
    for (uint32_t k = first / split->whole; k < split->repeats; k++)
        for (uint32_t i = 0; i < split->piece_count; i++) {
            const struct gpu_piece *piece = &split->pieces[i];
            const uint32_t begin = k * split->whole + piece->first;
            const uint32_t from = begin > first ? begin : first;
            const uint32_t to = begin + piece->rows < end ? begin + piece->rows : end;
            if (from >= to) continue;
            *ret_run = (struct gpu_piece){.first = from,
                                          .own = k * split->own + piece->own + from - begin,
                                          .rows = to - from};
            return true;
        }
    return false;
}
