/* SPDX-License-Identifier: Apache-2.0 */

/* norm: adds a product to the residual and leaves its RMS norm for the next product.
 *
 * 16 numbers a thread, so a row stays in registers between its two uses, and all rows of a usual
 * step are in flight at once. A block takes two rows where it can and reads the weights once, into
 * shared memory, past the registers, while the kernel before still runs: weights of 4 B for each
 * row would be a third of what the L2 has to give.
 *
 * Many rows go through a ring (norm_ring.cuh) instead on sm_90 and later, 10 to 20 % faster cold.
 * All kernels give a row the same bits, by the same functions in the same order. */

#include "gpu/cuda/modules.h"
#include "gpu/cuda/norm_ring.cuh"

#define BLOCK_ROWS_MAX 2
#define SHARED_THREADS_MAX 512 /* threads of a block of several rows */
#define WIDTH_MAX 12160        /* floats that, with `parts`, fit 48 KiB of shared memory */

/* Leaves x + h, or (x + rms_norm(h) · post) · x_scale, in r->x and in memory. */
template <int IN, bool POST, int N>
__device__ static inline void add_product(const struct cuda_norm &call, struct norm_row<N> *r,
                                          float2 *parts) {
    struct raw_sums<IN, N> raw[SPANS];
    struct numbers<N> h[SPANS];
    float row_scale = IN >= IN_BF16_SCALED && r->limit > 0 ? call.h.row_scale[r->row] : 1.0f;
    float squares = 0, factor = 1.0f;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = r->first + s * r->step;
        if (at < r->limit) raw[s] = read_sums<IN, N>(call.h, r->row, at);
    }
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = r->first + s * r->step;
        if (at >= r->limit) continue;
        h[s] = sums_of<IN>(call.h, row_scale, at, raw[s]);
        if (POST) squares = add_squares(squares, h[s]);
    }
    if (POST) factor = factor_of(call, row_sum_max(*r, make_float2(squares, 0.0f), parts).x);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = r->first + s * r->step;
        if (at >= r->limit) continue;
        struct numbers<N> post;
        if (POST) post = read_f32<N>(call.post + at);
        add_place<POST>(call, r->row, at, h[s], factor, post, &r->x[s]);
    }
}

template <int IN, int CODE, bool POST, int N>
__global__ void __maxnreg__(IN == IN_INT32 || POST ? 64 : 48)
    norm_rows(struct cuda_norm call, uint32_t row_threads) {
    extern __shared__ __align__(128) char cuda_memory[];
    CUDA_SHARED float2 parts[2][32];
    struct norm_row<N> r;
    uint32_t lane = threadIdx.x % row_threads;
    r.row = (size_t)blockIdx.x * (blockDim.x / row_threads) + threadIdx.x / row_threads;
    r.warps = row_threads / 32, r.first_warp = threadIdx.x / row_threads * r.warps;
    r.first = lane * N, r.step = row_threads * N, r.limit = r.row < call.rows ? call.width : 0;
    fetch_weights(call, cuda_memory);
    wait_for_before();
#pragma unroll
    for (int s = 0; s < SPANS; s++)
        if (r.first + s * r.step < r.limit)
            r.x[s] = read_f32<N>(call.x + r.row * call.x_stride + r.first + s * r.step);
    if (IN != IN_NONE) add_product<IN, POST>(call, &r, parts[0]);
    let_next_start();
    wait_for_weights();
    float2 sums = make_float2(0.0f, 0.0f); /* squares, and the largest magnitude */
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (r.first + s * r.step >= r.limit) continue;
        struct numbers<N> weight = weights_at<N>(call, cuda_memory, r.first + s * r.step);
        weigh_place<CODE>(weight, &r.x[s], &sums);
    }
    leave_row<CODE>(call, &r, row_sum_max(r, sums, parts[1]));
}

__device__ static inline float weight_at(const struct cuda_norm &call, uint32_t at) {
    if (!call.weight.is_bf16) return ((const float *)call.weight.at)[at];
    return bf16_float(((const uint16_t *)call.weight.at)[at]) + call.weight.plus;
}

/* Columns at..at+3 of x · weight for the next product, those past the row's end 0. */
__device__ static inline struct numbers<4> weighed_four(const struct cuda_norm &call,
                                                        const float *x, uint32_t at) {
    struct numbers<4> v = {};
    for (uint32_t i = 0; i < 4 && at + i < call.width; i++)
        v.at[i] = x[at + i] * weight_at(call, at + i);
    if (call.y.type == CUDA_INT8 && at + 4 <= call.width) mix_four(v.at);
    return v;
}

/* Any width, any alignment: three walks over the row, two of them by fours. A thread reads back
 * only its own values. */
__global__ void
norm_rows_plain(struct cuda_norm call) {
    CUDA_SHARED float2 parts[2][32];
    size_t row = blockIdx.x;
    float *x = call.x + row * call.x_stride;
    float factor = 1.0f;
    wait_for_before();
    if (call.h.sums && call.post) {
        float squares = 0;
        for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x) {
            float h = sum_at(call.h, row, i);
            squares += h * h;
        }
        squares = block_sum_max(make_float2(squares, 0.0f), parts[0]).x;
        factor = factor_of(call, squares);
    }
    float2 sums = make_float2(0.0f, 0.0f);
    for (uint32_t at = threadIdx.x * 4; at < call.width; at += blockDim.x * 4) {
        for (uint32_t i = at; i < at + 4 && i < call.width; i++) {
            float h = call.h.sums ? sum_at(call.h, row, i) : 0.0f;
            if (call.h.sums) x[i] += call.post ? h * factor * call.post[i] : h;
            if (call.h.sums && call.post) x[i] *= call.x_scale;
            sums.x += x[i] * x[i];
        }
        struct numbers<4> v = {};
        if (call.y.codes) v = weighed_four(call, x, at);
        for (int i = 0; i < 4; i++) sums.y = fmaxf(sums.y, fabsf(v.at[i]));
    }
    if (!call.y.codes) return;
    sums = block_sum_max(sums, parts[1]);
    factor = call.is_bare ? 1.0f : factor_of(call, sums.x);
    if (call.y.type != CUDA_BF16) {
        float scale = call.y.type == CUDA_E4M3 ? scale_of<CUDA_E4M3>(sums.y * factor)
                                               : scale_of<CUDA_INT8>(sums.y * factor);
        if (threadIdx.x == 0) call.y.scale[row] = scale;
        factor /= scale;
    }
    for (uint32_t at = threadIdx.x * 4; at < call.width; at += blockDim.x * 4) {
        struct numbers<4> v = weighed_four(call, x, at);
        for (uint32_t i = 0; i < 4 && at + i < call.width; i++)
            store_one(call.y, row, at + i, v.at[i] * factor);
    }
}

/* ---- the choice ---- */

typedef void (*norm_kernel)(struct cuda_norm call, uint32_t row_threads);

template <int IN, bool POST>
static norm_kernel kernel_of(enum cuda_code code, uint32_t row_threads) {
    if (code == CUDA_E4M3) return norm_rows<IN, CUDA_E4M3, POST, 4>;
    if (code == CUDA_INT8) return norm_rows<IN, CUDA_INT8, POST, 4>;
    if (at_once(code, POST, row_threads) == 4) return norm_rows<IN, CUDA_BF16, POST, 4>;
    return norm_rows<IN, CUDA_BF16, POST, 8>;
}

static norm_kernel kernel_for(const struct cuda_norm *call, uint32_t row_threads) {
    switch (in_kind_of(&call->h)) {
    case IN_BF16:
        return call->post ? kernel_of<IN_BF16, true>(call->y.type, row_threads)
                          : kernel_of<IN_BF16, false>(call->y.type, row_threads);
    case IN_BF16_SCALED:
        return call->post ? kernel_of<IN_BF16_SCALED, true>(call->y.type, row_threads)
                          : kernel_of<IN_BF16_SCALED, false>(call->y.type, row_threads);
    case IN_INT32:
        return call->post ? kernel_of<IN_INT32, true>(call->y.type, row_threads)
                          : kernel_of<IN_INT32, false>(call->y.type, row_threads);
    default: return kernel_of<IN_NONE, false>(call->y.type, row_threads);
    }
}

static bool is_wide(const struct cuda_norm *call) {
    return call->width % EACH == 0 && call->width <= WIDTH_MAX && call->x_stride % 4 == 0 &&
           is_at_16(call->x) && is_at_16(call->weight.at) && is_at_16(call->post) &&
           (!call->h.sums || is_product_wide(&call->h)) && call->y.codes && is_rows_wide(&call->y);
}

enum err cuda_norm(const struct cuda_norm *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    if (!is_wide(call))
        return launch_dependent("norm", error, stream, call->rows, 256, 0, norm_rows_plain, *call);
    uint32_t threads = ((call->width + THREAD_NUMBERS - 1) / THREAD_NUMBERS + 31) / 32 * 32;
    enum err code = OK;
    if (try_ring(call, threads, stream, error, &code)) return code;
    uint32_t block_rows = threads * BLOCK_ROWS_MAX <= SHARED_THREADS_MAX && call->rows >= MANY_ROWS
                              ? BLOCK_ROWS_MAX
                              : 1;
    return launch_dependent("norm", error, stream, (call->rows + block_rows - 1) / block_rows,
                            threads * block_rows, call->width * (call->weight.is_bf16 ? 2 : 4),
                            kernel_for(call, threads), *call, threads);
}

CUDA_MODULE(norm, norm_rows_plain)
