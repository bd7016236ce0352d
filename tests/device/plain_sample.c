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
static void edit_row(struct device *device, const struct device_samples *samples,
                     const struct device_draw *draw, const float *logits) {
    uint32_t vocab = device->program.vocab;
    float *edited = device->edited;
    bool is_held = false, has_some = false;
    for (uint32_t i = 0; i < vocab; i++) edited[i] = draw_clean(logits[i]);
    memset(device->is_held, 0, vocab * sizeof *device->is_held);
    for (uint32_t i = 0; i < draw->edit_count; i++) {
        const struct draw_edit *edit = &samples->edits[draw->edit_begin + i];
        if (edit->kind == DRAW_HOLD)
            device->is_held[edit->token] = is_held = true;
        else
            edited[edit->token] = draw_edited(edited[edit->token], edit->kind, edit->value);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        edited[i] = draw_clean(edited[i]);
        if (draw->mask >= 0 &&
            !(samples->masks[(size_t)draw->mask * samples->mask_words + i / 32] >> i % 32 & 1))
            edited[i] = -INFINITY;
        has_some |= edited[i] > -INFINITY && !device->is_held[i];
    }
    for (uint32_t i = 0; is_held && has_some && i < vocab; i++)
        if (device->is_held[i]) edited[i] = -INFINITY;
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
static uint32_t order_row(struct device *device, float least) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < device->program.vocab; i++)
        if (device->edited[i] > -INFINITY && device->edited[i] >= least) device->order[count++] = i;
    qsort_r(device->order, count, sizeof *device->order, compare_likely, device->edited);
    return count;
}

static uint64_t weight_of(const struct device *device, const struct device_draw *draw, float max,
                          uint32_t at) {
    return draw_weight(device->edited[device->order[at]], max, draw->factor);
}

static int32_t draw_token(struct device *device, const struct device_draw *draw, float max) {
    uint32_t count = order_row(device, draw_least(max, draw->offset)), kept = 0;
    if (draw->top_k > 0 && draw->top_k < count) count = draw->top_k;
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) total += weight_of(device, draw, max, i);
    if (draw->top_p > 0.0f && draw->top_p < 1.0f) {
        uint64_t enough = draw_enough(draw->top_p, total);
        while (sum < enough) sum += weight_of(device, draw, max, kept++);
        count = kept, total = sum, sum = 0;
    }
    qsort(device->order, count, sizeof *device->order, compare_ids);
    uint64_t wanted = draw_wanted(rng_at(draw->seed, draw->counter), total);
    for (uint32_t i = 0; i < count; i++) {
        sum += weight_of(device, draw, max, i);
        if (sum > wanted) return (int32_t)device->order[i];
    }
    plain_refuse("the weights of a draw do not add up");
}

static int32_t choose(struct device *device, const struct device_samples *samples,
                      const struct device_draw *draw, const float *logits) {
    edit_row(device, samples, draw, logits);
    int32_t best = -1;
    for (uint32_t i = 0; i < device->program.vocab; i++)
        if (device->edited[i] > (best < 0 ? -INFINITY : device->edited[best])) best = (int32_t)i;
    if (best < 0) return draw->fallback;
    return draw->factor > 0.0f ? draw_token(device, draw, device->edited[best]) : best;
}

/* ---- answers ---- */

static bool is_before(const float *logits, uint32_t i, uint32_t j) {
    return logits[i] > logits[j] || (logits[i] == logits[j] && i < j);
}

static void answer_top(const struct device *device, uint32_t wanted, struct device_answer *answer) {
    const float *logits = device->edited;
    uint32_t vocab = device->program.vocab, count = 0;
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
static void answer_ask(struct device *device, const struct device_ask *ask, const int32_t *named,
                       struct device_answer *ret_answer, float *ret_named) {
    uint32_t vocab = device->program.vocab;
    const float *from = device->logits + (size_t)ask->row * device->program.vocab_rows;
    float *logits = device->edited, max = -INFINITY;
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = draw_clean(from[i]);
        if (logits[i] > max) max = logits[i];
    }
    double sum = 0.0;
    for (uint32_t i = 0; max > -INFINITY && i < vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    MUST(ask->token >= 0 || device->is_drawn[ask->row], "wanted row %u asks for a token not drawn",
         ask->row);
    *ret_answer = (struct device_answer){
        .token = ask->token >= 0 ? ask->token : device->tokens[ask->row],
        .rank = 1,
        .lse = max > -INFINITY ? (double)max + log(sum) : -INFINITY,
    };
    ret_answer->logit = logits[ret_answer->token];
    for (uint32_t i = 0; i < vocab; i++)
        ret_answer->rank += is_before(logits, i, (uint32_t)ret_answer->token);
    answer_top(device, ask->top_count, ret_answer);
    for (uint32_t i = 0; i < ask->named_count; i++)
        ret_named[i] = logits[named[ask->named_begin + i]];
}

void plain_samples(struct device *device, const struct device_samples *samples,
                   struct device_result *result, uint32_t *answers, uint32_t *named) {
    for (uint32_t i = 0; i < samples->count; i++) {
        const struct device_draw *draw = &samples->draws[i];
        uint32_t row = samples->rows[i];
        const float *logits = device->logits + (size_t)row * device->program.vocab_rows;
        device->tokens[row] = choose(device, samples, draw, logits);
        device->is_drawn[row] = true;
        if (draw->slot >= 0) device->last_token[draw->slot] = device->tokens[row];
    }
    for (uint32_t i = 0; i < samples->ask_count; i++) {
        const struct device_ask *ask = &samples->asks[i];
        answer_ask(device, ask, samples->named, &result->answers[*answers + i],
                   result->named_logits + *named + ask->named_begin);
    }
    *answers += samples->ask_count;
    *named += samples->named_count;
}

uint32_t plain_nonfinite_rows(const struct device *device, uint32_t rows) {
    uint32_t count = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const float *logits = device->logits + (size_t)row * device->program.vocab_rows;
        uint32_t i = 0;
        while (i < device->program.vocab && !isnan(logits[i]) && logits[i] != INFINITY) i++;
        count += i < device->program.vocab;
    }
    return count;
}
