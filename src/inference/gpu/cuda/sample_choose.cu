/* SPDX-License-Identifier: Apache-2.0 */

/* sample_choose: the token of every row that is not greedy and plain, a block per row.
 *
 * sample_nucleus narrows rows that have top_p and no top_k. What top_k keeps is nearly always among
 * few tokens, so the least key to keep is found in a short list. Two bounds make the list. The
 * first is of the best key that each of 512 threads met: the k-th of those is at most the k-th of
 * the row, and those of them that weigh enough together leave nothing out that top_p keeps. The
 * second is the weight of which all the vocabulary together would not fill the rest that top_p
 * leaves out. Where the list is too long all the same, the row itself is walked instead. */

#include "gpu/cuda/modules.h"
#include "gpu/cuda/sample_nucleus.cuh"

#define LN_2 0.693147181f

/* Applies the edits of a row; each token's are one thread's. `kept` gets the logits as they were,
 * and, where a token is held back, kept_free what it would be without that. */
__device__ static inline void edit_row(const struct cuda_sample &call, const struct gpu_draw &draw,
                                       float *logits, bool is_holding) {
    for (uint32_t i = threadIdx.x; i < draw.edit_count; i += THREADS) {
        const struct draw_edit *edit = &call.edits[draw.edit_begin + i];
        if (i > 0 && edit[-1].token == edit->token) continue;
        uint32_t token = (uint32_t)edit->token;
        if (is_holding) call.kept[draw.edit_begin + i] = logits[token];
        float value = draw_clean(call.kept[draw.edit_begin + i]);
        bool is_held = false;
        for (uint32_t k = i; k < draw.edit_count && edit->token == (int32_t)token; k++, edit++) {
            if (edit->kind == DRAW_HOLD)
                is_held = is_holding;
            else
                value = draw_edited(value, edit->kind, edit->value);
        }
        logits[token] = is_held ? -INFINITY : value;
    }
    __syncthreads();
}

__device__ static inline void restore_row(const struct cuda_sample &call,
                                          const struct gpu_draw &draw, float *logits) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < draw.edit_count; i += THREADS) {
        const struct draw_edit *edit = &call.edits[draw.edit_begin + i];
        if (i > 0 && edit[-1].token == edit->token) continue;
        logits[edit->token] = call.kept[draw.edit_begin + i];
    }
}

/* The best token of the row, as ranked(); 0 when there is none. */
__device__ static inline uint64_t best_of(const struct view &view, struct select_memory *memory) {
    float most = -INFINITY;
    uint32_t first = 0;
    /* A thread's ids come in order. */
    walk(view, [&](uint32_t id, float logit) {
        if (logit > most) most = logit, first = id;
    });
    return block_most(most > -INFINITY ? ranked(draw_key(most), first) : 0, memory->parts);
}

/* local[thread] becomes the best key from `least` on that the thread met. */
__device__ static inline void find_bests(const struct view &view, struct select_memory *memory,
                                         uint32_t least) {
    float best = -INFINITY;
    walk(view, [&](uint32_t, float logit) { best = fmaxf(best, logit); });
    memory->local[threadIdx.x] = best >= logit_of(least) ? draw_key(best) : DRAW_KEY_NONE;
}

/* find_bests, and the weight of all keys from `least` on. */
__device__ static inline uint64_t weigh_row(const struct view &view, struct select_memory *memory,
                                            const struct scale &scale, uint32_t least) {
    uint64_t sum = 0;
    float best = -INFINITY, floor = logit_of(least);
    walk(view, [&](uint32_t, float logit) {
        const float x = distance(logit, scale);
        best = logit >= floor ? fmaxf(best, logit) : best;
        sum += weight_if(logit >= floor && x < DRAW_NEAR, x);
    });
    memory->local[threadIdx.x] = draw_key(best);
    return block_sum(sum, memory->parts);
}

/* A key that leaves out less than `spare` however the vocabulary lies. A margin of 1 % stands for
 * the rounding of logarithm and division. */
__device__ static inline uint32_t spare_key(const struct view &view, const struct scale &scale,
                                            uint64_t spare) {
    float each = (float)(spare / view.vocab);
    if (each < 1.0f) return 0;
    float x = ((float)DRAW_ONE_BITS - log2f(each)) * LN_2 + 0.01f;
    float logit = scale.max - x / scale.factor;
    return draw_key(fmaxf(logit - 1e-6f * fabsf(logit), -FLT_MAX));
}

/* The least key that min_p, top_k and top_p keep of a row. *ret_is_weighed becomes true where all
 * kept tokens fit in the list; `parts` are then those of a walk over the whole row. */
__device__ static inline struct cut narrow(const struct view &view, struct select_memory *memory,
                                           const struct gpu_draw &draw, const struct scale &scale,
                                           uint32_t least, struct parts *parts,
                                           bool *ret_is_weighed) {
    struct cut cut = {least, UINT32_MAX, 0};
    bool has_top_k = draw.top_k > 0 && draw.top_k < view.vocab;
    bool has_top_p = draw.top_p > 0.0f && draw.top_p < 1.0f;
    if (!has_top_k && !has_top_p) return cut;
    auto locals = [&](auto visit) {
        uint32_t key = memory->local[threadIdx.x];
        if (key > DRAW_KEY_NONE) visit(key);
    };
    uint64_t total = 0;
    uint32_t from = least;
    const uint32_t best = draw_key(scale.max);
    if (has_top_k) {
        find_bests(view, memory, least);
        from = max(from, select_cut<false>(memory, draw.top_k, scale, {least, best}, locals).key);
    } else {
        total = weigh_row(view, memory, scale, least);
        uint64_t enough = draw_enough(draw.top_p, total);
        from = max(from, select_cut<true>(memory, enough, scale, {least, best}, locals).key);
        from = max(from, spare_key(view, scale, total - enough));
    }
    const bool is_listed = list_above(view, memory, from);
    const uint32_t listed = memory->list_count;
    auto keys = [&](auto visit) {
        if (is_listed) {
            for (uint32_t i = threadIdx.x; i < listed; i += THREADS) visit(memory->list[i].key);
        } else {
            walk(view, [&](uint32_t, float logit) {
                uint32_t key = draw_key(logit);
                if (key >= from && key > DRAW_KEY_NONE) visit(key);
            });
        }
    };
    if (has_top_k) {
        struct cut by_count = select_cut<false>(memory, draw.top_k, scale, {from, best}, keys);
        const bool is_cut = by_count.key != DRAW_KEY_NONE; /* or min_p left fewer */
        if (is_cut) cut = by_count;
        if (has_top_p) {
            uint64_t sum = 0;
            keys([&](uint32_t key) {
                if (!is_cut || key > cut.key) sum += key_weight(key, scale);
            });
            total = block_sum(sum, memory->parts);
            if (is_cut) total += cut.equals * key_weight(cut.key, scale);
        }
    }
    if (has_top_p) {
        struct cut by_weight =
            select_cut<true>(memory, draw_enough(draw.top_p, total), scale, {from, best}, keys);
        if (by_weight.key != DRAW_KEY_NONE) cut = by_weight;
    }
    if (is_listed) {
        if (threadIdx.x < WARPS) parts->sums[threadIdx.x] = 0, parts->equals[threadIdx.x] = 0;
        finish_parts(view, memory, parts, cut, scale);
        *ret_is_weighed = true;
    }
    return cut;
}

/* The kept weight up to a place of the row, where tokens above the cut weigh `above` and `equals`
 * tokens equal it. */
__device__ static inline uint64_t kept_upto(const struct cut &cut, uint64_t each, uint64_t above,
                                            uint32_t equals) {
    return above + min(equals, cut.equals) * each;
}

/* The token among the 128 ids from `begin` on at which the kept weights, in order of ids, exceed
 * `wanted`; by one warp. `above` and `equals` are of the ids before. */
__device__ static inline void locate(const struct view &view, struct select_memory *memory,
                                     const struct cut &cut, const struct scale &scale,
                                     uint32_t begin, uint64_t above, uint32_t equals,
                                     uint64_t wanted) {
    const float least = logit_of(cut.key);
    const uint64_t each = key_weight(cut.key, scale);
    const uint32_t id = begin + threadIdx.x % 32 * 4;
    const struct four v = read_four(view, id);
    uint64_t weights[4], weight = 0;
    uint32_t same = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float logit = cleaned(v.at[i]);
        weights[i] = logit > least ? draw_weight(logit, scale.max, scale.factor) : 0;
        weight += weights[i], same += logit == least;
    }
    above += warp_prefix(weight) - weight, equals += warp_prefix(same) - same;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const bool is_before = kept_upto(cut, each, above, equals) <= wanted;
        above += weights[i], equals += cleaned(v.at[i]) == least;
        if (is_before && kept_upto(cut, each, above, equals) > wanted)
            memory->token = (int32_t)(id + i);
    }
}

/* The token among ids begin..end-1 at which the kept weights, in order of ids, exceed `wanted`: in
 * memory->token after the next barrier. `above` and `equals` are of the ids before. The warps weigh
 * 128 ids at a time and note the sums where the list was; by these each warp knows the 128 ids that
 * have the token. */
__device__ static inline void find_token(const struct view &view, struct select_memory *memory,
                                         const struct cut &cut, const struct scale &scale,
                                         uint32_t begin, uint32_t end, uint64_t above,
                                         uint32_t equals, uint64_t wanted) {
    const float least = logit_of(cut.key);
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t count = (end - begin + 127) / 128, share = (count + 31) / 32;
    uint64_t *sums = (uint64_t *)memory->list;
    uint32_t *counts = (uint32_t *)(sums + count);
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = warp; i < count; i += WARPS) {
        const struct four v = read_four(view, begin + i * 128 + lane * 4);
        uint64_t sum = 0;
        uint32_t same = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float logit = cleaned(v.at[k]), x = distance(logit, scale);
            sum += weight_if(logit > least && x < DRAW_NEAR, x);
            same += logit == least;
        }
        sum = warp_sum(sum), same = warp_sum(same);
        if (lane == 0) sums[i] = sum, counts[i] = same;
    }
    __syncthreads();
    const uint64_t each = key_weight(cut.key, scale);
    const uint32_t first = lane * share, last = min(first + share, count);
    uint64_t own = 0;
    uint32_t own_equals = 0, place = first;
    for (uint32_t i = first; i < last; i++) own += sums[i], own_equals += counts[i];
    above += warp_prefix(own) - own, equals += warp_prefix(own_equals) - own_equals;
    const bool is_past = kept_upto(cut, each, above + own, equals + own_equals) > wanted;
    const uint32_t lanes = __ballot_sync(CUDA_ALL_LANES, is_past);
    if (lanes == 0) return; /* never: the part was chosen by the same sums */
    for (; place + 1 < last; place++) {
        if (kept_upto(cut, each, above + sums[place], equals + counts[place]) > wanted) break;
        above += sums[place], equals += counts[place];
    }
    const uint32_t from = (uint32_t)__ffs((int)lanes) - 1;
    place = __shfl_sync(CUDA_ALL_LANES, place, from);
    above = __shfl_sync(CUDA_ALL_LANES, above, from);
    equals = __shfl_sync(CUDA_ALL_LANES, equals, from);
    if (place % WARPS == warp)
        locate(view, memory, cut, scale, begin + place * 128, above, equals, wanted);
}

__device__ static inline void weigh_parts(const struct view &view, float least,
                                          const struct scale &scale, struct parts *parts) {
    uint32_t equals = 0;
    uint64_t sum = 0;
    walk(view, [&](uint32_t, float logit) {
        const float x = distance(logit, scale);
        sum += weight_if(logit > least && x < DRAW_NEAR, x);
        equals += logit == least;
    });
    sum = warp_sum(sum);
    equals = warp_sum(equals);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts->sums[threadIdx.x / 32] = sum, parts->equals[threadIdx.x / 32] = equals;
    __syncthreads();
}

/* One draw over what is kept; memory->token has it after the next barrier. First by what the warps
 * weighed in their sixteenths of the row (`parts` has that already where it is known), then among
 * the ids of one warp. */
__device__ static inline void draw_token(const struct view &view, struct select_memory *memory,
                                         const struct cut &cut, const struct scale &scale,
                                         uint64_t random_bits, struct parts *parts, bool is_known) {
    if (!is_known) weigh_parts(view, logit_of(cut.key), scale, parts);
    const uint64_t each = key_weight(cut.key, scale);
    uint64_t above = 0;
    uint32_t equals = 0, w = 0;
    for (uint32_t i = 0; i < WARPS; i++) above += parts->sums[i], equals += parts->equals[i];
    const uint64_t wanted = draw_wanted(random_bits, kept_upto(cut, each, above, equals));
    above = equals = 0;
    for (; w + 1 < WARPS; w++) { /* to the part in which the weights exceed what is wanted */
        const uint64_t next = above + parts->sums[w];
        if (kept_upto(cut, each, next, equals + parts->equals[w]) > wanted) break;
        above = next, equals += parts->equals[w];
    }
    const uint32_t begin = view.begin + w * view.segment;
    find_token(view, memory, cut, scale, begin, min(begin + view.segment, view.end), above, equals,
               wanted);
}

/* base/rng.h's rng_at. */
__device__ static inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

__device__ static inline uint64_t random_at(uint64_t seed, uint64_t counter) {
    const uint64_t gamma = 0x9E3779B97F4A7C15ull;
    return mixed(mixed(seed + gamma) + counter * gamma);
}

/* The best token of a row with edits or under a mask, as ranked(). */
__device__ static inline uint64_t best_allowed(const struct cuda_sample &call,
                                               const struct gpu_draw &draw, const struct view &view,
                                               struct select_memory *memory) {
    float *logits = (float *)view.logits;
    if (draw.edit_count > 0) edit_row(call, draw, logits, true);
    uint64_t best = best_of(view, memory);
    if (best > 0 || draw.edit_count == 0) return best;
    edit_row(call, draw, logits, false); /* min_tokens must not leave nothing */
    return best_of(view, memory);
}

__global__ void __launch_bounds__(THREADS, 2) choose_rows(struct cuda_sample call) {
    CUDA_SHARED struct select_memory memory;
    CUDA_SHARED struct nucleus_memory nucleus;
    CUDA_SHARED struct parts parts;
    wait_for_before();
    let_next_start();
    const uint32_t row = call.drawn[blockIdx.x];
    const bool is_bare = blockIdx.x < call.bare_count;
    const struct gpu_draw draw = call.draws[row];
    const uint32_t *mask = draw.mask < 0 ? NULL : call.masks + (size_t)draw.mask * call.mask_words;
    const struct view view = view_of(call.logits, row, mask);
    struct survey survey = {0, 0, 0};
    bool is_counted = false;
    uint64_t best;
    if (is_bare) {
        survey = survey_row(view, &memory, &nucleus, draw.factor);
        is_counted = fabsf(survey.max) < FLT_MAX;
        if (isnan(survey.max) && threadIdx.x == 0 && call.nonfinite) atomicAdd(call.nonfinite, 1u);
        best = is_counted ? ranked(draw_key(survey.max), 0) : best_of(view, &memory);
    } else if (draw.edit_count > 0 || mask) {
        best = best_allowed(call, draw, view, &memory);
    } else {
        const struct cuda_stat stat = call.stats[row];
        best = stat.max > -INFINITY ? ranked(draw_key(stat.max), stat.best) : 0;
    }
    if (threadIdx.x == 0)
        memory.token = best ? (int32_t)(0xffffffffu - (uint32_t)best) : draw.fallback;
    if (best && draw.factor > 0) {
        struct scale scale = {logit_of((uint32_t)(best >> 32)), draw.factor};
        uint32_t least = draw_key(draw_least(scale.max, draw.offset));
        bool has_top_k = draw.top_k > 0 && draw.top_k < view.vocab;
        bool has_top_p = draw.top_p > 0.0f && draw.top_p < 1.0f;
        bool is_weighed = false;
        struct cut cut;
        if (has_top_p && !has_top_k && scale.max < FLT_MAX) { /* no infinite logits */
            if (!is_counted) {
                struct over none;
                count_bins<false>(view, &nucleus, scale, logit_of(least), &none);
                survey = {scale.max, scale.max, 0};
            }
            is_weighed = nucleus_of(view, &memory, &nucleus, &parts, survey, draw.factor, least,
                                    draw.top_p, &cut);
        }
        if (!is_weighed) cut = narrow(view, &memory, draw, scale, least, &parts, &is_weighed);
        __syncthreads();
        draw_token(view, &memory, cut, scale, random_at(draw.seed, draw.counter), &parts,
                   is_weighed);
    }
    if (draw.edit_count > 0) restore_row(call, draw, (float *)view.logits);
    __syncthreads();
    if (threadIdx.x > 0) return;
    call.tokens[row] = memory.token;
    if (call.last_token && draw.slot >= 0) call.last_token[draw.slot] = memory.token;
}

enum err cuda_sample_choose(const struct cuda_sample *call, struct CUstream_st *stream,
                            struct error *error) {
    if (call->drawn_count == 0) return OK;
    return launch_dependent("choose", error, stream, call->drawn_count, THREADS, 0, choose_rows,
                            *call);
}

CUDA_MODULE(sample_choose, choose_rows)
