/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/drafts.h"

#include "scheduler/scheduler.h"
#include "scheduler/step_costs.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(array) (uint32_t)(sizeof(array) / sizeof(array)[0])

/* ---- what a step costs ---- */

static void a_step_of_unknown_rows_costs_what_its_neighbours_say(void **state) {
    (void)state;
    struct step_costs costs = {.count = 0};
    assert_true(step_costs_of(&costs, 1) == 1 && step_costs_of(&costs, 64) == 1);
    step_costs_note(&costs, 4, 1000);
    assert_true(step_costs_of(&costs, 1) == 1000 && step_costs_of(&costs, 8) == 1000);
    step_costs_note(&costs, 512, 51200);
    assert_true(step_costs_of(&costs, 8) == 1400);
    step_costs_note(&costs, 8, 2000);
    assert_true(step_costs_of(&costs, 5) == 1250 && step_costs_of(&costs, 8) == 2000);
    assert_true(step_costs_of(&costs, 10) == 2200);
}

static void a_time_falls_at_once_and_rises_slowly(void **state) {
    (void)state;
    struct step_costs costs = {.count = 0};
    step_costs_note(&costs, 2, 1000);
    step_costs_note(&costs, 2, 9000);
    assert_true(step_costs_of(&costs, 2) > 1000 && step_costs_of(&costs, 2) < 1100);
    step_costs_note(&costs, 2, 500);
    assert_true(step_costs_of(&costs, 2) == 500);
    step_costs_note(&costs, 0, 1);
    step_costs_note(&costs, 2, 0);
    step_costs_note(&costs, 6, 90000); /* other work: six rows take at most three times two */
    assert_true(step_costs_of(&costs, 6) == 1500);
    assert_true(step_costs_of(&costs, 2) == 500);
}

static void a_time_that_was_long_not_measured_is_forgotten(void **state) {
    (void)state;
    struct step_costs costs = {.count = 0};
    step_costs_note(&costs, 3, 9000);
    for (int i = 0; i < 200; i++) step_costs_note(&costs, 2, 1000);
    assert_true(step_costs_of(&costs, 3) == 1000);
}

/* ---- guesses ---- */

/* A request of one sequence whose prompt is these tokens. */
static struct live_request *request_of(const int32_t *prompt, uint32_t count) {
    static const int32_t end_tokens[] = {99};
    struct scheduler_request request = {
        .prompt = prompt,
        .prompt_count = count,
        .sampling = {.end_tokens = end_tokens, .end_token_count = 1}};
    return live_request_open(&request, 1, 1000, 0);
}

static void check_guess(const int32_t *prompt, uint32_t prompt_count, uint32_t room,
                        uint32_t length, const int32_t *tokens, uint32_t count) {
    struct live_request *request = request_of(prompt, prompt_count);
    struct draft draft;
    draft_find(&draft, &request->sequences[0], room);
    assert_int_equal(draft.length, length);
    assert_int_equal(draft.found, count);
    assert_int_equal(draft.count, 0);
    if (count > 0) assert_memory_equal(draft.tokens, tokens, count * sizeof *tokens);
    live_request_close(request);
}

static void a_guess_follows_the_longest_and_latest_equal_run(void **state) {
    (void)state;
    const int32_t longest[] = {1, 2, 3, 4, 5, 9, 2, 3, 7, 8, 1, 2, 3};
    check_guess(longest, COUNT(longest), 4, 3, (const int32_t[]){4, 5, 9, 2}, 4);
    const int32_t latest[] = {2, 3, 4, 9, 2, 3, 7, 8, 2, 3};
    check_guess(latest, COUNT(latest), 2, 2, (const int32_t[]){7, 8}, 2);
    const int32_t none[] = {1, 2, 3, 9, 3};
    check_guess(none, COUNT(none), 4, 0, NULL, 0);
    check_guess(none, 1, 4, 0, NULL, 0);
}

static void a_guess_repeats_a_period_and_stops_before_an_end_token(void **state) {
    (void)state;
    const int32_t period[] = {6, 7, 8, 7, 8};
    check_guess(period, COUNT(period), 5, 2, (const int32_t[]){7, 8, 7, 8, 7}, 5);
    const int32_t ended[] = {1, 2, 3, 99, 4, 1, 2};
    check_guess(ended, COUNT(ended), 5, 2, (const int32_t[]){3}, 1);
    check_guess(period, COUNT(period), 0, 2, NULL, 0);
}

static void chances_move_towards_what_was_seen(void **state) {
    (void)state;
    const int32_t prompt[] = {1, 2, 3, 4, 1, 2};
    struct live_request *request = request_of(prompt, COUNT(prompt));
    struct sequence *sequence = &request->sequences[0];
    struct draft draft;
    draft_find(&draft, sequence, 2);
    const double first = draft_chance(&draft, 0), second = draft_chance(&draft, 1);
    assert_true(first > 0 && second > first && second < 1);
    draft_learn(&draft, COUNT(prompt)); /* nothing has come */
    assert_true(draft_chance(&draft, 0) == first);
    sequence_append(sequence, 3);
    sequence_append(sequence, 9);
    draft_learn(&draft, COUNT(prompt));
    assert_true(draft_chance(&draft, 0) > first && draft_chance(&draft, 1) < second);
    for (int i = 0; i < 100; i++) draft_learn(&draft, COUNT(prompt));
    assert_true(draft_chance(&draft, 0) > 0.95 && draft_chance(&draft, 1) < 0.05);
    assert_true(draft_chance(&draft, 1) > 0);
    live_request_close(request);
}

/* ---- rows of guesses ---- */

#define SEQUENCES 3u
#define LOGIT_ROWS 5u

/* The step that was submitted last, whose rows all sample the token 5. */
static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    *(struct step *)self = *step;
    return OK;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    (void)error;
    const struct step *step = self;
    for (uint32_t i = 0; i < step->logit_count; i++)
        result->samples[i] = (struct sample){.token = 5};
    return OK;
}

static void close_backend(void *self) {
    (void)self;
}

static void on_event(void *user, const struct scheduler_event *event) {
    (void)user;
    (void)event;
}

static void guesses_take_only_the_logit_rows_that_no_sequence_needs(void **state) {
    (void)state;
    static const struct backend_ops ops = {
        .submit = submit, .wait = wait_for_step, .close = close_backend};
    static const int32_t prompt[] = {5, 5, 5, 5, 5};
    struct step step = {0};
    struct backend backend = {.ops = &ops,
                              .self = &step,
                              .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                       .page_count = 64,
                                       .full_pages = 1,
                                       .rows_max = 100,
                                       .logit_rows_max = LOGIT_ROWS,
                                       .sequences_max = SEQUENCES,
                                       .context_tokens_max = 500,
                                       .vocab = 1000,
                                       .steps_max = 1}};
    const struct scheduler_options options = {
        .backend = &backend, .on_event = on_event, .draft_tokens_max = DRAFT_TOKENS_MAX};
    struct scheduler *scheduler;
    assert_int_equal(scheduler_open(&scheduler, &options, NULL), OK);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        assert_int_equal(
            scheduler_submit(scheduler,
                             &(struct scheduler_request){.id = i,
                                                         .prompt = prompt,
                                                         .prompt_count = COUNT(prompt),
                                                         .sampling = {.max_tokens = 60}},
                             NULL),
            OK);
    assert_int_equal(scheduler_step(scheduler, NULL), OK); /* the prompts */
    assert_int_equal(step.logit_count, SEQUENCES);
    /* Nothing but the time of that step is known, so that each further row seems to be free. */
    assert_int_equal(scheduler_step(scheduler, NULL), OK);
    assert_int_equal(step.sequence_count, SEQUENCES);
    assert_int_equal(step.logit_count, LOGIT_ROWS);
    scheduler_close(scheduler);
}

/* ---- guesses of a model ---- */

#define MODEL_TOKENS 3u

/* Knows what comes, and one token that ends the sequence behind it. */
static void guess_fives(void *guesser, struct scheduler_guess *guess) {
    (*(uint32_t *)guesser)++;
    assert_true(guess->sequence > 0 && guess->room >= 1);
    for (; guess->count < guess->room && guess->count < MODEL_TOKENS; guess->count++) {
        guess->tokens[guess->count] = guess->count + 1 < MODEL_TOKENS ? 5 : 99;
        guess->certainty[guess->count] = 255;
    }
}

static void a_model_guesses_for_few_sequences_what_their_texts_do_not(void **state) {
    (void)state;
    static const struct backend_ops ops = {
        .submit = submit, .wait = wait_for_step, .close = close_backend};
    static const int32_t prompt[] = {1, 2, 3}, end_tokens[] = {99};
    struct step step = {0};
    uint32_t calls = 0;
    struct backend backend = {.ops = &ops,
                              .self = &step,
                              .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                       .page_count = 64,
                                       .full_pages = 1,
                                       .rows_max = 100,
                                       .sequences_max = SEQUENCES,
                                       .context_tokens_max = 500,
                                       .vocab = 1000,
                                       .steps_max = 1}};
    const struct scheduler_options options = {.backend = &backend,
                                              .on_event = on_event,
                                              .draft_tokens_max = DRAFT_TOKENS_MAX,
                                              .guess = guess_fives,
                                              .guesser = &calls};
    struct scheduler *scheduler;
    assert_int_equal(scheduler_open(&scheduler, &options, NULL), OK);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const struct scheduler_request request = {
            .id = i,
            .prompt = prompt,
            .prompt_count = COUNT(prompt),
            .sampling = {.max_tokens = 60, .end_tokens = end_tokens, .end_token_count = 1}};
        assert_int_equal(scheduler_submit(scheduler, &request, NULL), OK);
    }
    assert_int_equal(scheduler_step(scheduler, NULL), OK); /* the prompts */
    assert_int_equal(scheduler_step(scheduler, NULL), OK);
    assert_int_equal(calls, 0); /* three are too many */
    scheduler_cancel(scheduler, 1);
    assert_int_equal(scheduler_step(scheduler, NULL), OK);
    assert_int_equal(calls, 2);
    assert_int_equal(step.row_count, 2 * MODEL_TOKENS); /* a guess is cut before its end token */
    struct scheduler_stats stats;
    scheduler_stats(scheduler, &stats);
    assert_int_equal(stats.accepted_tokens, 2 * (MODEL_TOKENS - 1));
    scheduler_close(scheduler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_unknown_rows_costs_what_its_neighbours_say),
        cmocka_unit_test(a_time_falls_at_once_and_rises_slowly),
        cmocka_unit_test(a_time_that_was_long_not_measured_is_forgotten),
        cmocka_unit_test(a_guess_follows_the_longest_and_latest_equal_run),
        cmocka_unit_test(a_guess_repeats_a_period_and_stops_before_an_end_token),
        cmocka_unit_test(chances_move_towards_what_was_seen),
        cmocka_unit_test(a_model_guesses_for_few_sequences_what_their_texts_do_not),
        cmocka_unit_test(guesses_take_only_the_logit_rows_that_no_sequence_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
