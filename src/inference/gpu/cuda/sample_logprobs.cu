/* SPDX-License-Identifier: Apache-2.0 */

/* sample_logprobs: a token's logit and rank, and the most likely tokens of a row. */

#include "gpu/cuda/modules.h"
#include "gpu/cuda/sample_select.cuh"

/* The rank of a token and the best key each thread met, in one walk. */
__device__ static inline uint32_t rank_of(const struct view &view, struct select_memory *memory,
                                          uint64_t own) {
    uint32_t before = 0, best = DRAW_KEY_NONE;
    walk(view, [&](uint32_t id, float logit) {
        uint32_t key = draw_key(logit);
        best = key > best ? key : best;
        before += id < view.vocab && ranked(key, id) > own;
    });
    memory->local[threadIdx.x] = best;
    return block_sum(before, (uint32_t *)memory->parts) + 1;
}

/* The most likely token after `last`, as ranked(); 0 when there is none. */
__device__ static inline uint64_t next_of(const struct view &view, struct select_memory *memory,
                                          bool is_listed, uint64_t last) {
    uint64_t best = 0;
    auto visit = [&](uint32_t key, uint32_t id) {
        uint64_t rank = ranked(key, id);
        if (rank < last && rank > best) best = rank;
    };
    if (is_listed) {
        for (uint32_t i = threadIdx.x; i < memory->list_count; i += THREADS)
            visit(memory->list[i].key, memory->list[i].id);
    } else {
        walk(view, [&](uint32_t id, float logit) {
            if (id < view.vocab) visit(draw_key(logit), id);
        });
    }
    return block_most(best, memory->parts);
}

__global__ void __launch_bounds__(THREADS, 2) logprobs_rows(struct cuda_logprobs call) {
    CUDA_SHARED struct select_memory memory;
    wait_for_before();
    let_next_start();
    struct gpu_ask ask = call.asks[blockIdx.x];
    struct gpu_answer *answer = &call.answers[blockIdx.x];
    struct view view = view_of(call.logits, ask.row, NULL);
    int32_t token = ask.token < 0 ? call.tokens[ask.row] : ask.token;
    float logit = draw_clean(view.logits[token]);
    uint32_t rank = rank_of(view, &memory, ranked(draw_key(logit), (uint32_t)token));
    if (threadIdx.x == 0) {
        answer->token = token, answer->logit = logit, answer->rank = rank;
        answer->lse = call.stats[ask.row].lse;
    }
    for (uint32_t i = threadIdx.x; i < ask.named_count; i += THREADS)
        call.named_logits[ask.named_begin + i] =
            draw_clean(view.logits[call.named[ask.named_begin + i]]);
    uint32_t count = min(min(ask.top_count, (uint32_t)GPU_TOP_MAX), view.vocab);
    if (threadIdx.x == 0) answer->top_count = count;
    if (count == 0) return;
    struct scale none = {0, 0};
    __syncthreads();
    struct cut bound = select_cut<false>(&memory, count, none, ALL_KEYS, [&](auto visit) {
        uint32_t key = memory.local[threadIdx.x];
        if (key > DRAW_KEY_NONE) visit(key);
    });
    /* With fewer than `count` above -inf the list would lack some. */
    bool is_listed = bound.key != DRAW_KEY_NONE && list_above(view, &memory, bound.key);
    uint64_t last = ~0ull;
    for (uint32_t i = 0; i < count; i++) {
        last = next_of(view, &memory, is_listed, last);
        if (threadIdx.x > 0) continue;
        answer->top[i] = (int32_t)(0xffffffffu - (uint32_t)last);
        answer->top_logits[i] = logit_of((uint32_t)(last >> 32));
    }
}

enum err cuda_logprobs(const struct cuda_logprobs *call, struct CUstream_st *stream,
                       struct error *error) {
    if (call->ask_count == 0) return OK;
    return launch_dependent("logprobs", error, stream, call->ask_count, THREADS, 0, logprobs_rows,
                            *call);
}

CUDA_MODULE(sample_logprobs, logprobs_rows)
