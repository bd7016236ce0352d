/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample_nucleus: what top_p keeps of a row, in two walks however many tokens that is.
 *
 * The first walk counts the tokens in bins, by how far they are below a logit. That is the highest,
 * where it is known; or the highest of a few, and the walk finds the highest of all, too. Counts
 * and the weights of the bins' middles tell where the least key to keep lies: for many tokens,
 * whose errors cancel out, to a small part of a bin. The second walk adds up the exact weights of
 * all tokens and of those before that bracket, and lists the bracket; the key is then found in the
 * list. Bins only guess: where the exact sums say that the key is not in the bracket, another walk
 * tries a wider one, and where the bracket is too long for the list, the caller goes another way.
 */

#include "gpu/cuda/sample_select.cuh"

#define BINS 4096
#define BIN_PLACES ((BINS - 2) / DRAW_NEAR) /* bins per unit of distance · factor */
/* The share of all weight by which the guess is off at most: half a bin's width in the exponent, if
 * all tokens lie to one side of their bins' middles. */
#define GUESS_OFF (0.55f / BIN_PLACES)
/* Tokens that lie anywhere in their bins make the guess off by less. Its deviation is 1/√12 of a
 * bin over the root of the number of tokens, as many as would weigh the same if all were alike;
 * that is at least the weight of all in weights of the best. Six deviations, in parts of GUESS_OFF:
 */
#define GUESS_DEVIATIONS 3.2f /* 6 / √12 / 0.55 */
/* A thread's sum of all before it may exceed that of the thread before by its rounding: */
#define SUMS_OFF 1.00001f

/* What the warps found in their parts of a walk. */
struct parts {
    uint64_t sums[WARPS];   /* weight above the cut */
    uint32_t equals[WARPS]; /* how many equal it */
};

struct bracket {
    uint32_t first, last; /* bins */
};

/* Tokens are counted by their distance below `from`: those above it in bin 0, those around the
 * distance i / BIN_PLACES in bin 1 + i, those that are too far or no numbers in the last, BINS. */
struct nucleus_memory {
    uint32_t bins[BINS + 1]; /* tokens in bins 0..i, after find_brackets */
    float masses[WARPS];
    struct bracket brackets[2]; /* by six deviations, and by GUESS_OFF */
    uint32_t middle;            /* a bin */
};

/* What a count of bins began at, and the best token. */
struct survey {
    float from; /* a logit, at most max */
    float max;  /* the highest, at least -FLT_MAX; NaN where a logit is NaN or above FLT_MAX */
    float over; /* weight of the tokens above `from`, in weights of the best */
};

/* The highest of a few logits of the row. */
__device__ static inline float glance(const struct view &view, struct select_memory *memory) {
    const uint32_t begin = view.begin + threadIdx.x / 32 * view.segment;
    const struct four v = read_four(view, begin + threadIdx.x % 32 * 4);
    float most = -FLT_MAX;
#pragma unroll
    for (int i = 0; i < 4; i++) most = fmaxf(most, cleaned(v.at[i]));
    const uint32_t key = draw_key(most);
    return logit_of(block_max(key, (uint32_t *)memory->parts));
}

/* The highest logit of a thread, NaN after a NaN, and the weight of those above `from`. */
struct over {
    float most, weight;
};

__device__ static inline void add_over(struct over *over, const struct four (&fours)[FOURS],
                                       const struct scale &from) {
    float most = over->most;
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) most = cuda_max_or_nan(most, fours[i].at[k]);
    if (most <= from.max) return; /* nearly always */
    over->weight *= __expf((over->most - most) * from.factor);
    over->most = most;
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            if (fours[i].at[k] > from.max)
                over->weight += __expf((fours[i].at[k] - most) * from.factor);
}

/* Counts the tokens whose logits reach `floor`, and perhaps some that nearly do, by their distance
 * to from.max. HAS_OVER: that is not the highest; *ret_over gets what this thread met above it. */
template <bool HAS_OVER>
__device__ static inline void count_bins(const struct view &view, struct nucleus_memory *nucleus,
                                         const struct scale &from, float floor,
                                         struct over *ret_over) {
    const float farthest = fminf(distance(floor, from), nextafterf(DRAW_NEAR, 0.0f));
    const float none = 8388608.0f; /* 2^23: adding it rounds to a whole number, the last 23 bits */
    for (uint32_t i = threadIdx.x; i < BINS; i += THREADS) nucleus->bins[i] = 0;
    __syncthreads();
    struct over over = {from.max, 0};
    walk_fours(view, [&](uint32_t, const struct four(&fours)[FOURS], uint32_t) {
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const float x = distance(fours[i].at[k], from);
                float place = fmaf(x, BIN_PLACES, none + 1);
                if (HAS_OVER) place = fmaxf(place, none);
                const uint32_t bin = __float_as_uint(place) & 0x7fffffu;
                atomicAdd(&nucleus->bins[x <= farthest ? bin : BINS], 1u); /* no branch */
            }
        if (HAS_OVER) add_over(&over, fours, from);
    });
    *ret_over = over;
    __syncthreads();
}

/* Counts the tokens of a row whose highest logit nobody knows, and finds it. */
__device__ static inline struct survey survey_row(const struct view &view,
                                                  struct select_memory *memory,
                                                  struct nucleus_memory *nucleus, float factor) {
    const float from = glance(view, memory);
    struct over over;
    count_bins<true>(view, nucleus, {from, factor}, -FLT_MAX, &over);
    if (__syncthreads_or(!(over.most <= FLT_MAX))) return {from, NAN, 0};
    const uint32_t key = draw_key(over.most);
    const float max = logit_of(block_max(key, (uint32_t *)memory->parts));
    const float weight = over.weight * __expf((over.most - max) * factor);
    return {from, max, block_sum(weight, nucleus->masses)};
}

/* Finds the brackets of the token at which the weights reach `share` of all. The second is the
 * first when it holds more tokens than the list; false when the first does. */
__device__ static inline bool find_brackets(struct nucleus_memory *nucleus, struct parts *parts,
                                            const struct survey &survey, float factor,
                                            float share) {
    constexpr uint32_t EACH = BINS / THREADS;
    const uint32_t from = threadIdx.x * EACH;
    struct bracket *likely = &nucleus->brackets[0], *sure = &nucleus->brackets[1];
    float mass = 0, masses[EACH];
    uint32_t count = 0, counts[EACH];
    if (threadIdx.x == 0) *likely = *sure = {BINS - 1, BINS - 1}, nucleus->middle = BINS - 1;
    const float gap = (survey.max - survey.from) * factor - 1.0f / BIN_PLACES; /* in bin 0 */
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t bin = from + i, held = nucleus->bins[bin];
        count += held, counts[i] = count;
        mass += bin > 0 ? (float)held * __expf(-((float)bin / BIN_PLACES + gap)) : survey.over;
        masses[i] = mass;
    }
    struct before<uint32_t> tokens = block_before(count, parts->equals);
    struct before<float> weights = block_before(mass, nucleus->masses);
    const float off = GUESS_OFF * fminf(1.0f, GUESS_DEVIATIONS * rsqrtf(weights.all));
    const float goals[5] = {share - GUESS_OFF, share - off, share, share + off, share + GUESS_OFF};
    uint32_t *bins[5] = {&sure->first, &likely->first, &nucleus->middle, &likely->last,
                         &sure->last};
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) nucleus->bins[from + i] = tokens.mine + counts[i];
#pragma unroll
    for (int g = 0; g < 5; g++) {
        const float goal = goals[g] * weights.all;
        if (weights.mine + mass < goal || weights.mine > fmaxf(goal, 0) * SUMS_OFF) continue;
        uint32_t bin = from + EACH - 1; /* the first that reaches the goal; seldom of two threads */
#pragma unroll
        for (int i = (int)EACH - 2; i >= 0; i--)
            if (weights.mine + masses[i] >= goal) bin = from + (uint32_t)i;
        atomicMin(bins[g], bin);
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

/* Distances to the best from middle - half to middle + half, both included. */
struct reach {
    float middle, half;
};

__device__ static inline struct reach reach_of(const struct bracket &bracket,
                                               const struct survey &survey, float factor) {
    const float gap = (survey.max - survey.from) * factor; /* in bin 1 */
    float first = ((float)bracket.first - 1.5f) / BIN_PLACES + gap;
    float last = ((float)bracket.last - 0.5f) / BIN_PLACES + gap;
    if (bracket.first == 0) first = -1.0f;
    last = fminf(last, nextafterf(DRAW_NEAR, 0.0f));
    const float middle = 0.5f * (first + last);
    return {middle, last - middle};
}

/* The logit of a bit: bit 4 i + k is of fours[i].at[k]. */
__device__ static inline float logit_at(const struct four (&fours)[FOURS], uint32_t bit) {
    const bool is_odd = bit & 1, is_high = bit & 2;
    float quarters[FOURS];
#pragma unroll
    for (uint32_t i = 0; i < FOURS; i++) {
        const float low = is_odd ? fours[i].at[1] : fours[i].at[0];
        const float high = is_odd ? fours[i].at[3] : fours[i].at[2];
        quarters[i] = is_high ? high : low;
    }
    const float low = bit & 4 ? quarters[1] : quarters[0],
                high = bit & 4 ? quarters[3] : quarters[2];
    return bit & 8 ? high : low;
}

/* Adds up the weights of the tokens that reach `floor` (HAS_FLOOR: some may not), and lists the
 * bracket; list_count is beyond LIST_MAX if it does not fit. parts->sums become the weights before
 * it, parts->equals zeros. Returns to all threads the weight of all. */
template <bool HAS_FLOOR>
__device__ static inline uint64_t
weigh_around(const struct view &view, struct select_memory *memory, const struct reach &reach,
             struct parts *parts, const struct scale &scale, float floor) {
    uint64_t before = 0, all = 0;
    if (threadIdx.x == 0) memory->list_count = 0;
    if (threadIdx.x < WARPS) parts->equals[threadIdx.x] = 0;
    __syncthreads();
    walk_fours<true>(view, [&](uint32_t id, const struct four(&fours)[FOURS], uint32_t) {
        uint32_t listed = 0; /* bits */
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const float logit = fours[i].at[k], x = distance(logit, scale);
                const bool is_high = !HAS_FLOOR || logit >= floor;
                const bool is_around = fabsf(x - reach.middle) <= reach.half; /* not NaN */
                const bool is_before = x < reach.middle && !is_around;
                const uint32_t weight = weight_if(x < DRAW_NEAR && is_high, x);
                all += weight;
                before += is_before ? weight : 0;
                if (is_around && is_high) listed |= 1u << (i * 4 + k);
            }
        for (; listed > 0; listed &= listed - 1) {
            const uint32_t bit = (uint32_t)__ffs((int)listed) - 1;
            const uint32_t at = atomicAdd(&memory->list_count, 1u);
            if (at < LIST_MAX)
                memory->list[at] = {draw_key(logit_at(fours, bit)), id + bit / 4 * 128 + bit % 4};
        }
    });
    before = warp_sum(before);
    if (threadIdx.x % 32 == 0) parts->sums[threadIdx.x / 32] = before;
    return block_sum(all, memory->parts);
}

/* What a list weighs, and its least and highest key. */
struct listed {
    uint64_t weight;
    struct range keys;
};

/* Known to all threads. */
__device__ static inline struct listed weigh_list(struct select_memory *memory,
                                                  const struct scale &scale) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    struct listed sum = {0, {0xffffffffu, 0}};
    for (uint32_t i = threadIdx.x; i < memory->list_count; i += THREADS) {
        const uint32_t key = memory->list[i].key;
        sum.weight += key_weight(key, scale);
        sum.keys = {min(sum.keys.least, key), max(sum.keys.most, key)};
    }
    sum.keys.least = __reduce_min_sync(CUDA_ALL_LANES, sum.keys.least);
    sum.keys.most = __reduce_max_sync(CUDA_ALL_LANES, sum.keys.most);
    if (lane == 0) memory->ranges[warp] = sum.keys;
    sum.weight = block_sum(sum.weight, memory->parts); /* and a barrier */
    sum.keys = memory->ranges[lane % WARPS];
    sum.keys.least = __reduce_min_sync(CUDA_ALL_LANES, sum.keys.least);
    sum.keys.most = __reduce_max_sync(CUDA_ALL_LANES, sum.keys.most);
    return sum;
}

/* Adds to each warp's part what the list has of it above the cut, and counts what equals that. */
__device__ static inline void finish_parts(const struct view &view, struct select_memory *memory,
                                           struct parts *parts, const struct cut &cut,
                                           const struct scale &scale) {
    uint32_t *sums = &memory->digits[0][0];
    if (threadIdx.x < PIECES * WARPS) sums[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < memory->list_count; i += THREADS) {
        const struct entry entry = memory->list[i];
        if (entry.key < cut.key) continue;
        const uint32_t part = (entry.id - view.begin) / view.segment;
        if (entry.key == cut.key)
            atomicAdd(&parts->equals[part], 1u);
        else
            add_worth<true>(&sums[part], WARPS, key_worth<true>(entry.key, scale));
    }
    __syncthreads();
    if (threadIdx.x < WARPS) parts->sums[threadIdx.x] += worth_at(&sums[threadIdx.x], WARPS);
    __syncthreads();
}

/* What top_p keeps of the keys from `least` on, after the tokens were counted from survey.from on.
 * True when *ret_cut and `parts`, those of a walk over the whole row, are known; false leaves both
 * undefined. The whole block calls it. */
__device__ static inline bool nucleus_of(const struct view &view, struct select_memory *memory,
                                         struct nucleus_memory *nucleus, struct parts *parts,
                                         const struct survey &survey, float factor, uint32_t least,
                                         float top_p, struct cut *ret_cut) {
    const struct scale scale = {survey.max, factor};
    if (!find_brackets(nucleus, parts, survey, factor, top_p)) return false;
    const struct bracket *brackets = nucleus->brackets;
    for (int i = 0; i < 2; i++) {
        if (i > 0 && brackets[1].first == brackets[0].first && brackets[1].last == brackets[0].last)
            return false;
        const struct reach reach = reach_of(brackets[i], survey, factor);
        const float floor = logit_of(least);
        const uint64_t all = floor > -FLT_MAX
                                 ? weigh_around<true>(view, memory, reach, parts, scale, floor)
                                 : weigh_around<false>(view, memory, reach, parts, scale, floor);
        if (memory->list_count > LIST_MAX) return false;
        const struct listed listed = weigh_list(memory, scale);
        const uint64_t enough = draw_enough(top_p, all);
        uint64_t above = 0;
        for (uint32_t w = 0; w < WARPS; w++) above += parts->sums[w];
        if (above >= enough || above + listed.weight < enough) continue;
        *ret_cut = select_cut<true>(memory, enough - above, scale, listed.keys, [&](auto visit) {
            for (uint32_t e = threadIdx.x; e < memory->list_count; e += THREADS)
                visit(memory->list[e].key);
        });
        if (ret_cut->key == DRAW_KEY_NONE) return false;
        finish_parts(view, memory, parts, *ret_cut, scale);
        return true;
    }
    return false;
}
