/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/pages.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256

/* Makes entry `to` of an array a copy of entry `from`; all threads of a block take part. */
__device__ static inline void copy_words(char *base, uint32_t bytes, uint32_t from, uint32_t to) {
    const uint4 *source = (const uint4 *)(base + (size_t)from * bytes);
    uint4 *target = (uint4 *)(base + (size_t)to * bytes);
    for (uint32_t at = threadIdx.x; at < bytes / sizeof(uint4); at += THREADS)
        target[at] = source[at];
}

/* Two blocks per place: keys, and values with their scales. */
__global__ void __launch_bounds__(THREADS)
    copy_page(struct cuda_pages pages, uint32_t from, uint32_t to) {
    const size_t place = (blockIdx.x / 2) * pages.place_stride;
    wait_for_before();
    if (blockIdx.x % 2 == 0) {
        copy_words((char *)pages.k + place, pages.bytes, from, to);
        return;
    }
    if (pages.v) copy_words((char *)pages.v + place, pages.bytes, from, to);
    if (pages.scales) copy_words((char *)pages.scales + place, pages.scale_bytes, from, to);
}

enum err cuda_copy_page(const struct cuda_pages *pages, uint32_t from, uint32_t to,
                        struct CUstream_st *stream, struct error *error) {
    if (pages->places == 0) return OK;
    if (pages->bytes % sizeof(uint4) != 0 || pages->scale_bytes % sizeof(uint4) != 0 ||
        pages->place_stride % sizeof(uint4) != 0 || !is_at_16(pages->k) || !is_at_16(pages->v) ||
        !is_at_16(pages->scales))
        return err_set(error, ERR_INVALID,
                       "pages of %u bytes and %u of scales, %zu from place to place, are not "
                       "multiples of 16",
                       pages->bytes, pages->scale_bytes, pages->place_stride);
    return launch_dependent("copy_page", error, stream, 2 * pages->places, THREADS, 0, copy_page,
                            *pages, from, to);
}

CUDA_MODULE(pages, copy_page)
