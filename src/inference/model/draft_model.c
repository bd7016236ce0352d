/* SPDX-License-Identifier: Apache-2.0 */
#include "model/draft_model.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/min_max.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLACES SCHEDULER_GUESSED_MAX
/* Tokens of a prompt that are computed per call: some tens of milliseconds of a small model. */
#define PROMPT_ROWS 256u
/* Rows behind which a call tells nothing of the time of a token. */
#define FEW_ROWS 8u
/* A token that the model gives less than this chance is wrong too often to be worth a row. */
#define CERTAINTY_MIN 0.25

struct draft_place {
    uint64_t sequence; /* 0: free */
    uint64_t asked;    /* number of the call that used it last */
    uint32_t count;    /* tokens whose keys are in its pages */
    int32_t *tokens;   /* (context) */
    uint32_t *pages;   /* (groups, blocks) its own */
    bool is_new;       /* no step has had it since it got its sequence */
};

struct draft_model {
    const struct backend *backend;
    uint32_t context; /* tokens of a place */
    uint32_t blocks;  /* likewise */
    uint32_t groups;  /* pages of a block */
    struct draft_place places[PLACES];
    uint32_t *positions; /* (PROMPT_ROWS) */
    uint64_t calls, steps;
    bool has_failed;
};

static enum err check_backend(const struct backend *backend, struct error *error) {
    if (backend->caps.state_places > 0)
        return err_set(error, ERR_INVALID,
                       "its recurrent layers cannot take a wrong guess back; a draft model has "
                       "attention only");
    if (backend->caps.steps_max != 1)
        return err_set(error, ERR_INVALID, "guesses are computed on the CPU only");
    return OK;
}

static void open_places(struct draft_model *model) {
    uint32_t page = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct draft_place *place = &model->places[i];
        place->tokens = mem_new(model->context, sizeof *place->tokens);
        place->pages = mem_new((size_t)model->groups * model->blocks, sizeof *place->pages);
        for (uint32_t at = 0; at < model->groups * model->blocks; at++) place->pages[at] = page++;
    }
}

enum err draft_model_open(struct draft_model **ret_model, const struct backend *backend,
                          struct error *error) {
    const struct backend_caps *caps = &backend->caps;
    enum err err = check_backend(backend, error);
    if (err != OK) return err;
    const uint32_t groups = caps->full_pages + caps->window_pages;
    const uint32_t blocks =
        min_u32(caps->page_count / groups / PLACES, backend_blocks_for(caps->context_tokens_max));
    if (blocks == 0)
        return err_set(error, ERR_LIMIT, "%u pages hold no sequence", caps->page_count);
    struct draft_model *model = mem_new(1, sizeof *model);
    *model = (struct draft_model){
        .backend = backend,
        .blocks = blocks,
        .groups = groups,
        .context = min_u32(caps->context_tokens_max, blocks * BACKEND_BLOCK_TOKENS)};
    model->positions = mem_new(PROMPT_ROWS, sizeof *model->positions);
    open_places(model);
    *ret_model = model;
    return OK;
}

void draft_model_close(struct draft_model *model) {
    if (!model) return;
    for (uint32_t i = 0; i < PLACES; i++) {
        free(model->places[i].tokens);
        free(model->places[i].pages);
    }
    free(model->positions);
    free(model);
}

/* ---- a step ---- */

/* Computes `count` tokens of a place behind those that it knows. With ret_sample it samples the
 * likeliest token behind them. */
static bool compute(struct draft_model *model, struct draft_place *place, uint32_t count,
                    struct sample *ret_sample) {
    static const struct sampling likeliest = {.logprobs = true};
    for (uint32_t i = 0; i < count; i++) model->positions[i] = place->count + i;
    const struct step_sequence sequence = {.slot = (uint32_t)(place - model->places),
                                           .slot_is_new = place->is_new,
                                           .row_count = count,
                                           .kv_tokens = place->count,
                                           .block_count = backend_blocks_for(place->count + count),
                                           .page_stride = model->blocks,
                                           .pages = place->pages};
    const uint32_t known = place->count + count;
    const struct logit_row row = {.row = count - 1,
                                  .sampling = &likeliest,
                                  .prompt = place->tokens,
                                  .prompt_count = known,
                                  .generated = place->tokens + known};
    const struct step step = {.number = ++model->steps,
                              .row_count = count,
                              .sequence_count = 1,
                              .logit_count = ret_sample != NULL,
                              .tokens = place->tokens + place->count,
                              .positions = model->positions,
                              .sequences = &sequence,
                              .logit_rows = &row};
    struct step_result result = {.samples = ret_sample};
    const struct backend *backend = model->backend;
    struct error error;
    enum err err = backend->ops->submit(backend->self, &step, &error);
    if (err == OK) err = backend->ops->wait(backend->self, &result, &error);
    model->has_failed = err != OK;
    if (err != OK) log_warn("event=draft_model_failed reason=\"%s\"", error.text);
    place->count = known;
    place->is_new = false;
    return err == OK;
}

/* ---- a sequence ---- */

static struct draft_place *place_of(struct draft_model *model, uint64_t sequence) {
    struct draft_place *oldest = &model->places[0];
    for (uint32_t i = 0; i < PLACES; i++) {
        struct draft_place *place = &model->places[i];
        if (place->sequence == sequence) return place;
        if (place->asked < oldest->asked) oldest = place;
    }
    oldest->sequence = sequence;
    oldest->count = 0;
    oldest->is_new = true;
    return oldest;
}

/* Notes `count` tokens at `at` of the sequence. Where the place has another one, it forgets that
 * and all behind it. */
static void note(struct draft_place *place, const int32_t *tokens, uint32_t at, uint32_t count) {
    if (count == 0) return;
    const uint32_t known = place->count > at ? min_u32(place->count - at, count) : 0;
    uint32_t equal = 0;
    while (equal < known && place->tokens[at + equal] == tokens[equal]) equal++;
    if (equal < known) place->count = at + equal;
    memcpy(place->tokens + at + equal, tokens + equal, (count - equal) * sizeof *tokens);
}

/* Takes the likeliest token again and again; the place knows all but the last `rows` tokens. */
static void go_on(struct draft_model *model, struct draft_place *place, uint32_t rows,
                  struct scheduler_guess *guess) {
    struct sample sample;
    while (guess->count < guess->room && compute(model, place, rows, &sample)) {
        const double chance = exp((double)sample.logprob);
        if (!(chance >= CERTAINTY_MIN)) return;
        guess->certainty[guess->count] = (uint8_t)(255 * (chance < 1 ? chance : 1));
        guess->tokens[guess->count++] = sample.token;
        if (place->count == model->context) return;
        place->tokens[place->count] = sample.token;
        rows = 1;
    }
}

void draft_model_guess(void *draft_model, struct scheduler_guess *guess) {
    struct draft_model *model = draft_model;
    const int64_t begun_ns = clock_monotonic_ns();
    const uint64_t total = (uint64_t)guess->prompt_count + guess->generated_count;
    assert(guess->sequence > 0 && total > 0 && guess->room > 0);
    if (model->has_failed || total > model->context) return;
    struct draft_place *place = place_of(model, guess->sequence);
    place->asked = ++model->calls;
    note(place, guess->prompt, 0, guess->prompt_count);
    note(place, guess->generated, guess->prompt_count, guess->generated_count);
    /* The last token is computed again where its key is known: its logits are not kept. */
    if (place->count >= total) place->count = (uint32_t)total - 1;
    const uint32_t rows = (uint32_t)total - place->count;
    const uint32_t rows_max = min_u32(PROMPT_ROWS, model->backend->caps.rows_max);
    if (rows > rows_max)
        compute(model, place, rows_max, NULL);
    else
        go_on(model, place, rows, guess);
    guess->ns = clock_monotonic_ns() - begun_ns;
    if (guess->count > 0 && rows <= FEW_ROWS) guess->token_ns = guess->ns / guess->count;
}
