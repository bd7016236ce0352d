/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* backend_driver: the least that can drive a backend: it gives every sequence blocks of its own and
 * runs all of them together to their end. */

#include "scheduler/backend.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_RUNS_MAX 64
#define DRIVER_BLOCKS_MAX 64u /* blocks per run */
#define DRIVER_TOKENS_MAX 512u

struct driver_run {
    const int32_t *prompt; /* (prompt_count) */
    uint32_t prompt_count;
    struct sampling sampling; /* max_tokens: how many to generate, unless `stop` comes */
    uint64_t seed;
    int32_t stop;   /* the token that ends the run; -1: no token does */
    uint32_t chunk; /* rows of a step while in the prompt; 0: all */
    const uint32_t *allowed;
    /* Filled in. */
    uint32_t generated_count;
    int32_t generated[DRIVER_TOKENS_MAX];
    struct sample samples[DRIVER_TOKENS_MAX];
    /* Private. */
    uint32_t kv_tokens;
    bool done;
    uint32_t pages[DRIVER_BLOCKS_MAX * BACKEND_GROUPS_MAX];
};

struct driver_step {
    struct step step;
    int32_t tokens[4096];
    uint32_t positions[4096];
    struct step_sequence sequences[DRIVER_RUNS_MAX];
    struct logit_row logit_rows[DRIVER_RUNS_MAX];
    uint32_t logit_run[DRIVER_RUNS_MAX]; /* whose a logit row is */
};

static inline int32_t token_at(const struct driver_run *run, uint32_t position) {
    return position < run->prompt_count ? run->prompt[position]
                                        : run->generated[position - run->prompt_count];
}

/* Adds the rows of one run; false when the step is full. */
static inline bool add_rows(struct driver_step *to, struct driver_run *run, uint32_t slot,
                            uint32_t rows_max) {
    uint32_t known = run->prompt_count + run->generated_count;
    uint32_t count = known - run->kv_tokens;
    if (run->chunk && count > run->chunk) count = run->chunk;
    if (count > rows_max - to->step.row_count) count = rows_max - to->step.row_count;
    if (count == 0) return false;
    struct step *step = &to->step;
    to->sequences[step->sequence_count] =
        (struct step_sequence){.slot = slot,
                               .slot_is_new = run->kv_tokens == 0,
                               .state = slot,
                               .state_from = run->kv_tokens == 0 ? BACKEND_STATE_ZERO : slot,
                               .row_first = step->row_count,
                               .row_count = count,
                               .kv_tokens = run->kv_tokens,
                               .block_count = DRIVER_BLOCKS_MAX,
                               .page_stride = DRIVER_BLOCKS_MAX,
                               .pages = run->pages};
    for (uint32_t i = 0; i < count; i++) {
        to->tokens[step->row_count + i] = token_at(run, run->kv_tokens + i);
        to->positions[step->row_count + i] = run->kv_tokens + i;
    }
    run->kv_tokens += count;
    step->row_count += count;
    if (run->kv_tokens == known) {
        to->logit_run[step->logit_count] = slot;
        to->logit_rows[step->logit_count++] = (struct logit_row){.row = step->row_count - 1,
                                                                 .sequence = step->sequence_count,
                                                                 .sampling = &run->sampling,
                                                                 .seed = run->seed,
                                                                 .counter = run->generated_count,
                                                                 .prompt = run->prompt,
                                                                 .prompt_count = run->prompt_count,
                                                                 .generated = run->generated,
                                                                 .allowed = run->allowed};
    }
    step->sequence_count++;
    return true;
}

static inline void take_sample(struct driver_run *run, const struct sample *sample) {
    run->samples[run->generated_count] = *sample;
    run->generated[run->generated_count++] = sample->token;
    run->done = run->generated_count == run->sampling.max_tokens || sample->token == run->stop;
}

/* Runs all to their end. Blocks: `blocks_each` for each run, from 0 on. */
static inline enum err drive(const struct backend *backend, struct driver_run *runs, uint32_t count,
                             uint32_t blocks_each, struct error *error) {
    uint32_t groups = backend->caps.full_pages + backend->caps.window_pages;
    assert(count <= DRIVER_RUNS_MAX && blocks_each <= DRIVER_BLOCKS_MAX);
    assert(count * blocks_each * groups <= backend->caps.page_count);
    struct driver_step *to = calloc(1, sizeof *to);
    for (uint32_t i = 0; i < count; i++) {
        runs[i].generated_count = runs[i].kv_tokens = 0;
        runs[i].done = false;
        for (uint32_t g = 0; g < groups; g++)
            for (uint32_t j = 0; j < blocks_each; j++)
                runs[i].pages[g * DRIVER_BLOCKS_MAX + j] = (g * count + i) * blocks_each + j;
    }
    uint32_t rows_max = backend->caps.rows_max < 4096 ? backend->caps.rows_max : 4096;
    enum err err = OK;
    for (uint64_t number = 1; err == OK; number++) {
        to->step = (struct step){.number = number,
                                 .tokens = to->tokens,
                                 .positions = to->positions,
                                 .sequences = to->sequences,
                                 .logit_rows = to->logit_rows};
        for (uint32_t i = 0; i < count; i++)
            if (!runs[i].done) (void)add_rows(to, &runs[i], i, rows_max);
        if (to->step.row_count == 0) break;
        struct sample samples[DRIVER_RUNS_MAX];
        struct step_result result = {.samples = samples};
        err = backend->ops->submit(backend->self, &to->step, error);
        if (err == OK) err = backend->ops->wait(backend->self, &result, error);
        for (uint32_t i = 0; i < to->step.logit_count && err == OK; i++)
            take_sample(&runs[to->logit_run[i]], &samples[i]);
    }
    free(to);
    return err;
}
