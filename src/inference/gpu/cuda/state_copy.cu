/* SPDX-License-Identifier: Apache-2.0 */

/* state_copy: copies of states from slot to slot, all of a step in one launch. */

#include "gpu/cuda/recurrent.cuh"

#define THREADS 256
#define AT_ONCE 4                      /* 16-byte accesses of a thread under way */
#define PART_WORDS (THREADS * AT_ONCE) /* units of 16 bytes: what a block copies at a time */
#define PARTS_MAX 8                    /* blocks per slot and place */

/* Block: part of a slot, then place, then copy. */
__global__ void __launch_bounds__(THREADS)
    state_copy(struct cuda_state_copies call, uint32_t parts) {
    const uint32_t part = blockIdx.x % parts, place = blockIdx.x / parts % call.places;
    wait_for_before();
    let_next_start();
    const struct cuda_state_copy copy = call.copies[blockIdx.x / parts / call.places];
    const bool is_old = copy.from != CUDA_STATE_NONE;
    char *base = (char *)call.at + place * call.place_stride;
    const uint4 *from = (const uint4 *)(base + (is_old ? copy.from : copy.to) * call.slot_stride);
    uint4 *to = (uint4 *)(base + copy.to * call.slot_stride);
    const size_t words = call.bytes / sizeof(uint4);
    for (size_t at = (size_t)part * PART_WORDS; at < words; at += (size_t)parts * PART_WORDS) {
        uint4 some[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const size_t own = at + i * THREADS + threadIdx.x;
            some[i] = make_uint4(0, 0, 0, 0);
            if (is_old && own < words) some[i] = __ldcs(from + own);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const size_t own = at + i * THREADS + threadIdx.x;
            if (own < words) __stcs(to + own, some[i]);
        }
    }
}

enum err cuda_copy_states(const struct cuda_state_copies *call, struct CUstream_st *stream,
                          struct error *error) {
    if (call->bytes % 16 != 0 || call->slot_stride % 16 != 0 || call->place_stride % 16 != 0 ||
        !is_at_16(call->at))
        return err_set(
            error, ERR_INVALID,
            "states of %zu bytes, %zu from slot to slot and %zu from place to place, are "
            "not multiples of 16",
            call->bytes, call->slot_stride, call->place_stride);
    if (call->copy_count == 0 || call->places == 0 || call->bytes == 0) return OK;
    const size_t most = (call->bytes / sizeof(uint4) + PART_WORDS - 1) / PART_WORDS;
    const uint32_t parts = most < PARTS_MAX ? (uint32_t)most : PARTS_MAX;
    return launch_dependent("state_copy", error, stream, call->copy_count * call->places * parts,
                            THREADS, 0, state_copy, *call, parts);
}

CUDA_MODULE(state_copy, state_copy)
