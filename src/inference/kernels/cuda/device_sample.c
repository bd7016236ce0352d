/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_internal.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define PUT(block, from, count) block_put(block, from, count, sizeof *(from))

static float softcap_of(const struct device *device) {
    for (uint32_t i = device->program.op_count; i-- > 0;)
        if (device->ops[i].op.kind == OP_LOGITS) return device->ops[i].op.softcap;
    return 0;
}

/* True when the statistics make logits of what the product of the head leaves. */
static bool is_finishing(const struct device *device) {
    const uint32_t head = device->logit_matrix;
    return softcap_of(device) > 0 || (head != DEVICE_NONE && device->matrices[head].scales);
}

/* True when the statistics of the logits give the token. */
static bool is_plain(const struct device_draw *draw) {
    return draw->factor == 0 && draw->mask < 0 && draw->edit_count == 0;
}

/* True when choosing the token needs no statistics. */
static bool is_bare(const struct device_draw *draw) {
    const bool has_top_p = draw->top_p > 0 && draw->top_p < 1;
    return draw->factor > 0 && has_top_p && draw->top_k == 0 && draw->offset == -INFINITY &&
           draw->mask < 0 && draw->edit_count == 0;
}

/* The draws of all wanted rows. A row without a draw in this call looks like one that is drawn
 * later, so that the statistics leave its token alone. */
static struct device_draw *put_draws(struct flight *flight, const struct device_samples *samples,
                                     struct card_samples *ret_samples) {
    const uint32_t wanted = flight->step.wanted_count;
    const struct device_draw none = {.factor = 1, .mask = -1, .slot = -1};
    void *host;
    ret_samples->draws = block_take(&flight->block, wanted * sizeof none, &host);
    struct device_draw *draws = host;
    for (uint32_t i = 0; draws && i < wanted; i++) draws[i] = none;
    for (uint32_t i = 0; draws && samples && i < samples->count; i++) {
        assert(samples->rows[i] < wanted);
        draws[samples->rows[i]] = samples->draws[i];
    }
    return draws;
}

/* Rows that `choose` takes, bare ones first. */
static void put_drawn(struct flight *flight, const struct device_samples *samples, bool is_late,
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
        const struct device_draw *draw = &samples->draws[i];
        if (has_bare && is_bare(draw)) continue;
        if (is_late || !is_plain(draw)) drawn[taken++] = samples->rows[i];
    }
    ret_samples->drawn_count = taken;
}

/* The rows that get statistics: all but the bare ones. */
static void put_summed(struct flight *flight, const struct device_draw *draws,
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

enum err samples_put(struct device *device, struct flight *flight,
                     const struct device_samples *samples, bool is_late,
                     struct card_samples *ret_samples, struct error *error) {
    struct block *block = &flight->block;
    /* Statistics serve asks, and a step's first call makes them; they also finish logits. */
    const bool has_bare = samples && samples->ask_count == 0 && !is_late && !is_finishing(device);
    *ret_samples = (struct card_samples){0};
    const struct device_draw *draws = put_draws(flight, samples, ret_samples);
    put_drawn(flight, samples, is_late, has_bare, ret_samples);
    if (ret_samples->bare_count > 0) put_summed(flight, draws, ret_samples);
    if (samples) {
        assert(flight->answer_count + samples->ask_count <= device->limits.logit_rows_max);
        ret_samples->masks =
            PUT(block, samples->masks, (size_t)samples->mask_count * samples->mask_words);
        ret_samples->mask_words = samples->mask_words;
        ret_samples->edits = PUT(block, samples->edits, samples->edit_count);
        ret_samples->asks = PUT(block, samples->asks, samples->ask_count);
        ret_samples->ask_count = samples->ask_count;
        ret_samples->named = PUT(block, samples->named, samples->named_count);
        ret_samples->named_count = samples->named_count;
    }
    bool is_over =
        samples && (samples->edit_count > device->limits.edits_max ||
                    flight->named_count + samples->named_count > device->limits.named_max);
    if (!block->is_full && !is_over) return OK;
    return err_set(error, ERR_LIMIT, "step %llu has more edits or named tokens than the limits say",
                   (unsigned long long)flight->number);
}

/* Puts late draws behind the arrays of the step, which has no room left for them: the draws that
 * the room was used for must be done. */
static enum err put_anew(struct device *device, struct flight *flight,
                         const struct device_samples *samples, struct card_samples *ret_samples,
                         struct error *error) {
    struct block *block = &flight->block;
    cudaError_t code = cudaEventSynchronize(flight->done);
    if (code != cudaSuccess) return card_error(code, error, "draws before these");
    block->used = block->sent = flight->step_bytes;
    block->is_full = false;
    return samples_put(device, flight, samples, true, ret_samples, error);
}

static enum err run_asks(struct device *device, struct flight *flight,
                         const struct cuda_logits *logits, const struct card_samples *samples,
                         struct error *error) {
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
    return cuda_logprobs(&call, device->compute, error);
}

enum err samples_run(struct device *device, struct flight *flight,
                     const struct card_samples *samples, bool is_late, struct error *error) {
    if (flight->step.wanted_count == 0 || device->logit_matrix == DEVICE_NONE) return OK;
    const struct card_matrix *head = &device->matrices[device->logit_matrix];
    struct cuda_sample call = {
        .logits = {.logits = flight->logits,
                   .stride = device->logit_stride,
                   .rows = flight->step.wanted_count,
                   .vocab = device->program.vocab,
                   .finished = device->program.vocab_rows},
        .stats = flight->stats,
        .partial = device->stats_partial,
        .draws = samples->draws,
        .tokens = flight->card.tokens,
        .last_token = device->last_token,
        .drawn = samples->drawn,
        .drawn_count = samples->drawn_count,
        .bare_count = samples->bare_count,
        .summed = samples->summed,
        .summed_count = samples->summed_count,
        .masks = samples->masks,
        .mask_words = samples->mask_words,
        .edits = samples->edits,
        .kept = device->kept,
        .nonfinite = flight->step.nonfinite,
    };
    enum err err = OK;
    if (!is_late) { /* which finishes the logits, once */
        struct cuda_sample first = call;
        first.logits.row_scale = flight->row_scale;
        first.logits.column_scale = flight->row_scale ? head->scales : NULL;
        first.logits.is_int32 = head->form == DEVICE_INT8;
        first.logits.softcap = softcap_of(device);
        err = cuda_sample_stats(&first, device->compute, error);
        if (err == OK) err = step_await(device, flight, "statistics of logits", error);
    }
    if (err == OK) err = cuda_sample_choose(&call, device->compute, error);
    if (err == OK) err = step_await(device, flight, "choice of tokens", error);
    if (err == OK) err = run_asks(device, flight, &call.logits, samples, error);
    if (err == OK) err = step_await(device, flight, "log-probabilities", error);
    return err;
}

enum err samples_fetch(struct device *device, struct flight *flight, struct error *error) {
    const struct results *from = &flight->card, *to = &flight->host;
    const uint32_t wanted = flight->step.wanted_count, most = device->limits.logit_rows_max;
    cudaError_t code = cudaEventRecord(flight->ended, device->compute);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(device->down, flight->ended, 0);
    if (code == cudaSuccess && wanted > 0)
        code = cudaMemcpyAsync(to->tokens, from->tokens, wanted * sizeof *to->tokens,
                               cudaMemcpyDeviceToHost, device->down);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(to->tokens + most, flight->step.nonfinite, sizeof(uint32_t),
                               cudaMemcpyDeviceToHost, device->down);
    if (code == cudaSuccess && flight->answer_count > 0)
        code =
            cudaMemcpyAsync(to->answers, from->answers, flight->answer_count * sizeof *to->answers,
                            cudaMemcpyDeviceToHost, device->down);
    if (code == cudaSuccess && flight->named_count > 0)
        code = cudaMemcpyAsync(to->named, from->named, flight->named_count * sizeof *to->named,
                               cudaMemcpyDeviceToHost, device->down);
    if (code == cudaSuccess) code = cudaEventRecord(flight->done, device->down);
    return code == cudaSuccess ? OK : card_error(code, error, "fetching results");
}

/* Late draws belong to the step submitted last. */
enum err device_sample(struct device *device, const struct device_samples *samples,
                       struct error *error) {
    assert(device->submitted > device->waited);
    struct flight *flight = &device->flights[(device->submitted - 1) % device->limits.steps_max];
    assert(flight->is_under_way && flight->number == samples->number);
    struct card_samples drawn;
    enum err err = samples_put(device, flight, samples, true, &drawn, error);
    if (err != OK && flight->block.is_full) err = put_anew(device, flight, samples, &drawn, error);
    if (err == OK) err = block_send(device, &flight->block, error);
    if (err == OK) err = samples_run(device, flight, &drawn, true, error);
    if (err == OK) err = samples_fetch(device, flight, error);
    return err == OK ? OK
                     : err_prefix(error, "draws of step %llu", (unsigned long long)samples->number);
}
