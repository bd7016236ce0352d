/* SPDX-License-Identifier: Apache-2.0 */

/* reduce: a block takes a row at a time, 16 numbers a thread, as norm.cu has it. What the ranks do
 * not write (weights) is read before anything else, the residual while the block waits for the
 * others, and the parts of all ranks at once. 64 registers, so that a multiprocessor has four rows
 * of 4,096 at a time: one is read while others are normed. */

#include "gpu/cuda/reduce.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/meeting.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/norm_parts.cuh"

#define THREADS_USUAL 512 /* widths of up to 8,192: more ranks than two need many registers */
#define THREADS_MAX 1024
#define WIDTH_MAX (THREADS_MAX * THREAD_NUMBERS)
#define WEIGHTS_MAX (47u << 10) /* bytes of shared memory, next to the sums of two rows */

/* Adds the parts of all ranks to the row, whose numbers r->x has. */
template <int RANKS, bool POST>
__device__ static inline void add_parts(const struct cuda_reduce &call, struct norm_row<EACH> *r,
                                        float2 *parts) {
    constexpr int N = EACH;
    struct raw_parts<RANKS> raw[SPANS];
    eight h[SPANS];
    float squares = 0, factor = 1.0f;
    /* All reads of two ranks are under way at once; more ranks would need too many registers. */
#pragma unroll
    for (int s = 0; RANKS == 2 && s < SPANS; s++)
        if (r->first + s * r->step < r->limit)
            raw[s] = read_parts<RANKS>(call.meeting,
                                       r->row * call.norm.h.stride + r->first + s * r->step);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = r->first + s * r->step;
        if (at >= r->limit) continue;
        if (RANKS > 2) raw[s] = read_parts<RANKS>(call.meeting, r->row * call.norm.h.stride + at);
        h[s] = sum_of_parts<RANKS>(call.meeting, call.norm.h.bias, at, raw[s]);
        if (POST) squares = add_squares(squares, h[s]);
    }
    if (POST) factor = factor_of(call.norm, row_sum_max(*r, make_float2(squares, 0.0f), parts).x);
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = r->first + s * r->step;
        if (at >= r->limit) continue;
        eight post;
        if (POST) post = read_f32<EACH>(call.norm.post + at);
        add_place<POST>(call.norm, r->row, at, h[s], factor, post, &r->x[s]);
    }
}

template <int RANKS, int CODE, bool POST, int THREADS>
__global__ void __launch_bounds__(THREADS)
    reduce_rows(const __grid_constant__ struct cuda_reduce call) {
    constexpr int N = EACH;
    CUDA_SHARED float2 parts[2][2][32]; /* for two rows: a warp may be a row ahead of another */
    struct norm_row<N> r;
    extern __shared__ __align__(128) char cuda_memory[]; /* weights */
    uint32_t turn = 0;
    r.first = threadIdx.x * N, r.step = blockDim.x * N, r.limit = call.norm.width;
    r.first_warp = 0, r.warps = blockDim.x / 32;
    fetch_weights(call.norm, cuda_memory);
    wait_for_before();
    say_there(call.meeting);
    for (r.row = blockIdx.x; r.row < call.norm.rows; r.row += gridDim.x, turn ^= 1) {
#pragma unroll
        for (int s = 0; s < SPANS; s++)
            if (r.first + s * r.step < r.limit)
                r.x[s] =
                    read_f32<N>(call.norm.x + r.row * call.norm.x_stride + r.first + s * r.step);
        if (r.row == blockIdx.x) {
            const bool are_there = await_all(call.meeting);
            let_next_start();
            wait_for_weights();
            if (!are_there) return; /* a rank that is lost has no memory to read */
        }
        add_parts<RANKS, POST>(call, &r, parts[turn][0]);
        float2 sums = make_float2(0.0f, 0.0f); /* squares, and the largest magnitude */
#pragma unroll
        for (int s = 0; s < SPANS; s++)
            if (r.first + s * r.step < r.limit)
                weigh_place<CODE>(weights_at<N>(call.norm, cuda_memory, r.first + s * r.step),
                                  &r.x[s], &sums);
        leave_row<CODE>(call.norm, &r, row_sum_max(r, sums, parts[turn][1]));
    }
}

/* ---- the choice ---- */

typedef void (*reduce_kernel)(const struct cuda_reduce call);

template <int RANKS, bool POST, int THREADS> static reduce_kernel kernel_of(enum cuda_code code) {
    if (code == CUDA_E4M3) return reduce_rows<RANKS, CUDA_E4M3, POST, THREADS>;
    if (code == CUDA_INT8) return reduce_rows<RANKS, CUDA_INT8, POST, THREADS>;
    return reduce_rows<RANKS, CUDA_BF16, POST, THREADS>;
}

template <int RANKS>
static reduce_kernel kernel_for(const struct cuda_norm *norm, uint32_t threads) {
    const enum cuda_code code = norm->y.type;
    if (RANKS > 2 && threads <= THREADS_USUAL)
        return norm->post ? kernel_of<RANKS, true, THREADS_USUAL>(code)
                          : kernel_of<RANKS, false, THREADS_USUAL>(code);
    return norm->post ? kernel_of<RANKS, true, THREADS_MAX>(code)
                      : kernel_of<RANKS, false, THREADS_MAX>(code);
}

static uint32_t weights_bytes(const struct cuda_norm *norm) {
    return norm->width * (norm->weight.is_bf16 ? 2 : 4);
}

static bool is_fit(const struct cuda_reduce *call) {
    const struct cuda_norm *norm = &call->norm;
    return is_meeting_fit(&call->meeting) && norm->width % EACH == 0 && norm->width <= WIDTH_MAX &&
           weights_bytes(norm) <= WEIGHTS_MAX && norm->x_stride % 4 == 0 &&
           norm->h.stride % EACH == 0 && norm->y.codes && is_rows_wide(&norm->y) &&
           is_at_16(norm->x) && is_at_16(norm->weight.at) && is_at_16(norm->post) &&
           is_at_16(norm->h.bias) && !norm->h.row_scale;
}

enum err cuda_reduce(const struct cuda_reduce *call, struct CUstream_st *stream,
                     struct error *error) {
    const struct cuda_norm *norm = &call->norm;
    if (!is_fit(call))
        return err_set(error, ERR_INVALID,
                       "reduce: rank %u of %u, %u rows of %u, a stride or an address",
                       call->meeting.rank, call->meeting.ranks, norm->rows, norm->width);
    const uint32_t threads = ((norm->width + THREAD_NUMBERS - 1) / THREAD_NUMBERS + 31) / 32 * 32;
    uint32_t blocks = norm->width > 0 ? norm->rows : 0;
    if (call->blocks_max > 0 && blocks > call->blocks_max) blocks = call->blocks_max;
    const reduce_kernel kernel = call->meeting.ranks <= 2   ? kernel_for<2>(norm, threads)
                                 : call->meeting.ranks <= 4 ? kernel_for<4>(norm, threads)
                                                            : kernel_for<8>(norm, threads);
    return launch_dependent("reduce", error, stream, blocks, threads, weights_bytes(norm), kernel,
                            *call);
}

CUDA_MODULE(reduce, (reduce_rows<2, CUDA_BF16, false, THREADS_MAX>))
