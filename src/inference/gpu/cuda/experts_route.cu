/* SPDX-License-Identifier: Apache-2.0 */

/* experts_route: the experts of each row, and all pairs of row and expert in the order of experts.
 *
 * A warp chooses for a row, whose logits stay in its registers. Then each expert has a block, which
 * reads all choices: it counts those of every expert for its place in the order, and ranks its
 * own. So blocks need nothing of each other, and the only atomic numbers are counts. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/experts_tiles.h"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/ptx.cuh"

#define WARPS 4 /* rows of a block that chooses */
#define ORDER_THREADS 1024
#define ORDER_WARPS (ORDER_THREADS / 32)
#define CODES 8 /* choices that a thread reads at once, 16 B */
#define GROUPS_MAX 32
#define LOG2_E 1.44269504f

/* ---- the choice ---- */

/* A number's place among all numbers, at least 1. NaN is above infinity, or below its negative. */
__device__ static inline uint32_t rank_of(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rank = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return rank > 0 ? rank : 1;
}

__device__ static inline float warp_most(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value = fmaxf(value, __shfl_xor_sync(CUDA_ALL_LANES, value, apart));
    return value;
}

__device__ static inline float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value += __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
    return value;
}

/* What a lane knows of experts lane, lane + 32, …: s before its division by the sum of all, and the
 * rank of the choice, 0 where there is none. */
template <int SPANS> struct scores {
    float s[SPANS];
    uint32_t rank[SPANS];
    float sum; /* sum of all */
};

template <int SPANS>
__device__ static inline struct scores<SPANS> scores_of(const struct cuda_route &call, size_t row,
                                                        float *choices) {
    const uint32_t lane = threadIdx.x % 32, experts = call.to.experts;
    const bool is_softmax = call.scores == CUDA_SCORES_SOFTMAX;
    struct scores<SPANS> ret = {};
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < SPANS; i++) {
        const uint32_t expert = i * 32 + lane;
        float logit = -INFINITY;
        if (expert < experts) {
            const size_t at = row * call.stride + expert;
            logit = call.is_f32
                        ? ((const float *)call.logits)[at]
                        : __uint_as_float((uint32_t)((const uint16_t *)call.logits)[at] << 16);
            if (call.bias) logit += call.bias[expert];
        }
        ret.s[i] = logit;
        most = fmaxf(most, logit);
    }
    most = warp_most(most);
#pragma unroll
    for (int i = 0; i < SPANS; i++) {
        const uint32_t expert = i * 32 + lane;
        const float logit = ret.s[i];
        float choice = logit;
        ret.s[i] = expert >= experts ? 0.0f
                   : is_softmax      ? cuda_exp2((logit - most) * LOG2_E)
                                     : 1.0f / (1.0f + expf(-logit));
        if (!is_softmax)
            choice =
                ret.s[i] + (call.choice_bias && expert < experts ? call.choice_bias[expert] : 0);
        ret.sum += ret.s[i];
        ret.rank[i] = expert < experts ? rank_of(choice) : 0;
        if (call.groups > 0 && expert < experts) choices[expert] = choice;
    }
    ret.sum = warp_sum(ret.sum);
    return ret;
}

/* Bits of the groups that are kept. A lane has a group; its two best are found by rank. */
__device__ static inline uint32_t
kept_groups(const struct cuda_route &call, const float *choices) {
    const uint32_t lane = threadIdx.x % 32, size = call.to.experts / call.groups;
    float first = -INFINITY, second = -INFINITY;
    __syncwarp();
    for (uint32_t i = 0; lane < call.groups && i < size; i++) {
        const float choice = choices[lane * size + i];
        second = rank_of(choice) > rank_of(first)    ? first
                 : rank_of(choice) > rank_of(second) ? choice
                                                     : second;
        first = rank_of(choice) > rank_of(first) ? choice : first;
    }
    const float counts = call.groups_by_best ? first : first + second;
    uint32_t rank = lane < call.groups ? rank_of(counts) : 0, kept = 0;
    for (uint32_t i = 0; i < call.groups_kept; i++) {
        const uint32_t most = __reduce_max_sync(CUDA_ALL_LANES, rank);
        const uint32_t best = __reduce_min_sync(CUDA_ALL_LANES, rank == most ? lane : ~0u);
        kept |= 1u << best;
        if (lane == best) rank = 0;
    }
    return kept;
}

/* Lane i gets the i-th choice, and its s. */
template <int SPANS>
__device__ static inline uint32_t choose(struct scores<SPANS> *scores, uint32_t each,
                                         float *ret_s) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < each; i++) {
        uint32_t rank = 0, expert = ~0u;
        float s = 0;
#pragma unroll
        for (int j = 0; j < SPANS; j++)
            if (scores->rank[j] > rank) rank = scores->rank[j], expert = j * 32 + lane;
        const uint32_t most = __reduce_max_sync(CUDA_ALL_LANES, rank);
        expert = __reduce_min_sync(CUDA_ALL_LANES, rank == most ? expert : ~0u);
#pragma unroll
        for (int j = 0; j < SPANS; j++)
            if (expert == j * 32 + lane) scores->rank[j] = 0, s = scores->s[j];
        s = __shfl_sync(CUDA_ALL_LANES, s, expert % 32);
        if (lane == i) chosen = expert, *ret_s = s;
    }
    return chosen;
}

template <int SPANS>
__global__ void __launch_bounds__(WARPS * 32) choose_experts(struct cuda_route call) {
    CUDA_SHARED float choices[WARPS][32 * SPANS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, each = call.to.each;
    const size_t row = blockIdx.x * (size_t)WARPS + warp;
    float s = 0, sum = 0;
    wait_for_before();
    let_next_start();
    if (row >= call.to.rows) return;
    struct scores<SPANS> scores = scores_of<SPANS>(call, row, choices[warp]);
    if (call.groups > 0) {
        const uint32_t kept = kept_groups(call, choices[warp]);
        const uint32_t size = call.to.experts / call.groups;
#pragma unroll
        for (int i = 0; i < SPANS; i++) {
            const uint32_t group = (i * 32 + lane) / size;
            if (group < call.groups && !(kept >> group & 1)) scores.rank[i] = 0;
        }
    }
    const uint32_t expert = choose<SPANS>(&scores, each, &s);
    for (uint32_t i = 0; i < each; i++) sum += __shfl_sync(CUDA_ALL_LANES, s, i);
    if (lane >= each) return;
    float weight = s;
    if (call.scores == CUDA_SCORES_SIGMOID && call.is_renormalised) weight /= sum + 1e-20f;
    if (call.scores == CUDA_SCORES_SOFTMAX) weight /= call.is_renormalised ? sum : scores.sum;
    weight *= call.scale;
    if (call.expert_scale) weight *= call.expert_scale[expert];
    call.to.chosen[row * each + lane] = (uint16_t)expert;
    call.to.weights[row * each + lane] = weight;
}

/* ---- the order ---- */

/* Choices pair..pair + 7; 0xffff beyond the last. */
struct codes {
    uint16_t at[CODES];
};
__device__ static inline struct codes codes_at(const uint16_t *chosen, uint32_t pair,
                                               uint32_t pairs) {
    union {
        uint4 words;
        struct codes codes;
    } ret;
    if (pair + CODES <= pairs) {
        ret.words = *(const uint4 *)(chosen + pair);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < CODES; i++)
            ret.codes.at[i] = pair + i < pairs ? chosen[pair + i] : 0xffff;
    }
    return ret.codes;
}

/* Sum over the block, known to all its threads. `parts` (ORDER_WARPS) is read until the next
 * barrier. */
__device__ static inline uint32_t block_sum(uint32_t value, uint32_t *parts) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value += __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (uint32_t i = 0; i < ORDER_WARPS; i++) value += parts[i];
    return value;
}

/* Writes the expert's pairs of a warp's share, from `place` on, by number. */
__device__ static inline void write_pairs(const struct cuda_expert_order &to, uint32_t expert,
                                          uint32_t begin, uint32_t end, uint32_t place) {
    const uint32_t lane = threadIdx.x % 32, pairs = to.rows * to.each;
    for (uint32_t at = begin; at < end; at += 32 * CODES) {
        const struct codes codes = codes_at(to.chosen, at + lane * CODES, pairs);
        uint32_t mine = 0, before;
#pragma unroll
        for (int i = 0; i < CODES; i++) mine += codes.at[i] == expert;
        uint32_t upto = mine;
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
            const uint32_t below = __shfl_up_sync(CUDA_ALL_LANES, upto, apart);
            if (lane >= (uint32_t)apart) upto += below;
        }
        before = place + upto - mine;
#pragma unroll
        for (int i = 0; i < CODES; i++)
            if (codes.at[i] == expert) to.order[before++] = at + lane * CODES + i;
        place += __shfl_sync(CUDA_ALL_LANES, upto, 31);
    }
}

__global__ void __launch_bounds__(ORDER_THREADS)
    order_pairs(struct cuda_expert_order to, uint32_t tile_rows) {
    CUDA_SHARED uint32_t counts[CUDA_EXPERTS_MAX], of_warp[ORDER_WARPS], parts[2][ORDER_WARPS];
    const uint32_t expert = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t pairs = to.rows * to.each, piece = 32 * CODES;
    const uint32_t share = (pairs + ORDER_WARPS * piece - 1) / (ORDER_WARPS * piece) * piece;
    const uint32_t begin = min(warp * share, pairs), end = min(begin + share, pairs);
    uint32_t mine = 0;
    if (threadIdx.x < CUDA_EXPERTS_MAX) counts[threadIdx.x] = 0;
    __syncthreads();
    wait_for_before();
    let_next_start();
    for (uint32_t at = begin; at < end; at += piece) {
        const struct codes codes = codes_at(to.chosen, at + lane * CODES, pairs);
#pragma unroll
        for (int i = 0; i < CODES; i++) {
            if (codes.at[i] < to.experts) (void)atomicAdd(counts + codes.at[i], 1u);
            mine += codes.at[i] == expert;
        }
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        mine += __shfl_xor_sync(CUDA_ALL_LANES, mine, apart);
    if (lane == 0) of_warp[warp] = mine;
    __syncthreads();
    const uint32_t count = counts[expert];
    const uint32_t before = threadIdx.x < expert ? counts[threadIdx.x] : 0;
    const uint32_t first = block_sum(before, parts[0]);
    const uint32_t tile = block_sum((before + tile_rows - 1) / tile_rows, parts[1]);
    const uint32_t tiles = (count + tile_rows - 1) / tile_rows;
    for (uint32_t i = threadIdx.x; i < tiles; i += ORDER_THREADS)
        to.tiles[1 + tile + i] = {expert, first, count, tile};
    if (expert + 1 == to.experts && threadIdx.x == 0) to.tiles[0] = {0, 0, tile + tiles, 0};
    uint32_t place = first;
    for (uint32_t i = 0; i < warp; i++) place += of_warp[i];
    if (count > 0) write_pairs(to, expert, begin, end, place);
}

/* ---- launches ---- */

static enum err refuse(const struct cuda_route *call, struct error *error) {
    const struct cuda_expert_order *to = &call->to;
    if (to->experts == 0 || to->experts > CUDA_EXPERTS_MAX || to->each == 0 ||
        to->each > CUDA_EXPERTS_PER_ROW_MAX || to->each > to->experts ||
        (uint64_t)to->rows * to->each > UINT32_MAX / 2)
        return err_set(error, ERR_INVALID, "%u of %u experts for %u rows cannot be chosen here",
                       to->each, to->experts, to->rows);
    if (call->groups == 0) return OK;
    if (call->groups > GROUPS_MAX || to->experts % call->groups != 0 ||
        to->experts / call->groups < 2 || call->groups_kept == 0 ||
        call->groups_kept > call->groups ||
        to->each > to->experts / call->groups * call->groups_kept)
        return err_set(error, ERR_INVALID, "%u of %u experts in %u of %u groups cannot be chosen",
                       to->each, to->experts, call->groups_kept, call->groups);
    return OK;
}

typedef void (*choose_kernel)(struct cuda_route call);
static choose_kernel kernel_for(uint32_t experts) {
    if (experts <= 32) return choose_experts<1>;
    if (experts <= 64) return choose_experts<2>;
    if (experts <= 128) return choose_experts<4>;
    return experts <= 256 ? choose_experts<8> : choose_experts<16>;
}

enum err cuda_route(const struct cuda_route *call, struct CUstream_st *stream,
                    struct error *error) {
    enum err err = refuse(call, error);
    if (err != OK || call->to.rows == 0) return err;
    err = launch_dependent("choice of experts", error, stream, (call->to.rows + WARPS - 1) / WARPS,
                           WARPS * 32, 0, kernel_for(call->to.experts), *call);
    if (err != OK) return err;
    return launch_dependent("order of experts", error, stream, call->to.experts, ORDER_THREADS, 0,
                            order_pairs, call->to, cuda_expert_tile_rows());
}

CUDA_MODULE(experts_route, order_pairs)
