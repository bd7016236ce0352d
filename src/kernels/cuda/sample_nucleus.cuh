/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample_nucleus: what top_p keeps of a row, in two walks however many tokens that is.
 *
 * The first walk counts the tokens by their distance to the best, in bins. Counts and the weights
 * of the bins' middles tell where the least key to keep lies: for many tokens, whose errors cancel
 * out, to a small part of a bin. The second walk adds up the exact weights of all tokens and of those
 * before that bracket, and lists the bracket; the key is then found in the list. Bins only guess:
 * where the exact sums say that the key is not in the bracket, another walk tries a wider one, and
 * where the bracket is too long for the list, the caller goes another way. */

#include "kernels/cuda/sample.cuh"

#define BINS 4096
#define BIN_PLACES ((BINS - 1) / DRAW_NEAR) /* bins per unit of distance · factor */
/* The share of all weight by which the guess is off at most: half a bin's width in the exponent, if
 * all tokens lie to one side of their bins' middles. */
#define GUESS_OFF (0.55f / BIN_PLACES)
/* Tokens that lie anywhere in their bins make the guess off by less. Its deviation is 1/√12 of a bin
 * over the root of the number of tokens, as many as would weigh the same if all were alike; that is
 * at least the weight of all in weights of the best. Six deviations, in parts of GUESS_OFF: */
#define GUESS_DEVIATIONS 3.2f /* 6 / √12 / 0.55 */

/* What the warps found in their parts of a walk. */
struct parts {
    uint64_t sums[WARPS];   /* weight above the cut */
    uint32_t equals[WARPS]; /* how many equal it */
};

struct bracket {
    uint32_t first, last; /* bins */
};

struct nucleus_memory {
    uint32_t bins[BINS + 1]; /* tokens in bins 0..i, after find_brackets; the last has the others */
    float masses[WARPS];
    struct bracket brackets[2]; /* by six deviations, and by GUESS_OFF */
    uint32_t middle;            /* a bin */
};

/* Counts the tokens whose logits reach `floor`, and perhaps some that nearly do. */
__device__ static inline void count_bins(const struct view &view, struct nucleus_memory *nucleus,
                                         const struct scale &scale, float floor) {
    const float farthest = fminf(distance(floor, scale), nextafterf(DRAW_NEAR, 0.0f));
    for (uint32_t i = threadIdx.x; i < BINS; i += THREADS) nucleus->bins[i] = 0;
    __syncthreads();
    walk_fours(view, [&](uint32_t, const struct four(&fours)[FOURS], uint32_t) {
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const float x = distance(fours[i].at[k], scale);
                const float place = fmaf(x, BIN_PLACES, 8388608.0f); /* 2^23: to a whole number */
                const uint32_t bin = __float_as_uint(place) & 0x7fffffu;
                atomicAdd(&nucleus->bins[x <= farthest ? bin : BINS], 1u); /* no branch */
            }
    });
    __syncthreads();
}

/* The sums of all threads before this one, and of all. */
template <class T> struct before { T mine, all; };

template <class T> __device__ static inline struct before<T> block_before(T value, T *parts) {
    T upto = warp_prefix(value), mine = 0, all = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 31) parts[threadIdx.x / 32] = upto;
    __syncthreads();
    for (uint32_t w = 0; w < WARPS; w++) {
        if (w < threadIdx.x / 32) mine += parts[w];
        all += parts[w];
    }
    return {mine + upto - value, all};
}

/* Finds the brackets of the token at which the weights reach `share` of all. The second is the first
 * when it holds more tokens than the list; false when the first does. */
__device__ static inline bool
find_brackets(struct nucleus_memory *nucleus, struct parts *parts, float share) {
    constexpr uint32_t EACH = BINS / THREADS;
    const uint32_t from = threadIdx.x * EACH;
    struct bracket *likely = &nucleus->brackets[0], *sure = &nucleus->brackets[1];
    float mass = 0, masses[EACH];
    uint32_t count = 0, counts[EACH];
    if (threadIdx.x == 0) *likely = *sure = {0, BINS - 1}, nucleus->middle = BINS - 1;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        count += nucleus->bins[from + i], counts[i] = count;
        mass += (float)nucleus->bins[from + i] * __expf(-(float)(from + i) / BIN_PLACES);
        masses[i] = mass;
    }
    struct before<uint32_t> tokens = block_before(count, parts->equals);
    struct before<float> weights = block_before(mass, nucleus->masses);
    const float off = GUESS_OFF * fminf(1.0f, GUESS_DEVIATIONS * rsqrtf(weights.all));
    const float goals[5] = {share - GUESS_OFF, share - off, share, share + off, share + GUESS_OFF};
    uint32_t *bins[5] = {&sure->first, &likely->first, &nucleus->middle, &likely->last,
                         &sure->last};
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        float upto = weights.mine + masses[i];
        float under = weights.mine + (i > 0 ? masses[i - 1] : 0);
        nucleus->bins[from + i] = tokens.mine + counts[i];
#pragma unroll
        for (int g = 0; g < 5; g++) {
            float goal = goals[g] * weights.all;
            if (under < goal && upto >= goal) *bins[g] = from + i; /* one thread of the block */
        }
    }
    __syncthreads();
    struct bracket narrow = *likely, wide = *sure;
    const uint32_t middle = nucleus->middle;
    auto fits = [&](const struct bracket &bracket) {
        const uint32_t before = bracket.first > 0 ? nucleus->bins[bracket.first - 1] : 0;
        return bracket.first <= bracket.last && nucleus->bins[bracket.last] - before <= LIST_MAX;
    };
    if (!fits(narrow)) narrow = {middle > 0 ? middle - 1 : 0, min(middle + 1, BINS - 1u)};
    if (!fits(wide)) wide = narrow;
    const bool is_short = fits(narrow);
    __syncthreads();
    if (threadIdx.x == 0) *likely = narrow, *sure = wide;
    __syncthreads();
    return is_short;
}

/* Lists the bracket; list_count is beyond LIST_MAX if it does not fit. parts->sums become the weights
 * before it. Returns to all threads the weight of all tokens that reach `floor`. */
__device__ static inline uint64_t weigh_around(const struct view &view,
                                               struct select_memory *memory,
                                               const struct bracket &bracket, struct parts *parts,
                                               const struct scale &scale, float floor) {
    const float first = ((float)bracket.first - 0.5f) / BIN_PLACES;
    const float last = ((float)bracket.last + 0.5f) / BIN_PLACES;
    uint64_t before = 0, all = 0;
    if (threadIdx.x == 0) memory->list_count = 0;
    __syncthreads();
    walk_fours(view, [&](uint32_t id, const struct four(&fours)[FOURS], uint32_t) {
        uint32_t listed = 0; /* bits */
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const float logit = fours[i].at[k], x = distance(logit, scale);
                const bool is_in = logit >= floor && x < DRAW_NEAR; /* not NaN */
                const bool is_before = x < first;
                const uint32_t weight = weight_if(is_in, x);
                all += weight;
                before += is_before ? weight : 0;
                listed |= is_in && !is_before && x <= last ? 1u << (i * 4 + k) : 0;
            }
        for (; listed > 0; listed &= listed - 1) {
            const uint32_t bit = (uint32_t)__ffs((int)listed) - 1;
            const uint32_t own = id + bit / 4 * 128 + bit % 4;
            const uint32_t at = atomicAdd(&memory->list_count, 1u);
            if (at < LIST_MAX)
                memory->list[at] = {draw_key(cleaned(__ldcg(view.logits + own))), own};
        }
    });
    before = warp_sum(before);
    if (threadIdx.x % 32 == 0) parts->sums[threadIdx.x / 32] = before;
    return block_sum(all, memory->parts[0]);
}

/* Adds to each warp's part what the list has of it above the cut, and counts what equals that. */
__device__ static inline void finish_parts(const struct view &view,
                                           const struct select_memory *memory, struct parts *parts,
                                           const struct cut &cut, const struct scale &scale) {
    uint32_t begin = view.begin + threadIdx.x / 32 * view.segment, equals = 0;
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < memory->list_count; i += 32) {
        const struct entry entry = memory->list[i];
        if (entry.id - begin >= view.segment || entry.key < cut.key) continue;
        if (entry.key == cut.key)
            equals++;
        else
            sum += key_weight(entry.key, scale);
    }
    sum = warp_sum(sum);
    equals = warp_sum(equals);
    if (threadIdx.x % 32 == 0) {
        parts->sums[threadIdx.x / 32] += sum;
        parts->equals[threadIdx.x / 32] = equals;
    }
    __syncthreads();
}

/* What top_p keeps of the keys from `least` on. True when *ret_cut and `parts`, those of a walk
 * over the whole row, are known; false leaves both undefined. The whole block calls it. */
__device__ static inline bool nucleus_of(const struct view &view, struct select_memory *memory,
                                         struct nucleus_memory *nucleus, struct parts *parts,
                                         const struct scale &scale, uint32_t least, float top_p,
                                         struct cut *ret_cut) {
    const float floor = logit_of(least);
    if (scale.max >= FLT_MAX) return false; /* there may be infinite logits */
    count_bins(view, nucleus, scale, floor);
    if (!find_brackets(nucleus, parts, top_p)) return false;
    const struct bracket *brackets = nucleus->brackets;
    for (int i = 0; i < 2; i++) {
        if (i > 0 && brackets[1].first == brackets[0].first && brackets[1].last == brackets[0].last)
            return false;
        const uint64_t all = weigh_around(view, memory, brackets[i], parts, scale, floor);
        if (memory->list_count > LIST_MAX) return false;
        uint64_t above = 0, listed = 0;
        for (uint32_t w = 0; w < WARPS; w++) above += parts->sums[w];
        for (uint32_t e = threadIdx.x; e < memory->list_count; e += THREADS)
            listed += key_weight(memory->list[e].key, scale);
        listed = block_sum(listed, memory->parts[0]);
        const uint64_t enough = draw_enough(top_p, all);
        if (above >= enough || above + listed < enough) continue;
        *ret_cut = select_cut<true>(memory, enough - above, scale, [&](auto visit) {
            for (uint32_t e = threadIdx.x; e < memory->list_count; e += THREADS)
                visit(memory->list[e].key);
        });
        if (ret_cut->key == DRAW_KEY_NONE) return false;
        finish_parts(view, memory, parts, *ret_cut, scale);
        return true;
    }
    return false;
}
