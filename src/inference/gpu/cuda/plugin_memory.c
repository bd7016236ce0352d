/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define ARENA_ALIGN 256u
#define BLOCK_ALIGN 16u

static size_t round_up(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

void *memory_take(struct memory *memory, enum memory_part part, size_t bytes) {
    bytes = round_up(bytes, ARENA_ALIGN);
    char *at = memory->base ? memory->base + memory->used : NULL;
    memory->used += bytes;
    memory->parts[part] += bytes;
    assert(!memory->base || memory->used <= memory->room);
    return at;
}

void *block_take(struct block *block, size_t bytes, void **ret_host) {
    size_t at = round_up(block->used, BLOCK_ALIGN);
    *ret_host = NULL;
    if (bytes > block->room || at > block->room - bytes) {
        block->is_full = true;
        return NULL;
    }
    block->used = at + bytes;
    *ret_host = block->host + at;
    return block->card + at;
}

const void *block_put(struct block *block, const void *from, size_t count, size_t bytes) {
    void *host;
    if (count == 0) return NULL;
    void *card = block_take(block, count * bytes, &host);
    if (card) memcpy(host, from, count * bytes);
    return card;
}

enum err block_send(struct gpu *gpu, struct block *block, struct error *error) {
    if (block->used == block->sent) return OK;
    cudaError_t code = cudaMemcpyAsync(block->card + block->sent, block->host + block->sent,
                                       block->used - block->sent, cudaMemcpyHostToDevice, gpu->up);
    if (code == cudaSuccess) code = cudaEventRecord(gpu->copied, gpu->up);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(gpu->compute, gpu->copied, 0);
    block->sent = block->used;
    return code == cudaSuccess ? OK : card_error(code, error, "copying a step");
}
