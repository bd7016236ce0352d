/* SPDX-License-Identifier: Apache-2.0 */

/* embed: the rows of the embedding that a step begins with; keep: the rows that it samples from. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define EMBED_THREADS 128
#define EMBED_THREADS_MAX 256
#define EMBED_EACH 4  /* numbers a thread moves at a time, so that a warp writes whole sectors */
#define EMBED_TURNS 5 /* reads of a thread at once: all of a row of 2,560 for 128 threads */

/* A block per row. It waits for memory twice, for the token and for the row, because each thread
 * asks for all its numbers before it writes one. Blocks are so small that 2,048 of them fit 132
 * multiprocessors at once. */
__global__ void __launch_bounds__(EMBED_THREADS_MAX) embed_rows(struct cuda_embed call) {
    const uint32_t step = blockDim.x * EMBED_EACH;
    const size_t row = blockIdx.x;
    wait_for_before();
    int32_t token = call.tokens[row];
    if (token < 0) token = call.last_token[~token];
    const uint16_t *from = call.table + (size_t)token * call.width;
    const float *place =
        call.positions ? call.positions + (size_t)call.places[row] * call.width : NULL;
    float *x = call.x + row * call.x_stride;
    for (uint32_t at = threadIdx.x * EMBED_EACH; at < call.width; at += EMBED_TURNS * step) {
        struct words<EMBED_EACH / 2> raw[EMBED_TURNS];
#pragma unroll
        for (uint32_t i = 0; i < EMBED_TURNS; i++)
            if (at + i * step < call.width)
                raw[i] = read_words<EMBED_EACH / 2>(from + at + i * step);
#pragma unroll
        for (uint32_t i = 0; i < EMBED_TURNS; i++) {
            if (at + i * step >= call.width) continue;
            struct numbers<EMBED_EACH> v = bf16_numbers<EMBED_EACH>(raw[i].at);
#pragma unroll
            for (int j = 0; j < EMBED_EACH; j++) v.at[j] *= call.scale;
            if (place) {
                const struct numbers<EMBED_EACH> more = read_f32<EMBED_EACH>(place + at + i * step);
#pragma unroll
                for (int j = 0; j < EMBED_EACH; j++) v.at[j] = __fadd_rn(v.at[j], more.at[j]);
            }
            write_f32(v, x + at + i * step);
        }
    }
}

enum err cuda_embed(const struct cuda_embed *call, struct CUstream_st *stream,
                    struct error *error) {
    if (call->rows == 0) return OK;
    if (call->width % EACH != 0 || call->x_stride % 4 != 0 || !is_at_16(call->x) ||
        !is_at_16(call->table) || !is_at_16(call->positions))
        return err_set(error, ERR_INVALID, "an embedding of %u columns cannot be read in eights",
                       call->width);
    const bool is_narrow = call->width <= EMBED_THREADS * EMBED_EACH * EMBED_TURNS;
    return launch_dependent("embed", error, stream, call->rows,
                            is_narrow ? EMBED_THREADS : EMBED_THREADS_MAX, 0, embed_rows, *call);
}

template <class T> __global__ void __launch_bounds__(THREADS) keep_rows(struct cuda_keep call) {
    wait_for_before();
    size_t row = blockIdx.x;
    const T *from = (const T *)((const char *)call.from + call.from_rows[row] * call.from_bytes);
    T *to = (T *)((char *)call.to + row * call.row_bytes);
    for (size_t at = threadIdx.x; at < call.row_bytes / sizeof(T); at += THREADS) to[at] = from[at];
}

enum err cuda_keep(const struct cuda_keep *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0 || call->row_bytes == 0) return OK;
    bool is_wide = call->from_bytes % 16 == 0 && call->row_bytes % 16 == 0 &&
                   is_at_16(call->from) && is_at_16(call->to);
    return launch_dependent("keep", error, stream, call->rows, THREADS, 0,
                            is_wide ? keep_rows<uint4> : keep_rows<uint8_t>, *call);
}

CUDA_MODULE(embed, embed_rows)
