/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* norm_parts: the common parts of the kernels of norm. A row must have the same bits from each of
 * them, so they add, weigh and store it by these functions. */

#include "gpu/cuda/vec.cuh"

#define THREAD_NUMBERS 16
#define MANY_ROWS 512 /* enough for two rows of a block, and for blocks that stay */

/* Weights go to shared memory past the registers, while the kernel before still runs. */
__device__ static inline void fetch_weights(const struct cuda_norm &call, char *shared) {
    uint32_t bytes = call.width * (call.weight.is_bf16 ? 2 : 4);
    for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
        cuda_copy16(cuda_shared_address(shared + at), (const char *)call.weight.at + at);
}

__device__ static inline void wait_for_weights(void) {
    cuda_copy_commit();
    cuda_copy_wait<0>();
    __syncthreads();
}

template <int N>
__device__ static inline struct numbers<N> weights_at(const struct cuda_norm &call,
                                                      const char *shared, uint32_t at) {
    if (!call.weight.is_bf16) return read_f32<N>((const float *)shared + at);
    struct numbers<N> v = read_bf16<N>((const uint16_t *)shared + at);
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] += call.weight.plus;
    return v;
}

/* Numbers that a thread moves at a time. All kernels of a form and width have the same, and so one
 * order of sums. Fours are faster for 8-bit codes. For bf16 eights are, but in the rings of 2,048
 * and 4,096 numbers, of 128 and 256 threads, and with a post norm in that of 2,560, of 160. */
__host__ __device__ static constexpr int
at_once(int code, bool has_post, uint32_t row_threads) {
    const bool is_ring_of_fours =
        row_threads == 128 || row_threads == 256 || (has_post && row_threads == 160);
    return code != CUDA_BF16 || is_ring_of_fours ? 4 : 8;
}

/* A thread's share of its row: N numbers in SPANS places. */
#define SPANS (THREAD_NUMBERS / N)

template <int N> struct norm_row {
    struct numbers<N> x[SPANS];
    uint32_t first; /* first of its columns; the next place is `step` away */
    uint32_t step;
    uint32_t limit; /* the width; 0 for a row past the last */
    size_t row;
    uint32_t first_warp; /* the row's first warp in the block */
    uint32_t warps;
};

/* block_sum_max over the threads of a row. */
template <int N>
__device__ static inline float2 row_sum_max(const struct norm_row<N> &r, float2 v, float2 *parts) {
    v = warp_sum_max(v);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    float2 all = parts[r.first_warp];
    for (uint32_t i = 1; i < r.warps; i++) {
        all.x += parts[r.first_warp + i].x;
        all.y = fmaxf(all.y, parts[r.first_warp + i].y);
    }
    return all;
}

__device__ static inline float factor_of(const struct cuda_norm &call, float squares) {
    return cuda_rsqrt(__fmaf_rn(squares, cuda_reciprocal((float)call.width), call.epsilon));
}

/* The sum of squares, one rounding per number. */
template <int N>
__device__ static inline float add_squares(float squares, const struct numbers<N> &v) {
#pragma unroll
    for (int i = 0; i < N; i++) squares = __fmaf_rn(v.at[i], v.at[i], squares);
    return squares;
}

/* Leaves x + h, or (x + h · factor · post) · x_scale, in *x and in memory. Two kernels call it and
 * must round alike, so the instructions are named. */
template <bool POST, int N>
__device__ static inline void add_place(const struct cuda_norm &call, size_t row, uint32_t at,
                                        const struct numbers<N> &h, float factor,
                                        const struct numbers<N> &post, struct numbers<N> *x) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x->at[i] = POST ? __fmul_rn(__fmaf_rn(__fmul_rn(h.at[i], factor), post.at[i], x->at[i]),
                                    call.x_scale)
                        : __fadd_rn(x->at[i], h.at[i]);
    write_f32(*x, call.x + row * call.x_stride + at);
}

/* Adds the squares of x to sums->x and replaces x by x · weight, mixed where the code is INT8.
 * sums->y keeps the largest magnitude of the new values. */
template <int CODE, int N>
__device__ static inline void weigh_place(const struct numbers<N> &weight, struct numbers<N> *x,
                                          float2 *sums) {
    sums->x = add_squares(sums->x, *x);
#pragma unroll
    for (int i = 0; i < N; i++) x->at[i] = __fmul_rn(x->at[i], weight.at[i]);
    mix<CODE>(x);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (CODE != CUDA_BF16) sums->y = fmaxf(sums->y, fabsf(x->at[i]));
}

/* scale_of() without a division. */
template <int CODE> __device__ static inline float row_scale_of(float most) {
    return fmaxf(most * (1.0f / (CODE == CUDA_E4M3 ? E4M3_MAX : INT8_MAX_CODE)), SCALE_MIN);
}

/* Stores a row for the next product, from the values that weigh_place left in the threads. */
template <int CODE, int N>
__device__ static inline void leave_row(const struct cuda_norm &call, struct norm_row<N> *r,
                                        float2 sums) {
    float factor = call.is_bare ? 1.0f : factor_of(call, sums.x);
    if (CODE != CUDA_BF16) {
        const float scale = row_scale_of<CODE>(sums.y * factor);
        if (r->first == 0 && r->limit > 0) call.y.scale[r->row] = scale;
        factor *= cuda_reciprocal(scale);
    }
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        if (r->first + s * r->step >= r->limit) continue;
#pragma unroll
        for (int i = 0; i < N; i++) r->x[s].at[i] *= factor;
        store<CODE>(call.y, r->row, r->first + s * r->step, r->x[s]);
    }
}
