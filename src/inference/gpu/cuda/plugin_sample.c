/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define PUT(block, from, count) block_put(block, from, count, sizeof *(from))

static float softcap_of(const struct gpu *gpu) {
    for (uint32_t i = gpu->program.op_count; i-- > 0;)
        if (gpu->ops[i].op.kind == OP_LOGITS) return gpu->ops[i].op.softcap;
    return 0;
}

/* True when the statistics make logits of what the product of the head leaves. */
static bool is_finishing(const struct gpu *gpu) {
    const uint32_t head = gpu->logit_matrix;
    return softcap_of(gpu) > 0 || (head != GPU_NONE && gpu->matrices[head].scales);
}

/* True when the statistics of the logits give the token. */
static bool is_plain(const struct gpu_draw *draw) {
    return draw->factor == 0 && draw->mask < 0 && draw->edit_count == 0;
}

/* True when choosing the token needs no statistics. */
static bool is_bare(const struct gpu_draw *draw) {
    const bool has_top_p = draw->top_p > 0 && draw->top_p < 1;
    return draw->factor > 0 && has_top_p && draw->top_k == 0 && draw->offset == -INFINITY &&
           draw->mask < 0 && draw->edit_count == 0;
}

/* The draws of all wanted rows. A row without a draw in this call looks like one that is drawn
 * later, so that the statistics leave its token alone. */
static struct gpu_draw *put_draws(struct flight *flight, const struct gpu_samples *samples,
                                  struct card_samples *ret_samples) {
    const uint32_t wanted = flight->step.wanted_count;
    const struct gpu_draw none = {.factor = 1, .mask = -1, .slot = -1};
    void *host;
    ret_samples->draws = block_take(&flight->block, wanted * sizeof none, &host);
    struct gpu_draw *draws = host;
    for (uint32_t i = 0; draws && i < wanted; i++) draws[i] = none;
    for (uint32_t i = 0; draws && samples && i < samples->count; i++) {
        assert(samples->rows[i] < wanted);
        draws[samples->rows[i]] = samples->draws[i];
    }
    return draws;
}

/* Rows that `choose` takes, bare ones first. */
static void put_drawn(struct flight *flight, const struct gpu_samples *samples, bool is_late,
                      bool has_bare, struct card_samples *ret_samples) {
    const uint32_t count = samples ? samples->count : 0;
    void *host;
    ret_samples->drawn = block_take(&flight->block, count * sizeof(uint32_t), &host);
    uint32_t *drawn = host, taken = 0;
    if (!drawn) return;
    for (uint32_t i = 0; has_bare && i < count; i++)
        if (is_bare(&samples->draws[i])) drawn[taken++] = samples->rows[i];
    ret_samples->bare_count = taken;
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_draw *draw = &samples->draws[i];
        if (has_bare && is_bare(draw)) continue;
        if (is_late || !is_plain(draw)) drawn[taken++] = samples->rows[i];
    }
    ret_samples->drawn_count = taken;
}

/* The rows that get statistics: all but the bare ones. */
static void put_summed(struct flight *flight, const struct gpu_draw *draws,
                       struct card_samples *ret_samples) {
    const uint32_t wanted = flight->step.wanted_count;
    void *host;
    ret_samples->summed_count = wanted - ret_samples->bare_count;
    ret_samples->summed =
        block_take(&flight->block, ret_samples->summed_count * sizeof(uint32_t), &host);
    uint32_t *summed = host;
    for (uint32_t i = 0, taken = 0; draws && summed && i < wanted; i++)
        if (!is_bare(&draws[i])) summed[taken++] = i;
}

enum err samples_put(struct gpu *gpu, struct flight *flight, const struct gpu_samples *samples,
                     bool is_late, struct card_samples *ret_samples, struct error *error) {
    struct block *block = &flight->block;
    /* Statistics serve asks, and a step's first call makes them; they also finish logits. */
    const bool has_bare = samples && samples->ask_count == 0 && !is_late && !is_finishing(gpu);
    *ret_samples = (struct card_samples){0};
    const struct gpu_draw *draws = put_draws(flight, samples, ret_samples);
    put_drawn(flight, samples, is_late, has_bare, ret_samples);
    if (ret_samples->bare_count > 0) put_summed(flight, draws, ret_samples);
    if (samples) {
        assert(flight->answer_count + samples->ask_count <= gpu->limits.logit_rows_max);
        ret_samples->masks =
            PUT(block, samples->masks, (size_t)samples->mask_count * samples->mask_words);
        ret_samples->mask_words = samples->mask_words;
        ret_samples->edits = PUT(block, samples->edits, samples->edit_count);
        ret_samples->asks = PUT(block, samples->asks, samples->ask_count);
        ret_samples->ask_count = samples->ask_count;
        ret_samples->named = PUT(block, samples->named, samples->named_count);
        ret_samples->named_count = samples->named_count;
    }
    bool is_over = samples && (samples->edit_count > gpu->limits.edits_max ||
                               flight->named_count + samples->named_count > gpu->limits.named_max);
    if (!block->is_full && !is_over) return OK;
    return err_set(error, ERR_LIMIT, "step %llu has more edits or named tokens than the limits say",
                   (unsigned long long)flight->number);
}

/* Puts late draws behind the arrays of the step, which has no room left for them: the draws that
 * the room was used for must be done. */
static enum err put_anew(struct gpu *gpu, struct flight *flight, const struct gpu_samples *samples,
                         struct card_samples *ret_samples, struct error *error) {
    struct block *block = &flight->block;
    enum err err = ranks_wait(gpu, flight, error);
    if (err != OK) return err_prefix(error, "draws before these");
    block->used = block->sent = flight->step_bytes;
    block->is_full = false;
    return samples_put(gpu, flight, samples, true, ret_samples, error);
}

static enum err run_asks(struct gpu *gpu, struct flight *flight, const struct cuda_logits *logits,
                         const struct card_samples *samples, struct error *error) {
    const struct cuda_logprobs call = {
        .logits = *logits,
        .stats = flight->stats,
        .tokens = flight->card.tokens,
        .asks = samples->asks,
        .ask_count = samples->ask_count,
        .answers = flight->card.answers + flight->answer_count,
        .named = samples->named,
        .named_logits = flight->card.named + flight->named_count,
    };
    flight->answer_count += samples->ask_count;
    flight->named_count += samples->named_count;
    return cuda_logprobs(&call, gpu->compute, error);
}

enum err samples_run(struct gpu *gpu, struct flight *flight, const struct card_samples *samples,
                     bool is_late, struct error *error) {
    if (flight->step.wanted_count == 0 || gpu->logit_matrix == GPU_NONE) return OK;
    const struct card_matrix *head = &gpu->matrices[gpu->logit_matrix];
    struct cuda_sample call = {
        .logits = {.logits = flight->logits,
                   .stride = gpu->logit_stride,
                   .rows = flight->step.wanted_count,
                   .vocab = gpu->program.vocab,
                   .finished = gpu->program.vocab_rows},
        .stats = flight->stats,
        .partial = gpu->stats_partial,
        .draws = samples->draws,
        .tokens = flight->card.tokens,
        .last_token = gpu->last_token,
        .drawn = samples->drawn,
        .drawn_count = samples->drawn_count,
        .bare_count = samples->bare_count,
        .summed = samples->summed,
        .summed_count = samples->summed_count,
        .masks = samples->masks,
        .mask_words = samples->mask_words,
        .edits = samples->edits,
        .kept = gpu->kept,
        .nonfinite = flight->step.nonfinite,
    };
    enum err err = OK;
    if (!is_late) { /* which finishes the logits, once */
        struct cuda_sample first = call;
        first.logits.row_scale = flight->row_scale;
        first.logits.column_scale = flight->row_scale ? head->scales : NULL;
        first.logits.is_int32 = head->form == GPU_INT8;
        first.logits.softcap = softcap_of(gpu);
        err = cuda_sample_stats(&first, gpu->compute, error);
        if (err == OK) err = step_await(gpu, flight, "statistics of logits", error);
    }
    if (err == OK) err = cuda_sample_choose(&call, gpu->compute, error);
    if (err == OK) err = step_await(gpu, flight, "choice of tokens", error);
    if (err == OK) err = run_asks(gpu, flight, &call.logits, samples, error);
    if (err == OK) err = step_await(gpu, flight, "log-probabilities", error);
    return err;
}

enum err samples_fetch(struct gpu *gpu, struct flight *flight, struct error *error) {
    const struct results *from = &flight->card, *to = &flight->host;
    const uint32_t wanted = flight->step.wanted_count, most = gpu->limits.logit_rows_max;
    cudaError_t code = cudaEventRecord(flight->ended, gpu->compute);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(gpu->down, flight->ended, 0);
    if (code == cudaSuccess && gpu->program.pools)
        code = cudaMemcpyAsync(to->vectors, flight->logits,
                               flight->step.pool_count * gpu->program.width * sizeof(float),
                               cudaMemcpyDeviceToHost, gpu->down);
    if (code == cudaSuccess && wanted > 0 && !gpu->program.pools)
        code = cudaMemcpyAsync(to->tokens, from->tokens, wanted * sizeof *to->tokens,
                               cudaMemcpyDeviceToHost, gpu->down);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(to->tokens + most, flight->step.nonfinite, sizeof(uint32_t),
                               cudaMemcpyDeviceToHost, gpu->down);
    if (code == cudaSuccess && flight->answer_count > 0)
        code =
            cudaMemcpyAsync(to->answers, from->answers, flight->answer_count * sizeof *to->answers,
                            cudaMemcpyDeviceToHost, gpu->down);
    if (code == cudaSuccess && flight->named_count > 0)
        code = cudaMemcpyAsync(to->named, from->named, flight->named_count * sizeof *to->named,
                               cudaMemcpyDeviceToHost, gpu->down);
    if (code == cudaSuccess) code = cudaEventRecord(flight->done, gpu->down);
    return code == cudaSuccess ? OK : card_error(code, error, "fetching results");
}

/* Late draws belong to the step submitted last. */
enum err plugin_sample(struct gpu *gpu, const struct gpu_samples *samples, struct error *error) {
    assert(gpu->submitted > gpu->waited);
    struct flight *flight = &gpu->flights[(gpu->submitted - 1) % gpu->limits.steps_max];
    assert(flight->is_under_way && flight->number == samples->number);
    struct card_samples drawn;
    enum err err = samples_put(gpu, flight, samples, true, &drawn, error);
    if (err != OK && flight->block.is_full) err = put_anew(gpu, flight, samples, &drawn, error);
    if (err == OK) err = block_send(gpu, &flight->block, error);
    if (err == OK) err = samples_run(gpu, flight, &drawn, true, error);
    if (err == OK) err = samples_fetch(gpu, flight, error);
    return err == OK ? OK
                     : err_prefix(error, "draws of step %llu", (unsigned long long)samples->number);
}
