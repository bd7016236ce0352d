/* SPDX-License-Identifier: Apache-2.0 */

/* heads: norms and turns the heads of q and k, stores k and v into their pages.
 *
 * A block a row; LANES threads hold a head, eight numbers each. The row's cosines and sines are
 * read once, into shared memory, and serve all its heads. The partner of a number is in a lane half
 * the turning part away, or in shared memory where that is no whole number of lanes. Heads that
 * turn whole, by halves, have a faster kernel, and those of 512 one of their own. */

#include "gpu/cuda/heads_halves.cuh"
#include "gpu/cuda/heads_wide.cuh"
#include "gpu/cuda/modules.h"

#define THREADS 256
#define HALF_MAX 128
#define BLOCKS 5 /* a multiprocessor: 48 registers a thread */

/* The cosines and sines of a row's position: each head of it needs them. */
struct turns {
    float cosines[HALF_MAX];
    float sines[HALF_MAX];
};

__device__ static inline void read_turns(const struct cuda_heads &call, size_t row,
                                         struct turns *turns) {
    uint32_t half = call.rotary_dim / 2;
    size_t begin = (size_t)call.positions[row] * half;
    for (uint32_t i = threadIdx.x; i < half; i += THREADS) {
        turns->cosines[i] = call.cosines[begin + i];
        turns->sines[i] = call.sines[begin + i];
    }
}

/* v cos ± other sin for eight numbers of a head, of which `at` is the first. */
__device__ static inline void turn_eight(const struct cuda_heads &call, const struct turns *turns,
                                         uint32_t at, const eight &other, eight *v) {
    uint32_t half = call.rotary_dim / 2;
    if (!call.interleaved && half % EACH == 0) { /* all of one kind, at a multiple of 16 bytes */
        if (at >= call.rotary_dim) return;
        eight cosine = read_f32(turns->cosines + (at < half ? at : at - half));
        eight sine = read_f32(turns->sines + (at < half ? at : at - half));
        float sign = at < half ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            v->at[i] = v->at[i] * cosine.at[i] + other.at[i] * (sign * sine.at[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint32_t element = at + i;
        if (element >= call.rotary_dim) continue;
        uint32_t pair = call.interleaved ? element / 2 : element < half ? element : element - half;
        bool is_first = call.interleaved ? element % 2 == 0 : element < half;
        float sine = turns->sines[pair];
        v->at[i] = v->at[i] * turns->cosines[pair] + other.at[i] * (is_first ? -sine : sine);
    }
}

/* The lanes of this thread's head: heads of one warp may be of different kinds and part ways. */
template <int LANES> __device__ static inline uint32_t head_lanes(void) {
    return LANES == 32 ? ~0u : ((1u << LANES % 32) - 1u) << (threadIdx.x % 32 / LANES * LANES);
}

/* The other number of each pair. `share` holds the heads that the block is at. */
template <int LANES>
__device__ static inline eight partners_of(const struct cuda_heads &call, uint32_t at,
                                           const eight &v, float *share) {
    eight other;
    uint32_t half = call.rotary_dim / 2, lane = threadIdx.x % LANES;
    if (call.interleaved) {
#pragma unroll
        for (int i = 0; i < EACH; i++) other.at[i] = v.at[i ^ 1];
    } else if (half % EACH == 0) {
        uint32_t apart = half / EACH;
        uint32_t from = at < half ? lane + apart : lane >= apart ? lane - apart : lane;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            other.at[i] = __shfl_sync(head_lanes<LANES>(), v.at[i], from, LANES);
    } else {
        float *head = share + (threadIdx.x - lane) * EACH;
        __syncwarp(head_lanes<LANES>());
#pragma unroll
        for (int i = 0; i < EACH; i++) head[lane * EACH + i] = v.at[i];
        __syncwarp(head_lanes<LANES>());
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t element = at + i;
            uint32_t from = element < half ? element + half : element - half;
            other.at[i] = element < call.rotary_dim ? head[from] : 0.0f;
        }
    }
    return other;
}

/* Stores eight of a head's numbers at its token in its page. */
template <int LANES, bool IS_E4M3>
__device__ static inline void store_kv(const struct cuda_heads &call, bool is_value, uint32_t head,
                                       uint32_t slot, uint32_t at, bool is_active, eight v) {
    size_t page_head = (size_t)(slot / PAGE_TOKENS) * call.page_heads + head;
    uint32_t token = slot % PAGE_TOKENS;
    size_t offset = (page_head * PAGE_TOKENS + token) * call.head_dim + at;
    void *pool = is_value ? call.v : call.k;
    if (!IS_E4M3) {
        if (is_active) write_bf16(v, (uint16_t *)pool + offset);
        return;
    }
    float most = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) most = fmaxf(most, is_active ? fabsf(v.at[i]) : 0.0f);
    most = lanes_max<LANES>(head_lanes<LANES>(), most);
    __half scale = kv_scale_of(most);
    float factor = __frcp_rn(__half2float(scale));
#pragma unroll
    for (int i = 0; i < EACH; i++) v.at[i] *= factor;
    if (is_active) store<CUDA_E4M3>({(uint8_t *)pool + offset, CUDA_E4M3, 0, NULL}, 0, 0, v);
    const size_t scale_head = (size_t)(slot / PAGE_TOKENS) * call.scale_heads + head;
    if (at == 0)
        call.kv_scales[scale_head * 2 * PAGE_TOKENS + (is_value ? PAGE_TOKENS : 0) + token] =
            __half_as_ushort(scale);
}

/* `weight` may be NULL. */
template <int LANES>
__device__ static inline void norm_head(const struct cuda_heads &call, const float *weight,
                                        uint32_t at, bool is_active, eight *v) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) squares += is_active ? v->at[i] * v->at[i] : 0.0f;
    squares = lanes_sum<LANES>(head_lanes<LANES>(), squares);
    const float part = 1.0f / (float)call.head_dim;
    float factor = rsqrtf(squares * part + call.epsilon);
    if (!is_active) return;
    eight w = {{1, 1, 1, 1, 1, 1, 1, 1}};
    if (weight) w = read_f32(weight + at);
#pragma unroll
    for (int i = 0; i < EACH; i++) v->at[i] *= factor * w.at[i];
}

/* Eight numbers of one head, from sums to where they belong. */
template <int LANES, bool IS_E4M3>
__device__ static inline void do_head(const struct cuda_heads &call, const struct turns *turns,
                                      size_t row, uint32_t head, uint32_t slot, eight v,
                                      float *share) {
    uint32_t at = threadIdx.x % LANES * EACH;
    bool is_active = at < call.head_dim, is_q = head < call.heads;
    bool is_value = head >= call.heads + call.kv_heads;
    if (!is_value) {
        const float *weight = is_q ? call.q_norm : call.k_norm;
        if (weight) norm_head<LANES>(call, weight, at, is_active, &v);
        if (call.cosines) turn_eight(call, turns, at, partners_of<LANES>(call, at, v, share), &v);
    } else if (call.norms_v) {
        norm_head<LANES>(call, NULL, at, is_active, &v);
    }
    if (is_q) {
        uint16_t *to = call.q + row * call.q_stride + head * call.head_dim + at;
        if (is_active) write_bf16(v, to);
    } else {
        uint32_t kv_head = head - call.heads - (is_value ? call.kv_heads : 0);
        store_kv<LANES, IS_E4M3>(call, is_value, kv_head, slot, at, is_active, v);
    }
}

template <int IN, int LANES, bool IS_E4M3>
__global__ void __launch_bounds__(THREADS, BLOCKS) heads_rows(struct cuda_heads call) {
    CUDA_SHARED float share[THREADS * EACH];
    CUDA_SHARED __align__(16) struct turns turns;
    const uint32_t step = THREADS / LANES;
    size_t row = blockIdx.x;
    uint32_t at = threadIdx.x % LANES * EACH, head = threadIdx.x / LANES;
    uint32_t count = call.heads + 2 * call.kv_heads;
    struct raw_sums<IN> raw;
    wait_for_before();
    let_next_start();
    if (at < call.head_dim && head < count)
        raw = read_sums<IN>(call.in, row, head * call.head_dim + at);
    float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    uint32_t slot = call.slots[row];
    if (call.cosines) read_turns(call, row, &turns);
    __syncthreads();
    for (; head < count; head += step) { /* the next head is on its way while one is at work */
        eight v = {};
        if (at < call.head_dim) {
            uint32_t column = head * call.head_dim + at;
            v = sums_of<IN>(call.in, row_scale, column, raw);
            if (head + step < count)
                raw = read_sums<IN>(call.in, row, column + step * call.head_dim);
        }
        do_head<LANES, IS_E4M3>(call, &turns, row, head, slot, v, share);
    }
}

struct heads_launch {
    void (*kernel)(struct cuda_heads call);
    uint32_t threads; /* threads of a block */
};

template <int IN, int LANES> static struct heads_launch launch_of(const struct cuda_heads *call) {
    return {call->kv_scales ? heads_rows<IN, LANES, true> : heads_rows<IN, LANES, false>, THREADS};
}

template <int IN, int LANES, bool HAS_BIAS, int BLOCK>
static struct heads_launch halves_of_threads(const struct cuda_heads *call) {
    return {call->kv_scales ? heads_halves<IN, LANES, true, HAS_BIAS, BLOCK>
                            : heads_halves<IN, LANES, false, HAS_BIAS, BLOCK>,
            BLOCK};
}

template <int IN, int LANES>
static struct heads_launch halves_launch_of(const struct cuda_heads *call) {
    if (call->in.bias) return halves_of_threads<IN, LANES, true, HALVES_THREADS>(call);
    return call->rows < HALVES_MANY_ROWS
               ? halves_of_threads<IN, LANES, false, HALVES_THREADS>(call)
               : halves_of_threads<IN, LANES, false, HALVES_THREADS_FEW>(call);
}

template <int IN> static struct heads_launch launch_with(const struct cuda_heads *call) {
    if (call->head_dim == WIDE_DIM) return {heads_wide<IN>, WIDE_THREADS};
    if (call->cosines && !call->interleaved && call->rotary_dim == call->head_dim &&
        256 % call->head_dim == 0 && halves_are_even(call)) {
        if (call->head_dim == 64) return halves_launch_of<IN, 8>(call);
        if (call->head_dim == 128) return halves_launch_of<IN, 16>(call);
        if (call->head_dim == 256) return halves_launch_of<IN, 32>(call);
    }
    if (call->head_dim <= 8 * EACH) return launch_of<IN, 8>(call);
    if (call->head_dim <= 16 * EACH) return launch_of<IN, 16>(call);
    return launch_of<IN, 32>(call);
}

enum err cuda_heads(const struct cuda_heads *call, struct CUstream_st *stream,
                    struct error *error) {
    if (call->rows == 0) return OK;
    const bool is_wide = call->head_dim == WIDE_DIM && wide_is_known(call);
    if (call->head_dim % EACH != 0 || (call->head_dim > 32 * EACH && !is_wide) ||
        call->rotary_dim % 2 != 0 || call->page_heads < call->kv_heads ||
        (call->kv_scales && call->scale_heads < call->page_heads) ||
        call->rotary_dim > call->head_dim || !is_at_16(call->cosines) || !is_at_16(call->sines) ||
        call->q_stride % EACH != 0 || !is_product_wide(&call->in) || !is_at_16(call->q) ||
        !is_at_16(call->k) || !is_at_16(call->v))
        return err_set(error, ERR_INVALID, "heads of %u, %u of them turning, cannot be stored",
                       call->head_dim, call->rotary_dim);
    struct heads_launch launch;
    switch (in_kind_of(&call->in)) {
    case IN_BF16_SCALED: launch = launch_with<IN_BF16_SCALED>(call); break;
    case IN_INT32: launch = launch_with<IN_INT32>(call); break;
    default: launch = launch_with<IN_BF16>(call); break;
    }
    return launch_dependent("heads", error, stream, call->rows, launch.threads, 0, launch.kernel,
                            *call);
}

CUDA_MODULE(heads, heads_rows<IN_BF16, 8, false>)
