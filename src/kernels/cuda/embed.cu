/* SPDX-License-Identifier: Apache-2.0 */

/* embed: the rows of the embedding that a step begins with; keep: the rows that it samples from. */

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/vec.cuh"

#define THREADS 256
#define EMBED_THREADS_MAX 512

__global__ void __launch_bounds__(EMBED_THREADS_MAX) embed_rows(struct cuda_embed call) {
    wait_for_before();
    size_t row = blockIdx.x;
    int32_t token = call.tokens[row];
    if (token < 0) token = call.last_token[~token];
    const uint16_t *from = call.table + (size_t)token * call.width;
    float *x = call.x + row * call.x_stride;
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += blockDim.x * EACH) {
        eight v = read_bf16<EACH>(from + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= call.scale;
        write_f32(v, x + at);
    }
}

enum err cuda_embed(const struct cuda_embed *call, struct CUstream_st *stream,
                    struct error *error) {
    if (call->rows == 0) return OK;
    if (call->width % EACH != 0 || call->x_stride % 4 != 0 || !is_at_16(call->x) ||
        !is_at_16(call->table))
        return err_set(error, ERR_INVALID, "an embedding of %u columns cannot be read in eights",
                       call->width);
    const uint32_t threads = (call->width / EACH + 31) / 32 * 32; /* a row in one turn */
    return launch_dependent("embed", error, stream, call->rows,
                            threads < EMBED_THREADS_MAX ? threads : EMBED_THREADS_MAX, 0,
                            embed_rows, *call);
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
