/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* heads_halves: the kernel of heads.cu for heads that turn whole, by halves, which models of today
 * have.
 *
 * A block a row. A thread has four numbers of a head and their four partners, half a head away, so
 * that nothing but the sum of squares and the largest of a head crosses lanes; and the weights
 * times cosines and sines that its heads are multiplied by stay in registers. Instructions are what
 * takes time here. So the heads of a warp are all of one kind, and lanes need no masks of their
 * own; columns are 32-bit; and the row's scale is part of the one factor of a head. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/heads_parts.cuh"

/* Threads of a block. Few share the row's cosines, sines and norms among more heads, which is up to
 * 13 % faster with many rows. Many bring a row to its end sooner. */
#define HALVES_THREADS 256
#define HALVES_THREADS_FEW 128
#define HALVES_MANY_ROWS 1024
#define HALVES_MULTIPROCESSOR_THREADS 1024 /* 64 registers per thread */

/* Whether all heads of each warp are of one kind: q, k or v. */
static inline bool halves_are_even(const struct cuda_heads *call) {
    const uint32_t heads_per_warp = 32 * EACH / call->head_dim;
    return call->heads % heads_per_warp == 0 && call->kv_heads % heads_per_warp == 0;
}

struct halves {
    struct numbers<4> low, high;
};

/* new low = low · low_cos - high · high_sin, new high = high · high_cos + low · low_sin */
struct turn_by {
    struct numbers<4> low_cos, high_sin, high_cos, low_sin;
};

/* ---- reading ---- */

/* What was read of a head, not yet converted, so that several reads can be in flight. */
template <int IN> struct raw_halves { struct raw_sums<IN, 4> low, high; };

struct raw_scales {
    struct words<2> low, high;
};

template <int IN, int HALF>
__device__ static inline struct raw_halves<IN> read_halves(const char *row, uint32_t column) {
    constexpr uint32_t BYTES = IN == IN_INT32 ? 4 : 2, WORDS = IN == IN_INT32 ? 4 : 2;
    const char *at = row + (size_t)column * BYTES;
    return {{read_words<WORDS>(at)}, {read_words<WORDS>(at + HALF * BYTES)}};
}

template <int IN, int HALF>
__device__ static inline struct raw_scales read_scales(const uint16_t *scales, uint32_t column) {
    if (IN == IN_BF16) return {};
    return {read_words<2>(scales + column), read_words<2>(scales + column + HALF)};
}

template <int IN>
__device__ static inline struct numbers<4> scaled_by_columns(const struct raw_sums<IN, 4> &raw,
                                                             const struct words<2> &scale) {
    struct numbers<4> v;
    if constexpr (IN == IN_INT32) {
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] = (float)(int32_t)raw.words.at[i];
    } else {
        v = bf16_numbers<4>(raw.words.at);
    }
    if (IN == IN_BF16) return v;
    const struct numbers<4> by = bf16_numbers<4>(scale.at);
#pragma unroll
    for (int i = 0; i < 4; i++) v.at[i] *= by.at[i];
    return v;
}

/* The numbers of a head: with a bias whole, else without the row's scale. */
template <int IN, int HALF, bool HAS_BIAS>
__device__ static inline struct halves halves_of(const struct cuda_product &in, float row_scale,
                                                 uint32_t column, const struct raw_halves<IN> &raw,
                                                 const struct raw_scales &scales) {
    struct halves v = {scaled_by_columns<IN>(raw.low, scales.low),
                       scaled_by_columns<IN>(raw.high, scales.high)};
    if (HAS_BIAS) {
        const struct numbers<4> low = read_f32<4>(in.bias + column);
        const struct numbers<4> high = read_f32<4>(in.bias + column + HALF);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v.low.at[i] = v.low.at[i] * row_scale + low.at[i];
            v.high.at[i] = v.high.at[i] * row_scale + high.at[i];
        }
    }
    return v;
}

/* ---- norm and turn ---- */

template <int HALF>
__device__ static inline struct turn_by turn_of(const struct cuda_heads &call, const float *weight,
                                                uint32_t at, float factor, uint32_t turn) {
    const struct numbers<4> cosine = read_f32<4>(call.cosines + turn);
    const struct numbers<4> sine = read_f32<4>(call.sines + turn);
    struct turn_by by = {cosine, sine, cosine, sine};
    struct numbers<4> low = {{factor, factor, factor, factor}}, high = low;
    if (weight) low = read_f32<4>(weight + at), high = read_f32<4>(weight + HALF + at);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        by.low_cos.at[i] *= low.at[i], by.low_sin.at[i] *= low.at[i];
        by.high_cos.at[i] *= high.at[i], by.high_sin.at[i] *= high.at[i];
    }
    return by;
}

/* `factor` is the row's, which turn_of() has where there is no norm. */
template <int LANES>
__device__ static inline void turn_halves(const struct turn_by &by, bool has_norm, float factor,
                                          float epsilon, struct halves *v) {
    if (has_norm) {
        float squares = v->low.at[0] * v->low.at[0];
#pragma unroll
        for (int i = 1; i < 4; i++) squares = fmaf(v->low.at[i], v->low.at[i], squares);
#pragma unroll
        for (int i = 0; i < 4; i++) squares = fmaf(v->high.at[i], v->high.at[i], squares);
        const float mean = lanes_sum<LANES>(CUDA_ALL_LANES, squares) * (1.0f / (LANES * EACH));
        factor *= cuda_rsqrt(fmaf(mean * factor, factor, epsilon));
#pragma unroll
        for (int i = 0; i < 4; i++) v->low.at[i] *= factor, v->high.at[i] *= factor;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = v->low.at[i], high = v->high.at[i];
        v->low.at[i] = low * by.low_cos.at[i] - high * by.high_sin.at[i];
        v->high.at[i] = high * by.high_cos.at[i] + low * by.low_sin.at[i];
    }
}

/* The row's factor times that of the norm of a head without weights. */
template <int LANES>
__device__ static inline float normed_factor(const struct halves &v, float factor, float epsilon) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) squares = fmaf(v.low.at[i], v.low.at[i], squares);
#pragma unroll
    for (int i = 0; i < 4; i++) squares = fmaf(v.high.at[i], v.high.at[i], squares);
    const float mean = lanes_sum<LANES>(CUDA_ALL_LANES, squares) * (1.0f / (LANES * EACH));
    return factor * cuda_rsqrt(fmaf(mean * factor, factor, epsilon));
}

/* ---- pages ---- */

template <int LANES, bool IS_E4M3>
__device__ static inline void store_halves(const struct cuda_heads &call, bool is_value,
                                           uint32_t kv_head, uint32_t slot, uint32_t at,
                                           float factor, struct halves v) {
    const size_t page_head = (size_t)(slot / PAGE_TOKENS) * call.page_heads + kv_head;
    const uint32_t token = slot % PAGE_TOKENS;
    const size_t element = (page_head * PAGE_TOKENS + token) * (LANES * EACH) + at;
    void *pool = is_value ? call.v : call.k;
    float most = 0;
    if (IS_E4M3) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            most = fmaxf(most, fmaxf(fabsf(v.low.at[i]), fabsf(v.high.at[i])));
        most = lanes_max<LANES>(CUDA_ALL_LANES, most) * factor;
        const __half scale = kv_scale_of(most);
        factor *= cuda_reciprocal(__half2float(scale));
        const size_t scale_head = (size_t)(slot / PAGE_TOKENS) * call.scale_heads + kv_head;
        if (threadIdx.x % LANES == 0)
            call.kv_scales[scale_head * 2 * PAGE_TOKENS + (is_value ? PAGE_TOKENS : 0) + token] =
                __half_as_ushort(scale);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) v.low.at[i] *= factor, v.high.at[i] *= factor;
    if (IS_E4M3) {
        uint8_t *to = (uint8_t *)pool + element;
        store<CUDA_E4M3>({to, CUDA_E4M3, 0, NULL}, 0, 0, v.low);
        store<CUDA_E4M3>({to + LANES * 4, CUDA_E4M3, 0, NULL}, 0, 0, v.high);
    } else {
        uint16_t *to = (uint16_t *)pool + element;
        write_bf16(v.low, to), write_bf16(v.high, to + LANES * 4);
    }
}

/* ---- the kernel ---- */

/* Needs halves_are_even(). */
template <int IN, int LANES, bool IS_E4M3, bool HAS_BIAS, int THREADS>
__global__ void __launch_bounds__(THREADS, HALVES_MULTIPROCESSOR_THREADS / THREADS)
    heads_halves(struct cuda_heads call) {
    constexpr uint32_t D = LANES * EACH, HALF = D / 2, STEP = THREADS / LANES;
    /* Heads of a thread that are on their way. */
    constexpr uint32_t AHEAD = LANES == 32 ? 1 : IN == IN_BF16 && THREADS < HALVES_THREADS ? 3 : 2;
    const size_t row = blockIdx.x;
    const uint32_t at = threadIdx.x % LANES * 4, count = call.heads + 2 * call.kv_heads;
    uint32_t head = threadIdx.x / LANES, column = head * D + at;
    if (head >= count) return wait_for_before();
    const char *sums = (const char *)call.in.sums + row * call.in.stride * (IN == IN_INT32 ? 4 : 2);
    uint16_t *q = call.q + row * call.q_stride;
    struct raw_halves<IN> raw[AHEAD];
    struct raw_scales scales = read_scales<IN, HALF>(call.in.column_scale, column);
    wait_for_before();
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        if (head + i * STEP < count) raw[i] = read_halves<IN, HALF>(sums, column + i * STEP * D);
    const float row_scale = IN != IN_BF16 ? call.in.row_scale[row] : 1.0f;
    const float factor = HAS_BIAS ? 1.0f : row_scale; /* a bias is added to scaled numbers */
    const uint32_t slot = call.slots[row], turn = call.positions[row] * HALF + at;
    let_next_start();
    struct turn_by by = turn_of<HALF>(call, call.q_norm, at, factor, turn);
    bool is_q = true;
    while (true) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            const struct raw_halves<IN> now = raw[i];
            const struct raw_scales by_now = scales;
            if (head + STEP < count)
                scales = read_scales<IN, HALF>(call.in.column_scale, column + STEP * D);
            if (head + AHEAD * STEP < count)
                raw[i] = read_halves<IN, HALF>(sums, column + AHEAD * STEP * D);
            struct halves v =
                halves_of<IN, HALF, HAS_BIAS>(call.in, row_scale, column, now, by_now);
            if (head < call.heads) {
                turn_halves<LANES>(by, call.q_norm, factor, call.epsilon, &v);
                write_bf16(v.low, q + column), write_bf16(v.high, q + column + HALF);
            } else {
                const bool is_value = head >= call.heads + call.kv_heads;
                if (is_q && !is_value)
                    by = turn_of<HALF>(call, call.k_norm, at, factor, turn), is_q = false;
                if (!is_value) turn_halves<LANES>(by, call.k_norm, factor, call.epsilon, &v);
                float by_all = is_value ? factor : 1.0f;
                if (is_value && call.norms_v)
                    by_all = normed_factor<LANES>(v, factor, call.epsilon);
                store_halves<LANES, IS_E4M3>(call, is_value,
                                             head - call.heads - (is_value ? call.kv_heads : 0),
                                             slot, at, by_all, v);
            }
            head += STEP, column += STEP * D;
            if (head >= count) return;
        }
    }
}
