/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_sampling.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "gpu/gpu_edits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The log-probability given for a logit of -inf: JSON has no infinity. */
#define LOGPROB_LEAST (-9999.0f)

struct gpu_sampling {
    struct gpu_sampling_options options;
    struct gpu_edits *edits;
    struct gpu_samples samples; /* samples for the call under way */
    uint32_t *rows;             /* (sequences_max) */
    struct gpu_draw *draws;     /* (sequences_max) */
    struct gpu_ask *asks;       /* (logit_rows_max) */
    /* The rows that come in this call and the next ones. */
    struct gpu_record *record;
    const struct logit_row *source; /* (source_count), of which source_next is the next one */
    uint32_t source_count;
    uint32_t source_next;
    bool is_late; /* they are the late ones; else late ones among them are passed over */
    uint64_t number;
};

uint32_t gpu_sampling_edits_max(const struct gpu_sampling_options *options) {
    uint32_t all = GPU_EDITS_EACH * options->sequences_max;
    uint32_t row = gpu_edits_of_row(options->vocab, options->context_max);
    return all > row ? all : row;
}

uint32_t gpu_sampling_named_max(const struct gpu_sampling_options *options) {
    return SAMPLING_LOGPROB_TOKENS_MAX * options->sequences_max;
}

enum err gpu_sampling_open(struct gpu_sampling **ret_sampling,
                           const struct gpu_sampling_options *options, struct error *error) {
    struct gpu_sampling *sampling = mem_new(1, sizeof *sampling);
    sampling->options = *options;
    sampling->rows = calloc(options->sequences_max, sizeof *sampling->rows);
    sampling->draws = calloc(options->sequences_max, sizeof *sampling->draws);
    sampling->asks = calloc(options->logit_rows_max, sizeof *sampling->asks);
    enum err err = OK;
    if (!sampling->rows || !sampling->draws || !sampling->asks)
        err = err_set(error, ERR_LIMIT, "no memory to sample %u rows", options->logit_rows_max);
    if (err == OK)
        err = gpu_edits_open(&sampling->edits, options->vocab, options->sequences_max,
                             gpu_sampling_edits_max(options), error);
    if (err == OK)
        *ret_sampling = sampling;
    else
        gpu_sampling_close(sampling);
    return err;
}

void gpu_sampling_close(struct gpu_sampling *sampling) {
    if (!sampling) return;
    gpu_edits_close(sampling->edits);
    free(sampling->rows);
    free(sampling->draws);
    free(sampling->asks);
    free(sampling);
}

enum err gpu_record_open(struct gpu_record *ret_record, const struct gpu_sampling_options *options,
                         struct error *error) {
    struct gpu_record record = {0};
    record.questions = calloc(options->logit_rows_max, sizeof *record.questions);
    record.named = calloc(gpu_sampling_named_max(options), sizeof *record.named);
    *ret_record = record;
    if (record.questions && record.named) return OK;
    return err_set(error, ERR_LIMIT, "no memory to sample %u rows", options->logit_rows_max);
}

void gpu_record_close(struct gpu_record *record) {
    free(record->questions);
    free(record->named);
    *record = (struct gpu_record){0};
}

/* ---- questions ---- */

/* False when the call has no room for the row's edits. */
static bool add_draw(struct gpu_sampling *sampling, const struct gpu_question *question,
                     const struct logit_row *row) {
    const struct sampling *wanted = row->sampling;
    struct gpu_samples *samples = &sampling->samples;
    const bool is_greedy = wanted->temperature <= 0.0f;
    struct gpu_draw *draw = &sampling->draws[samples->count];
    assert(samples->count < sampling->options.sequences_max);
    *draw = (struct gpu_draw){.seed = row->seed,
                              .counter = row->counter,
                              .factor = is_greedy ? 0.0f : draw_factor(wanted->temperature),
                              .offset = is_greedy ? 0.0f
                                                  : draw_offset(wanted->temperature, wanted->min_p),
                              .top_p = wanted->top_p,
                              .top_k = wanted->top_k,
                              .slot = question->slot};
    if (!gpu_edits_add(sampling->edits, row, samples->count, draw)) return false;
    sampling->rows[samples->count++] = row->index;
    return true;
}

static void add_ask(struct gpu_sampling *sampling, struct gpu_record *record,
                    struct gpu_question *question, const struct logit_row *row) {
    const struct sampling *wanted = row->sampling;
    struct gpu_samples *samples = &sampling->samples;
    uint32_t top_count = row->scored ? wanted->prompt_top_logprobs : wanted->top_logprobs;
    uint32_t named_count = row->scored ? 0 : wanted->logprob_token_count;
    *question = (struct gpu_question){.slot = question->slot,
                                      .is_drawn = question->is_drawn,
                                      .is_scored = row->scored != NULL,
                                      .has_ask = true,
                                      .ask = record->ask_count++,
                                      .named_begin = record->named_count,
                                      .named_count = named_count};
    sampling->asks[samples->ask_count++] = (struct gpu_ask){
        .row = row->index,
        .token = row->scored ? *row->scored : -1,
        .top_count = named_count > 0 ? 0 : min_u32(top_count, sampling->options.vocab),
        .named_begin = samples->named_count,
        .named_count = named_count};
    if (named_count > 0)
        memcpy(record->named + record->named_count, wanted->logprob_tokens,
               named_count * sizeof *record->named);
    record->named_count += named_count;
    samples->named_count += named_count;
}

/* False, with nothing added, when the row belongs to the next call. */
static bool add_row(struct gpu_sampling *sampling, const struct logit_row *row) {
    struct gpu_question *question = &sampling->record->questions[row->index];
    if (!row->scored && !add_draw(sampling, question, row)) return false;
    question->is_drawn = !row->scored;
    if (row->scored || row->sampling->logprobs) add_ask(sampling, sampling->record, question, row);
    return true;
}

const struct gpu_samples *gpu_sampling_more(struct gpu_sampling *sampling) {
    struct gpu_samples *samples = &sampling->samples;
    *samples = (struct gpu_samples){.number = sampling->number};
    gpu_edits_begin(sampling->edits);
    for (; sampling->source_next < sampling->source_count; sampling->source_next++) {
        const struct logit_row *row = &sampling->source[sampling->source_next];
        if (row->is_late && !sampling->is_late) continue;
        if (!add_row(sampling, row)) break;
    }
    const struct gpu_record *record = sampling->record;
    samples->rows = sampling->rows;
    samples->draws = sampling->draws;
    samples->asks = sampling->asks;
    samples->named = record->named + (record->named_count - samples->named_count);
    gpu_edits_end(sampling->edits, samples);
    return samples->count > 0 || samples->ask_count > 0 ? samples : NULL;
}

const struct gpu_samples *gpu_sampling_begin(struct gpu_sampling *sampling,
                                             struct gpu_record *record, const struct step *step,
                                             uint64_t number) {
    assert(step->logit_count <= sampling->options.logit_rows_max);
    record->question_count = step->logit_count;
    record->ask_count = record->named_count = 0;
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        assert(row->index == i);
        record->questions[i] =
            (struct gpu_question){.slot = (int32_t)step->sequences[row->sequence].slot};
    }
    sampling->record = record;
    sampling->source = step->logit_rows;
    sampling->source_count = step->logit_count;
    sampling->source_next = 0;
    sampling->is_late = false;
    sampling->number = number;
    return gpu_sampling_more(sampling);
}

const struct gpu_samples *gpu_sampling_late(struct gpu_sampling *sampling,
                                            struct gpu_record *record, const struct logit_row *rows,
                                            uint32_t count, uint64_t number) {
    for (uint32_t i = 0; i < count; i++)
        assert(rows[i].index < record->question_count &&
               !record->questions[rows[i].index].is_drawn);
    sampling->record = record;
    sampling->source = rows;
    sampling->source_count = count;
    sampling->source_next = 0;
    sampling->is_late = true;
    sampling->number = number;
    return gpu_sampling_more(sampling);
}

/* ---- answers ---- */

static float logprob_of(float logit, double lse) {
    double logprob = (double)logit - lse;
    if (!(logprob > (double)LOGPROB_LEAST)) return LOGPROB_LEAST;
    return logprob < 0.0 ? (float)logprob : 0.0f;
}

/* The named tokens in the order of their likelihood, among equals the lowest id first. */
static void answer_named(const struct gpu_record *record, const struct gpu_question *question,
                         const struct gpu_result *result, double lse, struct sample *sample) {
    float logits[SAMPLING_LOGPROB_TOKENS_MAX];
    for (uint32_t i = 0; i < question->named_count; i++) {
        int32_t token = record->named[question->named_begin + i];
        float logit = result->named_logits[question->named_begin + i];
        uint32_t at = i;
        for (; at > 0 && (logits[at - 1] < logit ||
                          (logits[at - 1] == logit && sample->top[at - 1].token > token));
             at--) {
            sample->top[at] = sample->top[at - 1];
            logits[at] = logits[at - 1];
        }
        sample->top[at] = (struct token_logprob){token, logprob_of(logit, lse)};
        logits[at] = logit;
    }
    sample->top_count = question->named_count;
}

static void answer_ask(const struct gpu_record *record, const struct gpu_question *question,
                       const struct gpu_result *result, struct sample *sample) {
    const struct gpu_answer *answer = &result->answers[question->ask];
    sample->token = answer->token;
    sample->logprob = logprob_of(answer->logit, answer->lse);
    if (question->is_scored) sample->rank = answer->rank;
    if (question->named_count > 0) {
        answer_named(record, question, result, answer->lse, sample);
        return;
    }
    sample->top_count = answer->top_count;
    for (uint32_t i = 0; i < answer->top_count; i++)
        sample->top[i] =
            (struct token_logprob){answer->top[i], logprob_of(answer->top_logits[i], answer->lse)};
}

void gpu_sampling_answer(const struct gpu_record *record, const struct gpu_result *result,
                         struct sample *samples) {
    for (uint32_t i = 0; i < record->question_count; i++) {
        const struct gpu_question *question = &record->questions[i];
        struct sample *sample = &samples[i];
        if (!question->is_drawn && !question->has_ask) continue;
        sample->logprob = 0.0f;
        sample->rank = sample->top_count = 0;
        if (question->is_drawn) sample->token = result->tokens[i];
        if (question->has_ask) answer_ask(record, question, result, sample);
    }
}
