/* SPDX-License-Identifier: Apache-2.0 */

/* gate: act(gate) · up, and its codes for the product that reads it.
 *
 * Without a scale to find there is nothing to wait for, and a thread does eight numbers and ends.
 * With one, a block per row keeps the row in registers while its largest magnitude is found. Two
 * rows or more are on a multiprocessor, so that one reads while another writes. Arithmetic bounds
 * the kernel as much as memory does: each instruction per number counts. */

#include "gpu/cuda/activate.cuh"
#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define SPANS_MAX 4 /* eights per thread of a row that is quantised */
#define WIDTH_MAX (512 * SPANS_MAX * EACH)
#define FLAT_THREADS 256
#define GRID_ROWS_MAX 65535 /* limit of a grid's second dimension */

/* The registers of a thread that holds three or four eights. At 48, three rows of 448 threads or
 * two of 672 are on a multiprocessor; at 64, two of 512; at 72, two of 448. */
#define REGISTERS(IN, SPANS) ((IN) == IN_INT32 ? 72 : (SPANS) == 3 ? 48 : 64)
#define THREADS_OF_3 672       /* at most, with three eights of bf16 sums per thread */
#define THREADS_OF_3_INT32 448 /* likewise, of int32 sums */

__device__ static inline float factor_of(const struct cuda_gate &call) {
    return call.factor > 0 ? call.factor : 1.0f;
}

template <int IN, int KIND>
__device__ static inline eight gate_eight(const struct cuda_gate &call, float row_scale,
                                          uint32_t at, const struct raw_sums<IN> &gate_raw,
                                          const struct raw_sums<IN> &up_raw) {
    const float factor = factor_of(call);
    eight gate = sums_of<IN>(call.in, row_scale, at, gate_raw), up = {};
    if (KIND != CUDA_RELU2) up = sums_of<IN>(call.in, row_scale, call.width + at, up_raw);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        gate.at[i] = activate<KIND>(factor * gate.at[i]);
        if (KIND != CUDA_RELU2) gate.at[i] *= up.at[i];
    }
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
    struct raw_sums<IN> up = gate;
    if (KIND != CUDA_RELU2) up = read_sums<IN>(call.in, row, call.width + at);
    store<CUDA_BF16>(call.y, row, at, gate_eight<IN, KIND>(call, row_scale, at, gate, up));
}

/* Eight of act(gate) · up / row_scale. The row's scale is left out of `up`, one multiplication per
 * number, and comes back with the scale of the codes; so there is no bias. Without an up, one of
 * the two factors of a square is left so. */
template <int IN, int KIND>
__device__ static inline eight gate_unscaled(const struct cuda_gate &call, float row_scale,
                                             uint32_t at, const struct raw_sums<IN> &gate_raw,
                                             const struct raw_sums<IN> &up_raw) {
    struct cuda_product in = call.in;
    in.bias = NULL;
    eight gate = sums_of<IN>(in, row_scale, at, gate_raw);
    eight up = sums_of<IN>(in, 1.0f, KIND == CUDA_RELU2 ? at : call.width + at, up_raw);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (KIND == CUDA_RELU2)
            gate.at[i] = fmaxf(gate.at[i], 0.0f) * up.at[i];
        else
            gate.at[i] = activate<KIND>(gate.at[i]) * up.at[i];
    }
    return gate;
}

/* To codes: a block per row, SPANS eights per thread, a warp's in one piece. Four eights of int32
 * sums are more than the registers have room for: two are on their way at a time. */
template <int IN, int KIND, int CODE, int SPANS>
__global__ void __maxnreg__(REGISTERS(IN, SPANS)) gate_rows(struct cuda_gate call) {
    constexpr int AHEAD = IN == IN_INT32 && SPANS == 4 ? 2 : SPANS;
    CUDA_SHARED uint32_t parts[32];
    const size_t row = blockIdx.x;
    const uint32_t first = (threadIdx.x / 32 * 32 * SPANS + threadIdx.x % 32) * EACH;
    struct raw_sums<IN> gate[SPANS], up[SPANS];
    eight y[SPANS];
    float most = 0;
    auto read = [&](int s) {
        uint32_t at = first + s * 32 * EACH;
        if (at >= call.width) return;
        gate[s] = read_sums<IN>(call.in, row, at);
        up[s] = KIND == CUDA_RELU2 ? gate[s] : read_sums<IN>(call.in, row, call.width + at);
    };
    wait_for_before();
#pragma unroll
    for (int s = 0; s < AHEAD; s++) read(s);
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    let_next_start();
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = first + s * 32 * EACH;
        if (at >= call.width) continue;
        y[s] = gate_unscaled<IN, KIND>(call, row_scale, at, gate[s], up[s]);
        mix<CODE>(&y[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(y[s].at[i]));
        if (s + AHEAD < SPANS) read(s + AHEAD);
    }
    most = block_max(most, parts);
    const float scale = scale_of<CODE>(most * row_scale), factor = row_scale / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        uint32_t at = first + s * 32 * EACH;
        if (at >= call.width) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) y[s].at[i] *= factor;
        store<CODE>(call.y, row, at, y[s]);
    }
}

__device__ static inline float gate_one(const struct cuda_gate &call, size_t row, uint32_t at) {
    const float gate = factor_of(call) * sum_at(call.in, row, at);
    if (call.kind == CUDA_RELU2) return activate<CUDA_RELU2>(gate);
    const float up = sum_at(call.in, row, call.width + at);
    return (call.kind == CUDA_SILU ? activate<CUDA_SILU>(gate) : activate<CUDA_GELU_TANH>(gate)) *
           up;
}

/* Columns at..at+3 for the next product, those past the row's end 0. */
__device__ static inline struct numbers<4> gate_four(const struct cuda_gate &call, size_t row,
                                                     uint32_t at) {
    struct numbers<4> v = {};
    for (uint32_t i = 0; i < 4 && at + i < call.width; i++) v.at[i] = gate_one(call, row, at + i);
    if (call.y.type == CUDA_INT8 && at + 4 <= call.width) mix_four(v.at);
    return v;
}

/* Any width, any alignment, by fours: the row is computed twice when it is quantised. */
__global__ void
gate_rows_plain(struct cuda_gate call) {
    CUDA_SHARED float2 parts[32];
    size_t row = blockIdx.x;
    float factor = 1.0f;
    wait_for_before();
    if (call.y.type != CUDA_BF16) {
        float most = 0;
        for (uint32_t at = threadIdx.x * 4; at < call.width; at += blockDim.x * 4) {
            struct numbers<4> v = gate_four(call, row, at);
            for (int i = 0; i < 4; i++) most = fmaxf(most, fabsf(v.at[i]));
        }
        most = block_sum_max(make_float2(0.0f, most), parts).y;
        float scale =
            call.y.type == CUDA_E4M3 ? scale_of<CUDA_E4M3>(most) : scale_of<CUDA_INT8>(most);
        factor = 1.0f / scale;
        if (threadIdx.x == 0) call.y.scale[row] = scale;
    }
    for (uint32_t at = threadIdx.x * 4; at < call.width; at += blockDim.x * 4) {
        struct numbers<4> v = gate_four(call, row, at);
        for (uint32_t i = 0; i < 4 && at + i < call.width; i++)
            store_one(call.y, row, at + i, v.at[i] * factor);
    }
}

typedef void (*gate_kernel)(struct cuda_gate call);

template <int IN, int KIND> static gate_kernel kernel_of(enum cuda_code code, uint32_t spans) {
    if (code == CUDA_BF16) return gate_flat<IN, KIND>;
    if (code == CUDA_E4M3)
        return spans == 3 ? gate_rows<IN, KIND, CUDA_E4M3, 3> : gate_rows<IN, KIND, CUDA_E4M3, 4>;
    return spans == 3 ? gate_rows<IN, KIND, CUDA_INT8, 3> : gate_rows<IN, KIND, CUDA_INT8, 4>;
}

template <int IN> static gate_kernel kernel_with(const struct cuda_gate *call, uint32_t spans) {
    switch (call->kind) {
    case CUDA_SILU: return kernel_of<IN, CUDA_SILU>(call->y.type, spans);
    case CUDA_RELU2: return kernel_of<IN, CUDA_RELU2>(call->y.type, spans);
    default: return kernel_of<IN, CUDA_GELU_TANH>(call->y.type, spans);
    }
}

static gate_kernel kernel_for(const struct cuda_gate *call, uint32_t spans) {
    switch (in_kind_of(&call->in)) {
    case IN_BF16_SCALED: return kernel_with<IN_BF16_SCALED>(call, spans);
    case IN_INT32: return kernel_with<IN_INT32>(call, spans);
    default: return kernel_with<IN_BF16>(call, spans);
    }
}

enum err cuda_gate(const struct cuda_gate *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    bool is_wide = call->width % EACH == 0 && is_product_wide(&call->in) && is_rows_wide(&call->y);
    bool is_flat = call->y.type == CUDA_BF16;
    if (!is_wide || (is_flat ? call->rows > GRID_ROWS_MAX
                             : call->width > WIDTH_MAX || call->in.bias || call->factor > 0))
        return launch_dependent("gate", error, stream, call->rows, 256, 0, gate_rows_plain, *call);
    uint32_t eights = call->width / EACH;
    if (is_flat) {
        dim3 grid((eights + FLAT_THREADS - 1) / FLAT_THREADS, call->rows);
        return launch_dependent("gate", error, stream, grid, FLAT_THREADS, 0, kernel_for(call, 0),
                                *call);
    }
    bool is_int32 = in_kind_of(&call->in) == IN_INT32;
    uint32_t spans = eights <= 3 * (is_int32 ? THREADS_OF_3_INT32 : THREADS_OF_3) ? 3 : 4;
    return launch_dependent("gate", error, stream, call->rows,
                            (eights + 32 * spans - 1) / (32 * spans) * 32, 0,
                            kernel_for(call, spans), *call);
}

CUDA_MODULE(gate, gate_rows_plain)
