/* SPDX-License-Identifier: Apache-2.0 */

/* grouped_fill: rows of a file as codes in groups, when a model is loaded, and codes as bf16. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/grouped.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/unpack_types.cuh"

#define THREADS 256

/* What is added to the steps of a type for codes without a sign (load_steps). */
template <int TYPE> __device__ static constexpr int code_zero(void) {
    return TYPE == TENSOR_Q4_0 ? 8 : TYPE == TENSOR_Q6_K || TYPE == TENSOR_Q5_0 ? 32 : 0;
}

template <int TYPE> __device__ static constexpr int kind_of(void) {
    switch (TYPE) {
    case TENSOR_Q4_0:
    case TENSOR_INT4: return GROUPED_ZEROS;
    case TENSOR_MXFP4: return GROUPED_E2M1;
    case TENSOR_Q5_0:
    case TENSOR_Q6_K: return GROUPED_BYTES;
    default: return GROUPED_MINIMA;
    }
}

__device__ static inline uint32_t half_bits(float value) {
    return __half_as_ushort(__float2half_rn(value));
}

/* Scale and minimum, or scale and -zero. */
template <int TYPE> __device__ static inline uint32_t scale_word(const struct steps &s) {
    float second = s.minimum;
    if (TYPE == TENSOR_MXFP4) return __float_as_uint(2 * s.scale) >> 16; /* steps are halves */
    if (TYPE == TENSOR_Q4_0) second = -8;
    if (TYPE == TENSOR_INT4) second = s.scale != 0 ? s.minimum / s.scale : 0;
    return half_bits(s.scale) | half_bits(second) << 16;
}

/* Lines of gated experts are by turns eight of gate and eight of up. */
__device__ static inline uint32_t line_of(const struct cuda_grouped_fill &call, uint32_t row) {
    const uint32_t width = call.gate_width;
    if (width == 0) return row;
    const uint32_t column = row % width;
    return row / (2 * width) * (2 * width) + column / 8 * 16 + row / width % 2 * 8 + column % 8;
}

/* A thread has a row's 32 inputs. */
template <int TYPE>
__global__ void __launch_bounds__(THREADS) grouped_fill(struct cuda_grouped_fill call) {
    constexpr int KIND = kind_of<TYPE>();
    const uint32_t groups = call.to.inputs / GROUPED_INPUTS;
    const size_t index = blockIdx.x * (size_t)THREADS + threadIdx.x;
    const uint32_t row = (uint32_t)(index / groups), group = (uint32_t)(index % groups);
    wait_for_before();
    if (row >= call.rows) return;
    const uint32_t line = line_of(call, call.first + row), g = line % 8,
                   place = line % GROUPED_LINES / 8;
    const uint32_t at = group * GROUPED_INPUTS;
    const uint8_t *file =
        (const uint8_t *)call.blocks +
        (size_t)row * (call.to.inputs / block_elements<TYPE>()) * block_bytes<TYPE>() +
        (size_t)(at / block_elements<TYPE>()) * block_bytes<TYPE>();
    char *block = (char *)call.to.at + line / GROUPED_LINES * grouped_block_bytes<KIND>(groups);
    const size_t code_bytes = KIND == GROUPED_BYTES ? 1024 : 512;
    uint32_t *codes = (uint32_t *)(block + group * code_bytes) + place;
    uint32_t *scales = (uint32_t *)(block + groups * code_bytes + group * GROUPED_SCALE_BYTES);
    struct steps s;
    uint32_t word = 0;
#pragma unroll
    for (uint32_t t = 0; t < 4; t++) {
        load_steps<TYPE>(file, at % block_elements<TYPE>() + 8 * t, &s);
        if (TYPE == TENSOR_MXFP4) load_nibbles(file + 1, 8 * t, &s);
        if (KIND == GROUPED_BYTES) {
#pragma unroll
            for (uint32_t i = 0; i < 8; i += 4) {
                uint32_t four = 0;
                for (uint32_t k = 0; k < 4; k++)
                    four |= (uint32_t)(s.at[i + k] + code_zero<TYPE>()) << (8 * k);
                codes[t / 2 * 128 + (g * 4 + t % 2 * 2 + i / 4) * 4] = four;
            }
            word |= half_bits(s.scale) << (t / 2 * 16);
            continue;
        }
        uint32_t eight = 0;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++)
            eight |= (uint32_t)(s.at[k] + code_zero<TYPE>()) << grouped_shift(k);
        codes[(g * 4 + t) * 4] = eight;
    }
    scales[g * 4 + place] = KIND == GROUPED_BYTES ? word : scale_word<TYPE>(s);
}

template <int TYPE>
static enum err launch_fill(const struct cuda_grouped_fill *call, cudaStream_t stream,
                            struct error *error) {
    const uint64_t count = (uint64_t)call->rows * (call->to.inputs / GROUPED_INPUTS);
    return launch_dependent("grouped fill", error, stream,
                            (uint32_t)((count + THREADS - 1) / THREADS), THREADS, 0,
                            grouped_fill<TYPE>, *call);
}

enum err cuda_grouped_fill(const struct cuda_grouped_fill *call, struct CUstream_st *stream,
                           struct error *error) {
    if (call->rows == 0 || call->to.inputs == 0) return OK;
    if (call->to.kind == GROUPED_NOT || grouping_of(call->type) != call->to.kind ||
        call->to.inputs % GROUPED_INPUTS != 0 || call->first + call->rows > call->to.lines)
        return err_set(error, ERR_INVALID, "rows of type %d cannot be codes in groups",
                       (int)call->type);
    switch (call->type) {
    case TENSOR_Q4_0: return launch_fill<TENSOR_Q4_0>(call, stream, error);
    case TENSOR_Q4_1: return launch_fill<TENSOR_Q4_1>(call, stream, error);
    case TENSOR_Q4_K: return launch_fill<TENSOR_Q4_K>(call, stream, error);
    case TENSOR_Q5_0: return launch_fill<TENSOR_Q5_0>(call, stream, error);
    case TENSOR_Q6_K: return launch_fill<TENSOR_Q6_K>(call, stream, error);
    case TENSOR_MXFP4: return launch_fill<TENSOR_MXFP4>(call, stream, error);
    default: return launch_fill<TENSOR_INT4>(call, stream, error);
    }
}

/* ---- codes as bf16 ---- */

/* Eight inputs of a line. */
__device__ static inline void leave_eight(const struct cuda_grouped_unpack &call, uint32_t line,
                                          uint32_t input, const float (&v)[8]) {
    if (line >= call.from.lines) return;
    *(uint4 *)(call.to + (size_t)line * call.from.inputs + input) =
        make_uint4(cuda_pack_bf16(v[0], v[1]), cuda_pack_bf16(v[2], v[3]),
                   cuda_pack_bf16(v[4], v[5]), cuda_pack_bf16(v[6], v[7]));
}

/* Four inputs of a line. */
__device__ static inline void leave_four(const struct cuda_grouped_unpack &call, uint32_t line,
                                         uint32_t input, uint32_t codes, float scale) {
    if (line >= call.from.lines) return;
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = __fmul_rn(scale, (float)((int)(codes >> (8 * k) & 255u) - 32));
    *(uint2 *)(call.to + (size_t)line * call.from.inputs + input) =
        make_uint2(cuda_pack_bf16(v[0], v[1]), cuda_pack_bf16(v[2], v[3]));
}

/* Steps of e2m1 are halves. */
template <int KIND> __device__ static inline float number_of(uint32_t code) {
    return (float)(KIND == GROUPED_E2M1 ? mxfp4_steps[code] : (int)code);
}

template <int KIND>
__device__ static inline struct grouped_factors unpacked_factors(uint32_t word) {
    if (KIND == GROUPED_E2M1) return {__uint_as_float(word << 16) * 0.5f, 0};
    return grouped_factors((enum grouping)KIND, word);
}

/* A warp has a group of a block of lines, as products read it. */
template <int KIND>
__global__ void __launch_bounds__(THREADS) grouped_unpack(struct cuda_grouped_unpack call) {
    const uint32_t groups = call.from.inputs / GROUPED_INPUTS, lane = threadIdx.x % 32;
    const size_t warp = blockIdx.x * (size_t)(THREADS / 32) + threadIdx.x / 32;
    const uint32_t block = (uint32_t)(warp / groups), group = (uint32_t)(warp % groups);
    wait_for_before();
    if (block * GROUPED_LINES >= call.from.lines) return;
    const char *at = (const char *)call.from.at + block * grouped_block_bytes<KIND>(groups);
    const uint4 four = *grouped_scales<KIND>(at, groups, group);
    const uint32_t words[4] = {four.x, four.y, four.z, four.w};
    const uint32_t first = block * GROUPED_LINES + lane / 4, input = group * GROUPED_INPUTS;
#pragma unroll
    for (int half = 0; half < (KIND == GROUPED_BYTES ? 2 : 1); half++) {
        const uint4 raw = grouped_codes<KIND>(at, group)[half * 32];
        const uint32_t codes[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (KIND == GROUPED_BYTES) {
                leave_four(call, first + 8 * i, input + 16 * half + lane % 4 * 4, codes[i],
                           half ? cuda_high_f16(words[i]) : cuda_low_f16(words[i]));
                continue;
            }
            const struct grouped_factors by = unpacked_factors<KIND>(words[i]);
            float v[8];
#pragma unroll
            for (uint32_t k = 0; k < 8; k++)
                v[k] = __fmaf_rn(by.scale, number_of<KIND>(codes[i] >> grouped_shift(k) & 15u),
                                 by.minimum);
            leave_eight(call, first + 8 * i, input + lane % 4 * 8, v);
        }
    }
}

template <int KIND>
static enum err launch_unpack(const struct cuda_grouped_unpack *call, cudaStream_t stream,
                              struct error *error) {
    const uint64_t warps = (uint64_t)(call->from.lines + GROUPED_LINES - 1) / GROUPED_LINES *
                           (call->from.inputs / GROUPED_INPUTS);
    return launch_dependent("grouped unpack", error, stream,
                            (uint32_t)((warps + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0,
                            grouped_unpack<KIND>, *call);
}

enum err cuda_grouped_unpack(const struct cuda_grouped_unpack *call, struct CUstream_st *stream,
                             struct error *error) {
    if (call->from.lines == 0 || call->from.inputs == 0) return OK;
    switch (call->from.kind) {
    case GROUPED_MINIMA: return launch_unpack<GROUPED_MINIMA>(call, stream, error);
    case GROUPED_ZEROS: return launch_unpack<GROUPED_ZEROS>(call, stream, error);
    case GROUPED_E2M1: return launch_unpack<GROUPED_E2M1>(call, stream, error);
    case GROUPED_BYTES: return launch_unpack<GROUPED_BYTES>(call, stream, error);
    case GROUPED_NOT: break;
    }
    return err_set(error, ERR_INVALID, "weights without groups");
}

CUDA_MODULE(grouped_fill, grouped_fill<TENSOR_Q4_K>)
