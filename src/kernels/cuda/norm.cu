/* SPDX-License-Identifier: Apache-2.0 */

/* norm: adds a product to the residual and leaves its RMS norm for the next product.
 *
 * 16 numbers a thread, so a row stays in registers between its two uses, and all rows of a usual
 * step are in flight at once. A block takes two rows where it can and reads the weights once, into
 * shared memory, past the registers, while the kernel before still runs: weights of 4 B for each
 * row would be a third of what the L2 has to give.
 *
 * Many rows go through a ring (ring.cuh) instead on sm_90 and later, 10 to 20 % faster cold. Both
 * kernels give a row the same bits, by the same functions in the same order. */

#include "kernels/cuda/dependent.cuh"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/vec.cuh"

#define THREAD_NUMBERS 16
#define BLOCK_ROWS_MAX 2
#define MANY_ROWS 512          /* below it there are too few blocks for that */
#define SHARED_THREADS_MAX 512 /* of a block of several rows */
#define WIDTH_MAX 12160        /* floats that, with `parts`, fit 48 KiB of shared memory */

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

/* Numbers that a thread moves at a time. All kernels of a code and width have the same, and so one
 * order of sums. Fours are faster for 8-bit codes. For bf16 eights are, but in the rings of 2,048
 * and 4,096 numbers, of 128 and 256 threads. */
__host__ __device__ static constexpr int at_once(int code, uint32_t row_threads) {
    return code != CUDA_BF16 || row_threads == 128 || row_threads == 256 ? 4 : 8;
}

/* A thread's share of its row: N numbers in SPANS places. */
#define SPANS (THREAD_NUMBERS / N)

template <int N> struct norm_row {
    struct numbers<N> x[SPANS];
    uint32_t first; /* of its columns; the next place is `step` away */
    uint32_t step;
    uint32_t limit; /* the width; 0 for a row past the last */
    size_t row;
    uint32_t first_warp; /* of the row's, in the block */
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

/* Leaves x + h, or x + h · factor · post, in *x and in memory. Two kernels call it and must round
 * alike, so the instructions are named. */
template <bool POST, int N>
__device__ static inline void add_place(const struct cuda_norm &call, size_t row, uint32_t at,
                                        const struct numbers<N> &h, float factor,
                                        struct numbers<N> *x) {
    struct numbers<N> post;
    if (POST) post = read_f32<N>(call.post + at);
#pragma unroll
    for (int i = 0; i < N; i++)
        x->at[i] = POST ? __fmaf_rn(__fmul_rn(h.at[i], factor), post.at[i], x->at[i])
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
    float factor = factor_of(call, sums.x);
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

/* Leaves x + h, or x + rms_norm(h) · post, in r->x and in memory. */
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
        if (at < r->limit) add_place<POST>(call, r->row, at, h[s], factor, &r->x[s]);
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
__global__ void norm_rows_plain(struct cuda_norm call) {
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
            sums.x += x[i] * x[i];
        }
        struct numbers<4> v = {};
        if (call.y.codes) v = weighed_four(call, x, at);
        for (int i = 0; i < 4; i++) sums.y = fmaxf(sums.y, fabsf(v.at[i]));
    }
    if (!call.y.codes) return;
    sums = block_sum_max(sums, parts[1]);
    factor = factor_of(call, sums.x);
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

/* ---- a block that stays: its rows come through a ring ---- */

#define RING_ROWS 2 /* when tried, three: 2,048 × 2,560 17.1 µs against 17.3; 1,024 × 4,096 16.2 against 15.0 */
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
        const struct raw_sums<IN, N> raw = {read_words<N / 2>(h + at)};
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
        r->x[s] = read_f32<N>((const float *)place + at);
        add_place<POST>(call, r->row, at, h_at(s, at), factor, &r->x[s]);
        weigh_place<CODE>(columns.weight[s], &r->x[s], &sums);
    }
    return sums;
}

template <int IN, int CODE, bool POST, uint32_t THREADS, uint32_t BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) norm_ring(struct cuda_norm call) {
    constexpr int N = at_once(CODE, THREADS);
    extern __shared__ __align__(128) char cuda_memory[];
    CUDA_SHARED __align__(8) uint64_t full[RING_ROWS];
    CUDA_SHARED float2 parts[2][2][32]; /* of two rows: a warp may be a row ahead of another */
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

/* Launches the ring if the blocks that were measured fit the card; false if not. */
template <int IN, int CODE, bool POST, uint32_t THREADS, uint32_t BLOCKS>
static bool launch_ring(const struct cuda_norm *call, cudaStream_t stream, struct error *error,
                        enum err *ret_code) {
    constexpr auto KERNEL = norm_ring<IN, CODE, POST, THREADS, BLOCKS>;
    const uint32_t bytes = RING_ROWS * RING_PLACE_BYTES(THREADS);
    uint32_t blocks = ring_blocks<KERNEL>(THREADS, bytes, BLOCKS);
    if (blocks == 0) return false;
    if (blocks > call->rows) blocks = call->rows;
    *ret_code = launch_dependent("norm", error, stream, blocks, THREADS, bytes, KERNEL, *call);
    return true;
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

/* Sums of bf16 to bf16, or with scales to 8-bit codes; other forms were not measured. */
static bool try_ring(const struct cuda_norm *call, uint32_t threads, cudaStream_t stream,
                     struct error *error, enum err *ret_code) {
    const int in = in_kind_of(&call->h);
    const enum cuda_code code = call->y.type;
    if (call->rows < MANY_ROWS) return false;
    if (in == IN_BF16 && code == CUDA_BF16)
        return launch_ring_of<IN_BF16, CUDA_BF16>(call, threads, stream, error, ret_code);
    if (in == IN_BF16_SCALED && code == CUDA_E4M3)
        return launch_ring_of<IN_BF16_SCALED, CUDA_E4M3>(call, threads, stream, error, ret_code);
    if (in == IN_BF16_SCALED && code == CUDA_INT8)
        return launch_ring_of<IN_BF16_SCALED, CUDA_INT8>(call, threads, stream, error, ret_code);
    return false;
}

/* ---- the choice ---- */

typedef void (*norm_kernel)(struct cuda_norm call, uint32_t row_threads);

template <int IN, bool POST>
static norm_kernel kernel_of(enum cuda_code code, uint32_t row_threads) {
    if (code == CUDA_E4M3) return norm_rows<IN, CUDA_E4M3, POST, 4>;
    if (code == CUDA_INT8) return norm_rows<IN, CUDA_INT8, POST, 4>;
    if (at_once(code, row_threads) == 4) return norm_rows<IN, CUDA_BF16, POST, 4>;
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
