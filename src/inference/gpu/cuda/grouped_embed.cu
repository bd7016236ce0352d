/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_embed: rows of an embedding that stays codes in groups (grouped.h). A block per row; a
 * thread has eight neighbours at a time, whose codes are a word (of GROUPED_BYTES two). Lines of a
 * block of codes lie side by side, so a row reads all sectors of its block: 640 B for 32 numbers. A
 * step reads few rows. */

#include "gpu/cuda/grouped.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/unpack_types.cuh"

#define THREADS 256

/* Eight numbers of a line of a block, from the eighth `index` of the group on. */
template <int KIND>
__device__ static inline void embed_eight(float (&ret)[8], const char *codes, uint32_t scales,
                                          uint32_t line, uint32_t index) {
    const uint32_t *words = (const uint32_t *)codes + line % 8 * 16 + line / 8;
    if constexpr (KIND == GROUPED_BYTES) {
        const float scale = index < 2 ? cuda_low_f16(scales) : cuda_high_f16(scales);
        words += index / 2 * 128 + index % 2 * 8;
#pragma unroll
        for (int k = 0; k < 8; k++)
            ret[k] = __fmul_rn(scale, (float)((int)(words[k / 4 * 4] >> (k % 4 * 8) & 255u) - 32));
    } else {
        const uint32_t word = words[index * 4];
        struct grouped_factors by = grouped_factors((enum grouping)KIND, scales);
        if (KIND == GROUPED_E2M1) by = {__uint_as_float(scales << 16) * 0.5f, 0};
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t code = word >> grouped_shift(k) & 15u;
            ret[k] =
                __fmaf_rn(by.scale, (float)(KIND == GROUPED_E2M1 ? mxfp4_steps[code] : (int)code),
                          by.minimum);
        }
    }
}

template <int KIND>
__global__ void __launch_bounds__(THREADS) grouped_embed(struct cuda_grouped_embed call) {
    const uint32_t groups = call.table.inputs / GROUPED_INPUTS;
    const struct cuda_embed &rows = call.rows;
    const size_t row = blockIdx.x;
    wait_for_before();
    int32_t token = rows.tokens[row];
    if (token < 0) token = rows.last_token[~token];
    const uint32_t line = (uint32_t)token % GROUPED_LINES;
    const char *block = (const char *)call.table.at +
                        (uint32_t)token / GROUPED_LINES * grouped_block_bytes<KIND>(groups);
    const float *place =
        rows.positions ? rows.positions + (size_t)rows.places[row] * rows.width : NULL;
    for (uint32_t n = threadIdx.x; n < groups * 4; n += THREADS) {
        const uint32_t group = n / 4;
        const char *codes = block + (size_t)group * (KIND == GROUPED_BYTES ? 1024 : 512);
        const char *scales = block + (size_t)groups * (KIND == GROUPED_BYTES ? 1024 : 512) +
                             (size_t)group * GROUPED_SCALE_BYTES + (line % 8 * 4 + line / 8) * 4;
        float v[8];
        embed_eight<KIND>(v, codes, *(const uint32_t *)scales, line, n % 4);
        float *to = rows.x + row * rows.x_stride + n * 8;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] = __fmul_rn(v[k], rows.scale);
            if (place) v[k] = __fadd_rn(v[k], place[n * 8 + k]);
        }
        *(float4 *)to = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(to + 4) = make_float4(v[4], v[5], v[6], v[7]);
    }
}

template <int KIND>
static enum err launch_embed(const struct cuda_grouped_embed *call, cudaStream_t stream,
                             struct error *error) {
    return launch_dependent("grouped embed", error, stream, call->rows.rows, THREADS, 0,
                            grouped_embed<KIND>, *call);
}

enum err cuda_grouped_embed(const struct cuda_grouped_embed *call, struct CUstream_st *stream,
                            struct error *error) {
    const struct cuda_embed *rows = &call->rows;
    if (rows->rows == 0) return OK;
    if (call->table.kind == GROUPED_NOT || call->table.inputs != rows->width ||
        rows->width % GROUPED_INPUTS != 0 || rows->x_stride % 4 != 0 ||
        ((uintptr_t)rows->x & 15u) != 0)
        return err_set(error, ERR_INVALID, "an embedding of %u columns is no codes in groups",
                       rows->width);
    switch (call->table.kind) {
    case GROUPED_MINIMA: return launch_embed<GROUPED_MINIMA>(call, stream, error);
    case GROUPED_ZEROS: return launch_embed<GROUPED_ZEROS>(call, stream, error);
    case GROUPED_E2M1: return launch_embed<GROUPED_E2M1>(call, stream, error);
    default: return launch_embed<GROUPED_BYTES>(call, stream, error);
    }
}

CUDA_MODULE(grouped_embed, grouped_embed<GROUPED_MINIMA>)
