/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* norm_ring: norm of many rows by blocks that stay, whose rows come through a ring (ring.cuh).
 *
 * A thread reads weights and scales of its columns once, for all rows of its block, into
 * registers. A product with a norm of its own (`post`) has a kernel of its own, for widths that
 * leave no thread without a column; it has one barrier per row instead of two. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/norm_parts.cuh"
#include "gpu/cuda/ring.cuh"

/* Three, when tried: 2,048 × 2,560 17.1 µs against 17.3, 1,024 × 4,096 16.2 against 15.0. */
#define RING_ROWS 2
#define RING_PLACE_BYTES(THREADS) ((THREADS)*THREAD_NUMBERS * 6) /* x, then h */

/* What a thread needs for every row, read once. */
template <int N> struct norm_columns { struct numbers<N> weight[SPANS], scale[SPANS]; };

template <int IN, int N, uint32_t THREADS>
__device__ static inline struct norm_columns<N> columns_of(const struct cuda_norm &call) {
    struct norm_columns<N> columns;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = (threadIdx.x + s * THREADS) * N;
        if (at >= call.width) continue;
        columns.weight[s] = weights_at<N>(call, (const char *)call.weight.at, at);
        if (IN == IN_BF16_SCALED) columns.scale[s] = read_bf16<N>(call.h.column_scale + at);
    }
    return columns;
}

/* Starts the copies of a row, if the call has it. */
template <uint32_t THREADS>
__device__ static inline void fetch_row(const struct cuda_norm &call, size_t row, char *to,
                                        uint64_t *full) {
    if (row >= call.rows) return;
    ring_expect(full, call.width * 6);
    ring_fetch(full, to, call.x + row * call.x_stride, call.width * 4);
    ring_fetch(full, to + THREADS * THREAD_NUMBERS * 4,
               (const uint16_t *)call.h.sums + row * call.h.stride, call.width * 2);
}

/* add_product and weigh_place of a row that is in the ring. Its h is read again after the sum of
 * its squares: shared memory has it, and registers would not. */
template <int IN, int CODE, bool POST, uint32_t THREADS, int N>
__device__ static inline float2 take_row(const struct cuda_norm &call,
                                         const struct norm_columns<N> &columns, const char *place,
                                         float row_scale, struct norm_row<N> *r, float2 *parts) {
    const uint16_t *h = (const uint16_t *)(place + THREADS * THREAD_NUMBERS * 4);
    auto h_at = [&](int s, uint32_t at) {
        const struct raw_sums<IN, N> raw = { read_words<N / 2>(h + at) };
        return scaled_sums<IN, N>(call.h, row_scale, columns.scale[s], at, raw);
    };
    float squares = 0, factor = 1.0f;
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int s = 0; POST && s < SPANS; s++)
        if (r->first + s * r->step < r->limit)
            squares = add_squares(squares, h_at(s, r->first + s * r->step));
    if (POST) factor = factor_of(call, row_sum_max(*r, make_float2(squares, 0.0f), parts).x);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = r->first + s * r->step;
        if (at >= r->limit) continue;
        struct numbers<N> post;
        if (POST) post = read_f32<N>(call.post + at);
        r->x[s] = read_f32<N>((const float *)place + at);
        add_place<POST>(call, r->row, at, h_at(s, at), factor, post, &r->x[s]);
        weigh_place<CODE>(columns.weight[s], &r->x[s], &sums);
    }
    return sums;
}

template <int IN, int CODE, bool POST, uint32_t THREADS, uint32_t BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) norm_ring(struct cuda_norm call) {
    constexpr int N = at_once(CODE, POST, THREADS);
    extern __shared__ __align__(128) char cuda_memory[];
    CUDA_SHARED __align__(8) uint64_t full[RING_ROWS];
    CUDA_SHARED float2 parts[2][2][32]; /* for two rows: a warp may be a row ahead of another */
    const struct norm_columns<N> columns = columns_of<IN, N, THREADS>(call);
    struct norm_row<N> r;
    r.first = threadIdx.x * N, r.step = THREADS * N, r.limit = call.width;
    r.first_warp = 0, r.warps = THREADS / 32;
    ring_open(full, RING_ROWS);
    wait_for_before();
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < RING_ROWS; i++)
            fetch_row<THREADS>(call, blockIdx.x + (size_t)i * gridDim.x,
                               cuda_memory + i * RING_PLACE_BYTES(THREADS), full + i);
    let_next_start();
    float row_scale = IN == IN_BF16_SCALED ? call.h.row_scale[blockIdx.x] : 1.0f;
    uint32_t at = 0, parity = 0, turn = 0;
    for (r.row = blockIdx.x; r.row < call.rows; r.row += gridDim.x, turn ^= 1) {
        const size_t next = r.row + gridDim.x;
        const float next_scale =
            IN == IN_BF16_SCALED && next < call.rows ? call.h.row_scale[next] : 1.0f;
        char *place = cuda_memory + at * RING_PLACE_BYTES(THREADS);
        ring_wait(full + at, parity);
        float2 sums =
            take_row<IN, CODE, POST, THREADS>(call, columns, place, row_scale, &r, parts[turn][0]);
        sums = row_sum_max(r, sums, parts[turn][1]); /* its barrier frees the place */
        if (threadIdx.x == 0)
            fetch_row<THREADS>(call, r.row + (size_t)RING_ROWS * gridDim.x, place, full + at);
        leave_row<CODE>(call, &r, sums);
        row_scale = next_scale;
        if (++at == RING_ROWS) at = 0, parity ^= 1;
    }
}

/* ---- with a post norm, rows as wide as their threads, and no bias: no branch is left ---- */

#define AHEAD_ROWS 3 /* a row is waited for while the one before it still has its place */

/* Sums over a row's threads: of the squares of x, of those of the next row's h, and the largest
 * magnitude. */
struct ahead_sums {
    float squares, next, most;
};

/* Sums as row_sum_max() does, all by one barrier. */
template <int CODE, uint32_t THREADS>
__device__ static inline struct ahead_sums sum_ahead(struct ahead_sums v, float4 *parts) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        v.squares += __shfl_xor_sync(CUDA_ALL_LANES, v.squares, apart);
        v.next += __shfl_xor_sync(CUDA_ALL_LANES, v.next, apart);
        if (CODE != CUDA_BF16)
            v.most = fmaxf(v.most, __shfl_xor_sync(CUDA_ALL_LANES, v.most, apart));
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = {v.squares, v.next, v.most, 0.0f};
    __syncthreads();
    float4 all = parts[0];
#pragma unroll
    for (uint32_t i = 1; i < THREADS / 32; i++) {
        const float4 part = parts[i];
        all.x += part.x, all.y += part.y, all.z = fmaxf(all.z, part.z);
    }
    return {all.x, all.y, all.z};
}

/* Numbers of h that this thread has at its place `s`. */
template <int IN, int N, uint32_t THREADS>
__device__ static inline struct numbers<N> ahead_h(const struct cuda_product &product,
                                                   const struct norm_columns<N> &columns,
                                                   const char *place, float row_scale, int s) {
    const uint16_t *h = (const uint16_t *)(place + THREADS * THREAD_NUMBERS * 4);
    const uint32_t at = (threadIdx.x + s * THREADS) * N;
    const struct raw_sums<IN, N> raw = { read_words<N / 2>(h + at) };
    return scaled_sums<IN, N>(product, row_scale, columns.scale[s], at, raw);
}

template <int IN, int N, uint32_t THREADS>
__device__ static inline float ahead_squares(const struct cuda_product &product,
                                             const struct norm_columns<N> &columns,
                                             const char *place, float row_scale) {
    float squares = 0;
#pragma unroll
    for (int s = 0; s < SPANS; s++)
        squares =
            add_squares(squares, ahead_h<IN, N, THREADS>(product, columns, place, row_scale, s));
    return squares;
}

/* The squares of a row's h are summed while the row before is in work, together with the sums of
 * that row: one barrier per row, and one wait for it. */
template <int IN, int CODE, uint32_t THREADS, uint32_t BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) norm_ring_ahead(struct cuda_norm call) {
    constexpr int N = at_once(CODE, true, THREADS);
    constexpr uint32_t PLACE = RING_PLACE_BYTES(THREADS);
    extern __shared__ __align__(128) char cuda_memory[];
    CUDA_SHARED __align__(8) uint64_t full[AHEAD_ROWS];
    CUDA_SHARED float4 parts[2][THREADS / 32]; /* for two rows: a warp may be a row ahead */
    const struct norm_columns<N> columns = columns_of<IN, N, THREADS>(call);
    struct cuda_product product = call.h;
    struct numbers<N> post[SPANS];
    struct norm_row<N> r;
    product.bias = NULL, call.width = THREADS * THREAD_NUMBERS; /* known to the compiler */
    r.first = threadIdx.x * N, r.step = THREADS * N, r.limit = call.width;
#pragma unroll
    for (int s = 0; s < SPANS; s++) post[s] = read_f32<N>(call.post + r.first + s * r.step);
    ring_open(full, AHEAD_ROWS);
    wait_for_before();
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < AHEAD_ROWS)
        fetch_row<THREADS>(call, blockIdx.x + (size_t)(threadIdx.x / 32) * gridDim.x,
                           cuda_memory + threadIdx.x / 32 * PLACE, full + threadIdx.x / 32);
    let_next_start();
    float row_scale = IN == IN_BF16_SCALED ? call.h.row_scale[blockIdx.x] : 1.0f;
    struct ahead_sums sums = {};
    ring_wait(full, 0);
    sums.next = ahead_squares<IN, N, THREADS>(product, columns, cuda_memory, row_scale);
    sums = sum_ahead<CUDA_BF16, THREADS>(sums, parts[1]);
    uint32_t at = 0, parity = 0, turn = 0;
    for (r.row = blockIdx.x; r.row < call.rows; r.row += gridDim.x, turn ^= 1) {
        const size_t next = r.row + gridDim.x;
        const float next_scale =
            IN == IN_BF16_SCALED && next < call.rows ? call.h.row_scale[next] : 1.0f;
        const float factor = factor_of(call, sums.next);
        char *place = cuda_memory + at * PLACE;
        uint64_t *place_full = full + at;
        float2 of_x = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int s = 0; s < SPANS; s++) {
            r.x[s] = read_f32<N>((const float *)place + r.first + s * r.step);
            const struct numbers<N> h =
                ahead_h<IN, N, THREADS>(product, columns, place, row_scale, s);
            add_place<true>(call, r.row, r.first + s * r.step, h, factor, post[s], &r.x[s]);
            weigh_place<CODE>(columns.weight[s], &r.x[s], &of_x);
        }
        if (++at == AHEAD_ROWS) at = 0, parity ^= 1;
        sums = {of_x.x, 0.0f, of_x.y};
        if (next < call.rows) {
            ring_wait(full + at, parity);
            sums.next = ahead_squares<IN, N, THREADS>(product, columns, cuda_memory + at * PLACE,
                                                      next_scale);
        }
        sums = sum_ahead<CODE, THREADS>(sums, parts[turn]); /* its barrier frees the place */
        if (threadIdx.x == 0)
            fetch_row<THREADS>(call, r.row + (size_t)AHEAD_ROWS * gridDim.x, place, place_full);
        leave_row<CODE>(call, &r, make_float2(sums.squares, sums.most));
        row_scale = next_scale;
    }
}

/* ---- the choice of a ring ---- */

/* Launches a kernel with a ring of `rows` if the blocks that were measured fit the GPU; false if
 * not. */
template <auto KERNEL, uint32_t THREADS, uint32_t BLOCKS>
static bool launch_with_ring(const struct cuda_norm *call, uint32_t rows, cudaStream_t stream,
                             struct error *error, enum err *ret_code) {
    const uint32_t bytes = rows * RING_PLACE_BYTES(THREADS);
    uint32_t blocks = cuda_blocks_held<KERNEL>(THREADS, bytes, BLOCKS);
    if (blocks == 0) return false;
    if (blocks > call->rows) blocks = call->rows;
    *ret_code = launch_dependent("norm", error, stream, blocks, THREADS, bytes, KERNEL, *call);
    return true;
}

template <int IN, int CODE, bool POST, uint32_t THREADS, uint32_t BLOCKS>
static bool launch_ring(const struct cuda_norm *call, cudaStream_t stream, struct error *error,
                        enum err *ret_code) {
    if constexpr (POST && !(IN == IN_BF16_SCALED && THREADS == 256)) { /* too few registers */
        constexpr auto AHEAD = norm_ring_ahead<IN, CODE, THREADS, BLOCKS>;
        if (call->width == THREADS * THREAD_NUMBERS && !call->h.bias &&
            launch_with_ring<AHEAD, THREADS, BLOCKS>(call, AHEAD_ROWS, stream, error, ret_code))
            return true;
    }
    return launch_with_ring<norm_ring<IN, CODE, POST, THREADS, BLOCKS>, THREADS, BLOCKS>(
        call, RING_ROWS, stream, error, ret_code);
}

template <int IN, int CODE, uint32_t THREADS, uint32_t BLOCKS>
static bool launch_ring_post(const struct cuda_norm *call, cudaStream_t stream, struct error *error,
                             enum err *ret_code) {
    return call->post
               ? launch_ring<IN, CODE, true, THREADS, BLOCKS>(call, stream, error, ret_code)
               : launch_ring<IN, CODE, false, THREADS, BLOCKS>(call, stream, error, ret_code);
}

/* Widths of 128, 160 and 256 threads, up to 2,048, 2,560 and 4,096, have a ring; others were not
 * measured. */
template <int IN, int CODE>
static bool launch_ring_of(const struct cuda_norm *call, uint32_t threads, cudaStream_t stream,
                           struct error *error, enum err *ret_code) {
    if (threads == 128) return launch_ring_post<IN, CODE, 128, 5>(call, stream, error, ret_code);
    if (threads == 160) return launch_ring_post<IN, CODE, 160, 4>(call, stream, error, ret_code);
    if (threads == 256) return launch_ring_post<IN, CODE, 256, 3>(call, stream, error, ret_code);
    return false;
}

/* Sums of bf16 to bf16 or, as scaled.h leaves them, to INT8; with scales to 8-bit codes. */
static bool try_ring(const struct cuda_norm *call, uint32_t threads, cudaStream_t stream,
                     struct error *error, enum err *ret_code) {
    const int in = in_kind_of(&call->h);
    const enum cuda_code code = call->y.type;
    if (call->rows < MANY_ROWS) return false;
    if (in == IN_BF16 && code == CUDA_BF16)
        return launch_ring_of<IN_BF16, CUDA_BF16>(call, threads, stream, error, ret_code);
    if (in == IN_BF16 && code == CUDA_INT8)
        return launch_ring_of<IN_BF16, CUDA_INT8>(call, threads, stream, error, ret_code);
    if (in == IN_BF16_SCALED && code == CUDA_E4M3)
        return launch_ring_of<IN_BF16_SCALED, CUDA_E4M3>(call, threads, stream, error, ret_code);
    if (in == IN_BF16_SCALED && code == CUDA_INT8)
        return launch_ring_of<IN_BF16_SCALED, CUDA_INT8>(call, threads, stream, error, ret_code);
    return false;
}
