/* SPDX-License-Identifier: Apache-2.0 */

/* gate: act(gate) · up, and its codes for the product that reads it.
 *
 * Without a scale to find there is nothing to wait for, and a thread does eight numbers and ends.
 * With one, a block per row keeps the row in registers while its largest magnitude is found, or in
 * shared memory where the registers of a multiprocessor have room for one row only. (Rows on their
 * way into a ring of shared memory meanwhile were slower: too few warps to hide the arithmetic.) */

#include "dependent.cuh"
#include "launch.cuh"
#include "vec.cuh"

#define SPANS 2 /* eights a thread holds of a row that is quantised */
#define WIDTH_MAX (1024 * SPANS * EACH)
#define FLAT_THREADS 256
#define GRID_ROWS_MAX 65535 /* of a grid's second dimension */
#define REGISTER_THREADS 640 /* above it only one row in registers fits a multiprocessor */
#define HELD_THREADS 448 /* at most, for a row in shared memory … */
#define HELD_BLOCKS 3    /* … and rows of a multiprocessor: 48 registers a thread */

/* x / (1 + 2^y), without what subnormal numbers would cost: 8 instructions of 35 a number. */
__device__ static inline float over_one_plus_power(float x, float y) {
    float power, part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(y));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.0f + power));
    return x * part;
}

template <int KIND> __device__ static inline float activate(float x) {
    const float log2_e = 1.44269504f;
    if (KIND == CUDA_SILU) return over_one_plus_power(x, -log2_e * x);
    /* x/2 (1 + tanh(y)) = x · sigmoid(2y) */
    float y = 0.797884560802865f * (x + 0.044715f * x * x * x);
    return over_one_plus_power(x, -2.0f * log2_e * y);
}

template <int IN, int KIND>
__device__ static inline eight gate_eight(const struct cuda_gate &call, float row_scale,
                                          uint32_t at, const struct raw_sums<IN> &gate_raw,
                                          const struct raw_sums<IN> &up_raw) {
    eight gate = sums_of<IN>(call.in, row_scale, at, gate_raw);
    eight up = sums_of<IN>(call.in, row_scale, call.width + at, up_raw);
#pragma unroll
    for (int i = 0; i < EACH; i++) gate.at[i] = activate<KIND>(gate.at[i]) * up.at[i];
    return gate;
}

/* To bf16: a block takes FLAT_THREADS · EACH columns of a row. */
template <int IN, int KIND>
__global__ void __launch_bounds__(FLAT_THREADS) gate_flat(struct cuda_gate call) {
    size_t row = blockIdx.y;
    uint32_t at = (blockIdx.x * FLAT_THREADS + threadIdx.x) * EACH;
    wait_for_before();
    let_next_start();
    if (at >= call.width) return;
    float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    struct raw_sums<IN> gate = read_sums<IN>(call.in, row, at);
    struct raw_sums<IN> up = read_sums<IN>(call.in, row, call.width + at);
    store<CUDA_BF16>(call.y, row, at, gate_eight<IN, KIND>(call, row_scale, at, gate, up));
}

template <int IN, int KIND, int CODE>
__global__ void __maxnreg__(IN == IN_INT32 ? 64 : 48) gate_rows(struct cuda_gate call) {
    __shared__ float2 parts[32];
    size_t row = blockIdx.x;
    struct raw_sums<IN> gate[SPANS], up[SPANS];
    eight y[SPANS];
    wait_for_before();
    float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = (s * blockDim.x + threadIdx.x) * EACH;
        if (at >= call.width) continue;
        gate[s] = read_sums<IN>(call.in, row, at);
        up[s] = read_sums<IN>(call.in, row, call.width + at);
    }
    let_next_start();
    float most = 0;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = (s * blockDim.x + threadIdx.x) * EACH;
        if (at >= call.width) continue;
        y[s] = gate_eight<IN, KIND>(call, row_scale, at, gate[s], up[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(y[s].at[i]));
    }
    most = block_sum_max(make_float2(0.0f, most), parts).y;
    float scale = scale_of<CODE>(most), factor = 1.0f / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = (s * blockDim.x + threadIdx.x) * EACH;
        if (at >= call.width) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) y[s].at[i] *= factor;
        store<CODE>(call.y, row, at, y[s]);
    }
}

/* The same with the row in shared memory, so that three rows or more are on a multiprocessor and
 * one reads while another writes. A thread reads back only what it wrote. */
template <int IN, int KIND, int CODE>
__global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS) gate_rows_held(struct cuda_gate call) {
    extern __shared__ __align__(16) float held[];
    __shared__ float2 parts[32];
    const size_t row = blockIdx.x;
    const uint32_t step = blockDim.x * EACH;
    uint32_t at = threadIdx.x * EACH;
    struct raw_sums<IN> gate, up;
    float most = 0;
    wait_for_before();
    let_next_start();
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    if (at < call.width) {
        gate = read_sums<IN>(call.in, row, at);
        up = read_sums<IN>(call.in, row, call.width + at);
    }
    while (at < call.width) {
        struct raw_sums<IN> gate_now = gate, up_now = up;
        const uint32_t now = at;
        at += step;
        if (at < call.width) {
            gate = read_sums<IN>(call.in, row, at);
            up = read_sums<IN>(call.in, row, call.width + at);
        }
        eight y = gate_eight<IN, KIND>(call, row_scale, now, gate_now, up_now);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(y.at[i]));
        write_f32(y, held + now);
    }
    most = block_sum_max(make_float2(0.0f, most), parts).y;
    const float scale = scale_of<CODE>(most), factor = 1.0f / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
    for (at = threadIdx.x * EACH; at < call.width; at += step) {
        eight y = read_f32(held + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) y.at[i] *= factor;
        store<CODE>(call.y, row, at, y);
    }
}

__device__ static inline float gate_one(const struct cuda_gate &call, size_t row, uint32_t at) {
    float gate = sum_at(call.in, row, at), up = sum_at(call.in, row, call.width + at);
    return (call.kind == CUDA_SILU ? activate<CUDA_SILU>(gate) : activate<CUDA_GELU_TANH>(gate)) *
           up;
}

/* Any width, any alignment: the row is computed twice when it is quantised. */
__global__ void gate_rows_plain(struct cuda_gate call) {
    __shared__ float2 parts[32];
    size_t row = blockIdx.x;
    float factor = 1.0f;
    wait_for_before();
    if (call.y.type != CUDA_BF16) {
        float most = 0;
        for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x)
            most = fmaxf(most, fabsf(gate_one(call, row, i)));
        most = block_sum_max(make_float2(0.0f, most), parts).y;
        float scale =
            call.y.type == CUDA_E4M3 ? scale_of<CUDA_E4M3>(most) : scale_of<CUDA_INT8>(most);
        factor = 1.0f / scale;
        if (threadIdx.x == 0) call.y.scale[row] = scale;
    }
    for (uint32_t i = threadIdx.x; i < call.width; i += blockDim.x)
        store_one(call.y, row, i, gate_one(call, row, i) * factor);
}

typedef void (*gate_kernel)(struct cuda_gate call);

template <int IN, int KIND> static gate_kernel kernel_of(enum cuda_code code) {
    if (code == CUDA_E4M3) return gate_rows<IN, KIND, CUDA_E4M3>;
    if (code == CUDA_INT8) return gate_rows<IN, KIND, CUDA_INT8>;
    return gate_flat<IN, KIND>;
}

template <int IN, int KIND> static gate_kernel held_of(enum cuda_code code) {
    return code == CUDA_E4M3 ? gate_rows_held<IN, KIND, CUDA_E4M3>
                             : gate_rows_held<IN, KIND, CUDA_INT8>;
}

/* What holds a row of bf16 sums in shared memory. */
static gate_kernel held_for(const struct cuda_gate *call) {
    bool is_scaled = in_kind_of(&call->in) == IN_BF16_SCALED;
    if (call->kind == CUDA_SILU)
        return is_scaled ? held_of<IN_BF16_SCALED, CUDA_SILU>(call->y.type)
                         : held_of<IN_BF16, CUDA_SILU>(call->y.type);
    return is_scaled ? held_of<IN_BF16_SCALED, CUDA_GELU_TANH>(call->y.type)
                     : held_of<IN_BF16, CUDA_GELU_TANH>(call->y.type);
}

template <int IN> static gate_kernel kernel_with(const struct cuda_gate *call) {
    return call->kind == CUDA_SILU ? kernel_of<IN, CUDA_SILU>(call->y.type)
                                   : kernel_of<IN, CUDA_GELU_TANH>(call->y.type);
}

static gate_kernel kernel_for(const struct cuda_gate *call) {
    switch (in_kind_of(&call->in)) {
    case IN_BF16_SCALED: return kernel_with<IN_BF16_SCALED>(call);
    case IN_INT32: return kernel_with<IN_INT32>(call);
    default: return kernel_with<IN_BF16>(call);
    }
}

enum err cuda_gate(const struct cuda_gate *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    bool is_wide = call->width % EACH == 0 && is_product_wide(&call->in) && is_rows_wide(&call->y);
    bool is_flat = call->y.type == CUDA_BF16;
    if (!is_wide || (is_flat ? call->rows > GRID_ROWS_MAX : call->width > WIDTH_MAX))
        return launch_dependent("gate", error, stream, call->rows, 256, 0, gate_rows_plain, *call);
    uint32_t eights = call->width / EACH;
    if (is_flat) {
        dim3 grid((eights + FLAT_THREADS - 1) / FLAT_THREADS, call->rows);
        return launch_dependent("gate", error, stream, grid, FLAT_THREADS, 0, kernel_for(call),
                                *call);
    }
    uint32_t threads = ((eights + SPANS - 1) / SPANS + 31) / 32 * 32;
    if (in_kind_of(&call->in) != IN_INT32 && threads > REGISTER_THREADS &&
        cuda_has_shared(HELD_BLOCKS * WIDTH_MAX * 4)) {
        uint32_t spans = (eights + HELD_THREADS - 1) / HELD_THREADS;
        static gate_kernel asked; /* the last one that was given its memory: a model has one */
        gate_kernel kernel = held_for(call);
        cudaError_t status = cudaSuccess;
        if (kernel != asked)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          WIDTH_MAX * 4);
        if (status != cudaSuccess)
            return err_set(error, ERR_IO, "gate: %s", cudaGetErrorString(status));
        asked = kernel;
        return launch_dependent("gate", error, stream, call->rows,
                                ((eights + spans - 1) / spans + 31) / 32 * 32, call->width * 4,
                                kernel, *call);
    }
    return launch_dependent("gate", error, stream, call->rows, threads, 0, kernel_for(call), *call);
}
