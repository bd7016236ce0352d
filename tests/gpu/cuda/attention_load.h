/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_load: work for the attention kernels as an engine would have it, on the GPU: random
 * caches of several layers to go round in, so that nothing is found in the L2, pages dealt at
 * random, items sorted by cost. */

#include "harness.h"

#include "gpu/cuda/attention.h"

struct attention_load_shape {
    enum cuda_kv_type type;
    uint32_t head_dim;
    uint32_t kv_heads;
    uint32_t group;
};

struct attention_load {
    std::vector<struct cuda_attention> layers; /* one for each turn */
    struct cuda_decode_items decode;
    struct cuda_merge_items merges; /* merges for what the plan cut */
    struct cuda_tile_items tiles;
    double bytes; /* bytes in keys, values and scales that decode items see, queries and results */
    double flops; /* operations in tile items: 4 · head_dim for each query, head and key it sees */
};

/* `sequences` of `shortest`..`longest` tokens as gpu/plan_decode.h cuts their items. */
struct attention_load decode_load(const struct attention_load_shape *shape, uint32_t sequences,
                                  uint32_t shortest, uint32_t longest);
/* `rows` that share `shared` tokens, in items of `tile_rows` rows and `shared` / `parts` tokens. */
struct attention_load prefix_load(const struct attention_load_shape *shape, uint32_t rows,
                                  uint32_t shared, uint32_t parts, uint32_t tile_rows);
/* `prompts` of `tokens`, from their start, in items of `tile_rows` rows. */
struct attention_load prefill_load(const struct attention_load_shape *shape, uint32_t prompts,
                                   uint32_t tokens, uint32_t tile_rows);
