/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce_world.h"

static bool reach(int from, int to) {
    int can = 0;
    CUDA_MUST(cudaDeviceCanAccessPeer(&can, from, to));
    return can != 0;
}

/* Lets GPU `rank` and those before it reach each other. False: they cannot. */
static bool enable(int rank) {
    for (int other = 0; other < rank; other++)
        if (!reach(rank, other) || !reach(other, rank)) return false;
    for (int other = 0; other < rank; other++) {
        CUDA_MUST(cudaSetDevice(rank));
        CUDA_MUST(cudaDeviceEnablePeerAccess(other, 0));
        CUDA_MUST(cudaSetDevice(other));
        CUDA_MUST(cudaDeviceEnablePeerAccess(rank, 0));
    }
    return true;
}

struct ranks *all_ranks(void) {
    static struct ranks all;
    int gpus = 0;
    if (all.count > 0) return &all;
    CUDA_MUST(cudaGetDeviceCount(&gpus));
    all.count = 1;
    while (all.count < (uint32_t)gpus && all.count < CUDA_RANKS_MAX && enable((int)all.count))
        all.count++;
    for (uint32_t i = 0; i < all.count; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        CUDA_MUST(cudaStreamCreateWithFlags(&all.streams[i], cudaStreamNonBlocking));
    }
    CUDA_MUST(cudaSetDevice(0));
    return &all;
}

void take_words(struct ranks *ranks, uint32_t count, uint32_t value) {
    const std::vector<uint32_t> words(CUDA_RANKS_MAX, value);
    for (uint32_t i = 0; i < count; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        ranks->words[i] = gpu_copy(words);
    }
}

void ranks_settle(const struct ranks *ranks, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        CUDA_MUST(cudaSetDevice((int)i));
        CUDA_MUST(cudaGetLastError());
        CUDA_MUST(cudaStreamSynchronize(ranks->streams[i]));
    }
    CUDA_MUST(cudaSetDevice(0));
}
