/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_memory: the arena of a GPU's memory, which is laid out once, and the blocks that carry
 * arrays to the GPU in few copies.
 *
 * It knows no program and no step.
 *
 * Thread: the GPU's one.
 * Memory: the arena's is the GPU's, a block's is the flight's; nothing is allocated here.
 * Invariant: nothing is given back: the arena ends as a whole, a block with its step. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct gpu;

enum memory_part {
    MEMORY_WEIGHTS,
    MEMORY_ACTIVATIONS,
    MEMORY_LOGITS,
    MEMORY_STEPS,
    MEMORY_WORKSPACE,
    MEMORY_STATES,
    MEMORY_KV,
    MEMORY_PARTS,
};

/* An arena that is given away from its beginning. With base NULL it only counts. */
struct memory {
    char *base;
    size_t room;
    size_t used;
    size_t parts[MEMORY_PARTS];
};
/* `bytes` of GPU memory at a multiple of 256; NULL while counting. */
void *memory_take(struct memory *memory, enum memory_part part, size_t bytes);

/* Arrays on their way to the GPU: pinned memory, and its like on the GPU. */
struct block {
    char *host;
    char *card;
    size_t room;
    size_t used;
    size_t sent; /* bytes before it are under way */
    bool is_full;
};
/* Room for an array, at a multiple of 16: fills *ret_host and returns the GPU's address. A full
 * block sets is_full, and both are NULL. */
void *block_take(struct block *block, size_t bytes, void **ret_host);
/* Copies an array into the block; NULL for an empty one. */
const void *block_put(struct block *block, const void *from, size_t count, size_t bytes);
/* Sends all that was put since the last time; `compute` waits for it. */
enum err block_send(struct gpu *gpu, struct block *block, struct error *error) MUST_CHECK;
