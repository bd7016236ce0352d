/* SPDX-License-Identifier: Apache-2.0 */

/* Steps of a backend that takes as long for any number of rows as for the next multiple of 8, from
 * 32 to 128 rows. */

#include "scheduler/scheduler.h"

#include "scheduler/state.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MULTIPLE 8u
#define VOCAB 1000u
#define IDS_MAX 64u
#define TOKENS_MAX 64u

struct fixture {
    struct backend backend;
    struct scheduler *scheduler;
    struct step newest; /* as submitted last; its arrays are the scheduler's */
    int32_t sampled[2][TOKENS_MAX * IDS_MAX];
    uint32_t sampled_counts[2];
    uint32_t under_way;
    uint32_t whole;  /* steps of 32 to 127 rows with a whole multiple */
    uint32_t beyond; /* and such with more */
    int32_t tokens[IDS_MAX][TOKENS_MAX];
    uint32_t counts[IDS_MAX]; /* of tokens */
    uint32_t finished;
};

/* The token follows from the prompt and from its place. */
static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    uint32_t at = fixture->under_way++;
    fixture->newest = *step;
    fixture->sampled_counts[at] = step->logit_count;
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        fixture->sampled[at][i] =
            row->scored
                ? *row->scored
                : (int32_t)((uint32_t)row->prompt[0] * 7 + row->prompt_count + row->counter) %
                      (int32_t)VOCAB;
    }
    if (step->row_count < 4 * MULTIPLE || step->row_count >= 16 * MULTIPLE) return OK;
    fixture->whole += step->row_count % MULTIPLE == 0;
    fixture->beyond += step->row_count % MULTIPLE > 0;
    return OK;
}

static enum err sample(void *self, uint64_t number, const struct logit_row *rows, uint32_t count,
                       struct error *error) {
    (void)self;
    (void)number;
    (void)rows;
    (void)count;
    (void)error;
    return OK;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct fixture *fixture = self;
    for (uint32_t i = 0; i < fixture->sampled_counts[0]; i++)
        result->samples[i] = (struct sample){.token = fixture->sampled[0][i]};
    memcpy(fixture->sampled[0], fixture->sampled[1], sizeof fixture->sampled[0]);
    fixture->sampled_counts[0] = fixture->sampled_counts[1];
    fixture->under_way--;
    return OK;
}

static void close_backend(void *self) {
    (void)self;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct fixture *fixture = user;
    if (event->kind == SCHEDULER_TOKEN)
        fixture->tokens[event->id][fixture->counts[event->id]++] = event->token;
    fixture->finished += event->kind == SCHEDULER_FINISHED;
}

static void open_fixture(struct fixture *fixture, uint32_t multiple, uint32_t steps_max) {
    static const struct backend_ops ops = {
        .submit = submit, .sample = sample, .wait = wait_for_step, .close = close_backend};
    memset(fixture, 0, sizeof *fixture);
    fixture->backend = (struct backend){.ops = &ops,
                                        .self = fixture,
                                        .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                                 .page_count = 500,
                                                 .full_pages = 1,
                                                 .rows_max = 200,
                                                 .sequences_max = 12,
                                                 .context_tokens_max = 500,
                                                 .vocab = VOCAB,
                                                 .steps_max = steps_max,
                                                 .rows_multiple = multiple}};
    const struct scheduler_options options = {.backend = &fixture->backend,
                                              .enable_prefix_caching = true,
                                              .on_event = on_event,
                                              .user = fixture};
    assert_int_equal(scheduler_open(&fixture->scheduler, &options, NULL), OK);
}

/* Prompts of different requests begin differently, in the order of their ids. */
static struct scheduler_request request_of(uint64_t id, uint32_t prompt_count) {
    static int32_t prompt[400];
    for (uint32_t i = 0; i < prompt_count; i++)
        prompt[i] = (int32_t)((uint32_t)id * 10 + i) % (int32_t)VOCAB;
    return (struct scheduler_request){
        .id = id, .prompt = prompt, .prompt_count = prompt_count, .sampling = {.max_tokens = 20}};
}

static void submit_request(struct fixture *fixture, const struct scheduler_request *request) {
    assert_int_equal(scheduler_submit(fixture->scheduler, request, NULL), OK);
}

static void submit_plain(struct fixture *fixture, uint64_t id, uint32_t prompt_count) {
    const struct scheduler_request request = request_of(id, prompt_count);
    submit_request(fixture, &request);
}

static bool begin(struct fixture *fixture) {
    bool started;
    assert_int_equal(scheduler_begin(fixture->scheduler, &started, NULL), OK);
    scheduler_check(fixture->scheduler);
    return started;
}

static void end(struct fixture *fixture) {
    assert_int_equal(scheduler_end(fixture->scheduler, NULL), OK);
    scheduler_check(fixture->scheduler);
}

/* Runs the next step, and returns its rows. */
static uint32_t step_rows(struct fixture *fixture) {
    assert_true(begin(fixture));
    end(fixture);
    return fixture->newest.row_count;
}

/* A scheduler in which request 1 decodes. */
static void open_decoding(struct fixture *fixture, uint32_t steps_max) {
    open_fixture(fixture, MULTIPLE, steps_max);
    submit_plain(fixture, 1, 10);
    assert_int_equal(step_rows(fixture), 10);
}

static void rows_above_the_last_multiple_wait_for_the_next_step(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    submit_plain(&fixture, 2, 60);
    assert_int_equal(step_rows(&fixture), 56); /* of 61 */
    assert_int_equal(fixture.newest.logit_count, 1);
    assert_int_equal(fixture.counts[2], 0);
    assert_int_equal(step_rows(&fixture), 1 + 5);
    assert_int_equal(fixture.newest.logit_count, 2);
    assert_int_equal(fixture.newest.sequences[1].kv_tokens, 55);
    assert_int_equal(fixture.counts[2], 1);
    /* A single row is one of decode afterwards. */
    submit_plain(&fixture, 3, 55);
    assert_int_equal(step_rows(&fixture), 56); /* of 57 */
    assert_int_equal(step_rows(&fixture), 3);
    assert_int_equal(fixture.counts[3], 1);
    scheduler_close(fixture.scheduler);
}

static void prompts_that_have_a_step_to_themselves_are_added_whole(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, MULTIPLE, 1);
    submit_plain(&fixture, 1, 61);
    assert_int_equal(step_rows(&fixture), 61);
    scheduler_cancel(fixture.scheduler, 1);
    submit_plain(&fixture, 2, 50);
    submit_plain(&fixture, 3, 41);
    assert_int_equal(step_rows(&fixture), 91);
    scheduler_close(fixture.scheduler);
}

static void rows_held_back_come_before_those_of_the_next_prompt(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    submit_plain(&fixture, 2, 38);
    submit_plain(&fixture, 3, 40);
    assert_int_equal(step_rows(&fixture), 72); /* of 79 */
    assert_int_equal(fixture.newest.sequence_count, 3);
    assert_int_equal(fixture.newest.sequences[1].row_count, 38);
    assert_int_equal(fixture.newest.sequences[2].row_first, 39);
    assert_int_equal(fixture.newest.sequences[2].row_count, 33);
    assert_int_equal(fixture.newest.positions[38], 37);
    assert_int_equal(fixture.newest.logit_count, 2);
    assert_int_equal(fixture.newest.logit_rows[1].row, 38);
    assert_int_equal(fixture.counts[2], 1);
    struct scheduler_stats stats;
    scheduler_stats(fixture.scheduler, &stats);
    assert_int_equal(stats.prefill_rows, 10 + 38 + 33);
    assert_int_equal(step_rows(&fixture), 2 + 7);
    scheduler_close(fixture.scheduler);
}

static void a_prompt_shorter_than_what_is_above_the_multiple_is_added_whole(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    submit_plain(&fixture, 2, 33);
    submit_plain(&fixture, 3, 4);
    assert_int_equal(step_rows(&fixture), 38);
    assert_int_equal(fixture.counts[2] + fixture.counts[3], 2);
    scheduler_close(fixture.scheduler);
}

static void outside_the_range_of_the_backend_nothing_is_held_back(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    submit_plain(&fixture, 2, 30);
    assert_int_equal(step_rows(&fixture), 31);
    submit_plain(&fixture, 3, 127);
    assert_int_equal(step_rows(&fixture), 129);
    submit_plain(&fixture, 4, 124);
    assert_int_equal(step_rows(&fixture), 120); /* of 127 */
    scheduler_close(fixture.scheduler);
}

static void rows_of_urgent_and_of_scored_prompts_are_not_held_back(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    struct scheduler_request request = request_of(2, 60);
    request.is_urgent = true;
    submit_request(&fixture, &request);
    assert_int_equal(step_rows(&fixture), 61);
    scheduler_cancel(fixture.scheduler, 2);
    request = request_of(3, 60);
    request.sampling.prompt_logprobs = true;
    submit_request(&fixture, &request);
    assert_int_equal(step_rows(&fixture), 61);
    assert_int_equal(fixture.newest.logit_count, 61);
    /* Those of a prompt before it come first. */
    submit_plain(&fixture, 4, 38);
    request = request_of(5, 20);
    request.sampling.prompt_logprobs = true;
    submit_request(&fixture, &request);
    assert_int_equal(step_rows(&fixture), 2 + 38 + 20);
    assert_int_equal(fixture.newest.logit_count, 2 + 1 + 20);
    scheduler_close(fixture.scheduler);
}

static void no_prefix_is_computed_twice_because_its_end_was_held_back(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    struct scheduler_request request = request_of(2, 50);
    request.sequence_count = 3;
    submit_request(&fixture, &request);
    /* 49 of 50 rows end at a multiple minus one block; three whole blocks are shared. */
    assert_int_equal(step_rows(&fixture), 1 + 50 + 2 + 2);
    scheduler_close(fixture.scheduler);
}

static void who_is_cancelled_takes_its_rows_along(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 1);
    submit_plain(&fixture, 2, 60);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 56);
    scheduler_cancel(fixture.scheduler, 2);
    assert_int_equal(fixture.finished, 0);
    end(&fixture);
    assert_int_equal(fixture.finished, 1);
    assert_int_equal(step_rows(&fixture), 1);
    assert_int_equal(fixture.counts[2], 0);
    scheduler_close(fixture.scheduler);
}

static void the_second_step_under_way_has_the_rows_that_the_first_one_lacks(void **state) {
    (void)state;
    struct fixture fixture;
    open_decoding(&fixture, 2);
    submit_plain(&fixture, 2, 60);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 56);
    assert_true(begin(&fixture));
    assert_int_equal(fixture.newest.row_count, 1 + 5);
    assert_true(backend_is_pending(fixture.newest.tokens[0]));
    assert_int_equal(fixture.newest.tokens[1], 20 + 55);
    end(&fixture);
    assert_int_equal(fixture.counts[2], 0);
    end(&fixture);
    assert_int_equal(fixture.counts[2], 1);
    scheduler_close(fixture.scheduler);
}

static void run_all(struct fixture *fixture, uint32_t multiple, uint32_t steps_max) {
    open_fixture(fixture, multiple, steps_max);
    for (uint64_t id = 0; id < IDS_MAX; id++) {
        struct scheduler_request request = request_of(id, 5 + (uint32_t)(id * 37 % 180));
        request.sampling.max_tokens = 1 + (uint32_t)(id * 13 % 60);
        submit_request(fixture, &request);
    }
    while (scheduler_has_work(fixture->scheduler)) {
        while (scheduler_under_way(fixture->scheduler) < steps_max && begin(fixture)) {
        }
        end(fixture);
    }
    assert_int_equal(fixture->finished, IDS_MAX);
    scheduler_close(fixture->scheduler);
}

static void tokens_are_those_of_steps_without_a_multiple(void **state) {
    (void)state;
    for (uint32_t steps_max = 1; steps_max <= 2; steps_max++) {
        static struct fixture without, with;
        run_all(&without, 0, steps_max);
        run_all(&with, MULTIPLE, steps_max);
        assert_memory_equal(with.counts, without.counts, sizeof with.counts);
        assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
        assert_true(with.whole > without.whole && with.beyond == 0 && without.beyond > 0);
    }
}

static void a_multiple_out_of_range_is_refused(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, MULTIPLE, 1);
    scheduler_close(fixture.scheduler);
    fixture.backend.caps.rows_multiple = 65537;
    const struct scheduler_options options = {.backend = &fixture.backend};
    struct error error;
    assert_int_equal(scheduler_open(&fixture.scheduler, &options, &error), ERR_INVALID);
    assert_string_equal(error.text, "backend: rows_multiple 65537 is outside 0..65536");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_above_the_last_multiple_wait_for_the_next_step),
        cmocka_unit_test(prompts_that_have_a_step_to_themselves_are_added_whole),
        cmocka_unit_test(rows_held_back_come_before_those_of_the_next_prompt),
        cmocka_unit_test(a_prompt_shorter_than_what_is_above_the_multiple_is_added_whole),
        cmocka_unit_test(outside_the_range_of_the_backend_nothing_is_held_back),
        cmocka_unit_test(rows_of_urgent_and_of_scored_prompts_are_not_held_back),
        cmocka_unit_test(no_prefix_is_computed_twice_because_its_end_was_held_back),
        cmocka_unit_test(who_is_cancelled_takes_its_rows_along),
        cmocka_unit_test(the_second_step_under_way_has_the_rows_that_the_first_one_lacks),
        cmocka_unit_test(tokens_are_those_of_steps_without_a_multiple),
        cmocka_unit_test(a_multiple_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
