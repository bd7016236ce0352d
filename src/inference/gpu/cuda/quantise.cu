/* SPDX-License-Identifier: Apache-2.0 */

/* quantise: rows of attention, or of a gated product, as codes of 8 bits. A row stays in registers
 * while its largest magnitude is found; the second read of a still wider row finds it in the L1.
 * Usually a block has a row. Many narrow rows, as experts leave them, have a warp each: a block of
 * three warps per row spends its time on beginning and on meetings. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256       /* for rows that are read twice */
#define HELD_THREADS 1024 /* at most */
#define WARPS 8           /* rows of a block, a warp each */
#define WARP_ROWS 2048    /* enough rows for warps to fill the GPU */

/* A thread has SPANS eights, a warp's in one piece. */
template <int CODE, int SPANS>
__global__ void __launch_bounds__(HELD_THREADS) quantise_held(struct cuda_quantise call) {
    CUDA_SHARED uint32_t parts[32];
    const size_t row = blockIdx.x;
    const uint16_t *from = (const uint16_t *)call.from + row * call.from_stride;
    const uint32_t first = (threadIdx.x / 32 * 32 * SPANS + threadIdx.x % 32) * EACH;
    struct words<EACH / 2> raw[SPANS];
    float most = 0;
    wait_for_before();
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = first + s * 32 * EACH;
        if (at < call.width) raw[s] = read_words<EACH / 2>(from + at);
    }
    let_next_start();
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (first + s * 32 * EACH >= call.width) continue;
        eight v = bf16_numbers<EACH>(raw[s].at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v.at[i]));
    }
    const float scale = scale_of<CODE>(block_max(most, parts)), factor = 1.0f / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = first + s * 32 * EACH;
        if (at >= call.width) continue;
        eight v = bf16_numbers<EACH>(raw[s].at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= factor;
        store<CODE>(call.y, row, at, v);
    }
}

/* A warp has a row, SPANS eights in a lane. */
template <int CODE, int SPANS>
__global__ void __launch_bounds__(WARPS * 32) quantise_warps(struct cuda_quantise call) {
    const size_t row = blockIdx.x * (size_t)WARPS + threadIdx.x / 32;
    const uint16_t *from = (const uint16_t *)call.from + row * call.from_stride;
    const uint32_t first = threadIdx.x % 32 * EACH;
    struct words<EACH / 2> raw[SPANS];
    float most = 0;
    wait_for_before();
    let_next_start();
    if (row >= call.rows) return;
#pragma unroll
    for (int s = 0; s < SPANS; s++)
        if (first + s * 32 * EACH < call.width)
            raw[s] = read_words<EACH / 2>(from + first + s * 32 * EACH);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (first + s * 32 * EACH >= call.width) continue;
        eight v = bf16_numbers<EACH>(raw[s].at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v.at[i]));
    }
    most = __uint_as_float(__reduce_max_sync(CUDA_ALL_LANES, __float_as_uint(most)));
    const float scale = scale_of<CODE>(most), factor = 1.0f / scale;
    if (threadIdx.x % 32 == 0) call.y.scale[row] = scale;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = first + s * 32 * EACH;
        if (at >= call.width) continue;
        eight v = bf16_numbers<EACH>(raw[s].at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= factor;
        store<CODE>(call.y, row, at, v);
    }
}

template <int CODE>
__global__ void __launch_bounds__(THREADS) quantise_rows(struct cuda_quantise call) {
    CUDA_SHARED uint32_t parts[32];
    const size_t row = blockIdx.x;
    const uint16_t *from = (const uint16_t *)call.from + row * call.from_stride;
    float most = 0;
    wait_for_before();
    let_next_start();
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = read_bf16(from + at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v.at[i]));
    }
    const float scale = scale_of<CODE>(block_max(most, parts));
    const float factor = 1.0f / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = read_bf16(from + at);
        mix<CODE>(&v);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= factor;
        store<CODE>(call.y, row, at, v);
    }
}

typedef void (*quantise_kernel)(struct cuda_quantise call);

template <int CODE> static quantise_kernel kernel_of(uint32_t spans) {
    if (spans == 1) return quantise_held<CODE, 1>;
    if (spans == 2) return quantise_held<CODE, 2>;
    return spans == 4 ? quantise_held<CODE, 4> : quantise_rows<CODE>;
}

template <int CODE> static quantise_kernel warps_of(uint32_t eights) {
    if (eights <= 2 * 32) return quantise_warps<CODE, 2>;
    if (eights <= 3 * 32) return quantise_warps<CODE, 3>;
    if (eights <= 4 * 32) return quantise_warps<CODE, 4>;
    return eights <= 8 * 32 ? quantise_warps<CODE, 8> : quantise_warps<CODE, 12>;
}

enum err cuda_quantise(const struct cuda_quantise *call, struct CUstream_st *stream,
                       struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    if (call->width % EACH != 0 || call->from_stride % EACH != 0 || !is_at_16(call->from) ||
        !is_rows_wide(&call->y) || call->y.type == CUDA_BF16)
        return err_set(error, ERR_INVALID, "rows of %u numbers cannot be quantised", call->width);
    const uint32_t eights = call->width / EACH;
    if (call->rows >= WARP_ROWS && eights <= 12 * 32)
        return launch_dependent("quantise", error, stream, (call->rows + WARPS - 1) / WARPS,
                                WARPS * 32, 0,
                                call->y.type == CUDA_E4M3 ? warps_of<CUDA_E4M3>(eights)
                                                          : warps_of<CUDA_INT8>(eights),
                                *call);
    const uint32_t spans = eights <= 256       ? 1
                           : eights <= 2 * 256 ? 2
                           : eights <= 4 * HELD_THREADS ? 4
                                                        : 0; /* read twice */
    const uint32_t threads = spans ? (eights + 32 * spans - 1) / (32 * spans) * 32 : THREADS;
    const quantise_kernel kernel =
        call->y.type == CUDA_E4M3 ? kernel_of<CUDA_E4M3>(spans) : kernel_of<CUDA_INT8>(spans);
    return launch_dependent("quantise", error, stream, call->rows, threads, 0, kernel, *call);
}

CUDA_MODULE(quantise, quantise_rows<CUDA_INT8>)
