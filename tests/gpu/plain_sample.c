/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "plain_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The definition of kernels/draw.h as a loop over sorted ids. */

/* ---- edits and masks ---- */

/* device->edited becomes the cleaned logits with edits and mask; held tokens are left out unless
 * nothing else is left. */
static void edit_row(struct gpu *gpu, const struct gpu_samples *samples,
                     const struct gpu_draw *draw, const float *logits) {
    uint32_t vocab = gpu->program.vocab;
    float *edited = gpu->edited;
    bool is_held = false, has_some = false;
    for (uint32_t i = 0; i < vocab; i++) edited[i] = draw_clean(logits[i]);
    memset(gpu->is_held, 0, vocab * sizeof *gpu->is_held);
    for (uint32_t i = 0; i < draw->edit_count; i++) {
        const struct draw_edit *edit = &samples->edits[draw->edit_begin + i];
        if (edit->kind == DRAW_HOLD)
            gpu->is_held[edit->token] = is_held = true;
        else
            edited[edit->token] = draw_edited(edited[edit->token], edit->kind, edit->value);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        edited[i] = draw_clean(edited[i]);
        if (draw->mask >= 0 &&
            !(samples->masks[(size_t)draw->mask * samples->mask_words + i / 32] >> i % 32 & 1))
            edited[i] = -INFINITY;
        has_some |= edited[i] > -INFINITY && !gpu->is_held[i];
    }
    for (uint32_t i = 0; is_held && has_some && i < vocab; i++)
        if (gpu->is_held[i]) edited[i] = -INFINITY;
}

/* ---- choosing ---- */

/* Order of likelihood: the higher logit first, the lower id among equals. */
static int compare_likely(const void *a, const void *b, void *logits_of) {
    const float *logits = logits_of;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (logits[i] != logits[j]) return logits[i] > logits[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static int compare_ids(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    return i < j ? -1 : i > j;
}

/* Orders the tokens that may be taken, the most likely first, and returns their number. */
static uint32_t order_row(struct gpu *gpu, float least) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < gpu->program.vocab; i++)
        if (gpu->edited[i] > -INFINITY && gpu->edited[i] >= least) gpu->order[count++] = i;
    qsort_r(gpu->order, count, sizeof *gpu->order, compare_likely, gpu->edited);
    return count;
}

static uint64_t weight_of(const struct gpu *gpu, const struct gpu_draw *draw, float max,
                          uint32_t at) {
    return draw_weight(gpu->edited[gpu->order[at]], max, draw->factor);
}

static int32_t draw_token(struct gpu *gpu, const struct gpu_draw *draw, float max) {
    uint32_t count = order_row(gpu, draw_least(max, draw->offset)), kept = 0;
    if (draw->top_k > 0 && draw->top_k < count) count = draw->top_k;
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) total += weight_of(gpu, draw, max, i);
    if (draw->top_p > 0.0f && draw->top_p < 1.0f) {
        uint64_t enough = draw_enough(draw->top_p, total);
        while (sum < enough) sum += weight_of(gpu, draw, max, kept++);
        count = kept, total = sum, sum = 0;
    }
    qsort(gpu->order, count, sizeof *gpu->order, compare_ids);
    uint64_t wanted = draw_wanted(rng_at(draw->seed, draw->counter), total);
    for (uint32_t i = 0; i < count; i++) {
        sum += weight_of(gpu, draw, max, i);
        if (sum > wanted) return (int32_t)gpu->order[i];
    }
    plain_refuse("the weights of a draw do not add up");
}

static int32_t choose(struct gpu *gpu, const struct gpu_samples *samples,
                      const struct gpu_draw *draw, const float *logits) {
    edit_row(gpu, samples, draw, logits);
    int32_t best = -1;
    for (uint32_t i = 0; i < gpu->program.vocab; i++)
        if (gpu->edited[i] > (best < 0 ? -INFINITY : gpu->edited[best])) best = (int32_t)i;
    if (best < 0) return draw->fallback;
    return draw->factor > 0.0f ? draw_token(gpu, draw, gpu->edited[best]) : best;
}

/* ---- answers ---- */

static bool is_before(const float *logits, uint32_t i, uint32_t j) {
    return logits[i] > logits[j] || (logits[i] == logits[j] && i < j);
}

static void answer_top(const struct gpu *gpu, uint32_t wanted, struct gpu_answer *answer) {
    const float *logits = gpu->edited;
    uint32_t vocab = gpu->program.vocab, count = 0;
    if (wanted > vocab) wanted = vocab;
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t at = count < wanted ? count : wanted;
        while (at > 0 && is_before(logits, i, (uint32_t)answer->top[at - 1])) at--;
        if (at >= wanted) continue;
        uint32_t moved = (count < wanted ? count : wanted - 1) - at;
        memmove(&answer->top[at + 1], &answer->top[at], moved * sizeof answer->top[0]);
        answer->top[at] = (int32_t)i;
        if (count < wanted) count++;
    }
    answer->top_count = count;
    for (uint32_t i = 0; i < count; i++) answer->top_logits[i] = logits[answer->top[i]];
}

/* From the logits as the model gave them. ret_named (ask->named_count) */
static void answer_ask(struct gpu *gpu, const struct gpu_ask *ask, const int32_t *named,
                       struct gpu_answer *ret_answer, float *ret_named) {
    uint32_t vocab = gpu->program.vocab;
    const float *from = gpu->logits + (size_t)ask->row * gpu->program.vocab_rows;
    float *logits = gpu->edited, max = -INFINITY;
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = draw_clean(from[i]);
        if (logits[i] > max) max = logits[i];
    }
    double sum = 0.0;
    for (uint32_t i = 0; max > -INFINITY && i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    MUST(ask->token >= 0 || gpu->is_drawn[ask->row], "wanted row %u asks for a token not drawn",
         ask->row);
    *ret_answer = (struct gpu_answer){
        .token = ask->token >= 0 ? ask->token : gpu->tokens[ask->row],
        .rank = 1,
        .lse = max > -INFINITY ? (double)max + log(sum) : -INFINITY,
    };
    ret_answer->logit = logits[ret_answer->token];
    for (uint32_t i = 0; i < vocab; i++)
        ret_answer->rank += is_before(logits, i, (uint32_t)ret_answer->token);
    answer_top(gpu, ask->top_count, ret_answer);
    for (uint32_t i = 0; i < ask->named_count; i++)
        ret_named[i] = logits[named[ask->named_begin + i]];
}

void plain_samples(struct gpu *gpu, const struct gpu_samples *samples, struct gpu_result *result,
                   uint32_t *answers, uint32_t *named) {
    for (uint32_t i = 0; i < samples->count; i++) {
        const struct gpu_draw *draw = &samples->draws[i];
        uint32_t row = samples->rows[i];
        const float *logits = gpu->logits + (size_t)row * gpu->program.vocab_rows;
        gpu->tokens[row] = choose(gpu, samples, draw, logits);
        gpu->is_drawn[row] = true;
        if (draw->slot >= 0) gpu->last_token[draw->slot] = gpu->tokens[row];
    }
    for (uint32_t i = 0; i < samples->ask_count; i++) {
        const struct gpu_ask *ask = &samples->asks[i];
        answer_ask(gpu, ask, samples->named, &result->answers[*answers + i],
                   result->named_logits + *named + ask->named_begin);
    }
    *answers += samples->ask_count;
    *named += samples->named_count;
}

uint32_t plain_nonfinite_rows(const struct gpu *gpu, uint32_t rows) {
    uint32_t count = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const float *logits = gpu->logits + (size_t)row * gpu->program.vocab_rows;
        uint32_t i = 0;
        while (i < gpu->program.vocab && !isnan(logits[i]) && logits[i] != INFINITY) i++;
        count += i < gpu->program.vocab;
    }
    return count;
}
