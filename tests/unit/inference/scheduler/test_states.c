/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include "scheduler/state.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 1000u
#define SEQUENCES 8u
#define IDS_MAX 64u

/* A backend of one step, which is seen, and the tokens that each request found. */
struct fixture {
    struct backend backend;
    struct scheduler_options options;
    struct scheduler *scheduler;
    const struct step *step;
    uint32_t cached[IDS_MAX];
};

static enum err fake_submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    ((struct fixture *)self)->step = step;
    return OK;
}

static enum err fake_wait(void *self, struct step_result *result, struct error *error) {
    (void)error;
    const struct fixture *fixture = self;
    for (uint32_t i = 0; i < fixture->step->logit_count; i++)
        result->samples[i] = (struct sample){.token = 1};
    return OK;
}

static void fake_close(void *self) {
    (void)self;
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct fixture *fixture = user;
    if (event->kind == SCHEDULER_STARTED) fixture->cached[event->id] = event->cached_tokens;
}

static void open_fixture(struct fixture *fixture, uint32_t rows_max, uint32_t places) {
    static const struct backend_ops ops = {
        .submit = fake_submit, .wait = fake_wait, .close = fake_close};
    memset(fixture, 0, sizeof *fixture);
    fixture->backend = (struct backend){.ops = &ops,
                                        .self = fixture,
                                        .caps = {.block_tokens = BACKEND_BLOCK_TOKENS,
                                                 .page_count = 200,
                                                 .full_pages = 1,
                                                 .rows_max = rows_max,
                                                 .sequences_max = SEQUENCES,
                                                 .context_tokens_max = 2000,
                                                 .vocab = VOCAB,
                                                 .state_places = places,
                                                 .steps_max = 1,
                                                 .copies_pages = true}};
    fixture->options = (struct scheduler_options){.backend = &fixture->backend,
                                                  .enable_prefix_caching = true,
                                                  .on_event = on_event,
                                                  .user = fixture};
    assert_int_equal(scheduler_open(&fixture->scheduler, &fixture->options, NULL), OK);
}

/* A prompt of three runs of tokens: each has a first token and a length. */
struct runs {
    struct {
        uint32_t first;
        uint32_t count;
    } at[3];
};

static void submit(struct fixture *fixture, uint64_t id, struct runs runs, uint32_t sequences,
                   bool is_urgent) {
    int32_t prompt[1000];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < runs.at[i].count; k++)
            prompt[count++] = (int32_t)(runs.at[i].first + k);
    const struct scheduler_request request = {.id = id,
                                              .prompt = prompt,
                                              .prompt_count = count,
                                              .sequence_count = sequences,
                                              .is_urgent = is_urgent,
                                              .sampling = {.max_tokens = 2}};
    assert_int_equal(scheduler_submit(fixture->scheduler, &request, NULL), OK);
}

static void submit_plain(struct fixture *fixture, uint64_t id, struct runs runs) {
    submit(fixture, id, runs, 1, false);
}

static void step(struct fixture *fixture) {
    assert_int_equal(scheduler_step(fixture->scheduler, NULL), OK);
    scheduler_check(fixture->scheduler);
}

static struct scheduler_stats run(struct fixture *fixture) {
    struct scheduler_stats stats;
    while (scheduler_has_work(fixture->scheduler)) step(fixture);
    scheduler_stats(fixture->scheduler, &stats);
    return stats;
}

/* Rows of one token more than the prompt that are computed for each answer of two tokens. */
#define ANSWER_ROWS 1u

static void prompts_with_one_beginning_compute_it_once(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, 32);
    for (uint32_t i = 0; i < 4; i++)
        submit_plain(&fixture, i, (struct runs){{{1, 41}, {100 + 30 * i, 25}}});
    step(&fixture);
    /* The first one has rows, and saves where the others leave it. They wait for its state. */
    assert_int_equal(fixture.step->sequence_count, 1);
    const struct step_sequence first = fixture.step->sequences[0];
    assert_int_equal(first.state_from, BACKEND_STATE_ZERO);
    assert_int_equal(first.row_count, 66);
    assert_int_equal(first.save_rows, 41);
    step(&fixture);
    assert_int_equal(fixture.step->sequence_count, 4);
    for (uint32_t i = 1; i < 4; i++) {
        const struct step_sequence *other = &fixture.step->sequences[i];
        assert_int_equal(other->state_from, first.save_to);
        assert_int_equal(other->kv_tokens, 41);
        assert_int_equal(other->row_count, 25);
        assert_int_equal(fixture.cached[i], 41);
        assert_int_equal(other->save_rows, 0);
    }
    assert_int_equal(fixture.step->copy_count, 3);
    const struct scheduler_stats stats = run(&fixture);
    assert_int_equal(stats.rows, 41 + 4 * (25 + ANSWER_ROWS));
    assert_int_equal(stats.state_saves, 1);
    assert_int_equal(stats.state_hits, 3);
    assert_int_equal(stats.states_stored, 1);
    scheduler_close(fixture.scheduler);
}

/* Two branches on the way of the first prompt: its rows end before the second one, since a step
 * saves one state of a sequence. */
static void nested_branches_are_saved_one_per_step(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, 32);
    submit_plain(&fixture, 0, (struct runs){{{1, 40}, {100, 40}, {200, 20}}});
    submit_plain(&fixture, 1, (struct runs){{{1, 40}, {100, 40}, {300, 20}}});
    submit_plain(&fixture, 2, (struct runs){{{1, 40}, {400, 20}}});
    step(&fixture);
    assert_int_equal(fixture.step->sequences[0].save_rows, 40);
    assert_int_equal(fixture.step->sequences[0].row_count, 79);
    step(&fixture);
    assert_int_equal(fixture.step->sequences[0].save_rows, 1);
    const struct scheduler_stats stats = run(&fixture);
    assert_int_equal(fixture.cached[1], 80);
    assert_int_equal(fixture.cached[2], 40);
    assert_int_equal(stats.rows, 40 + 40 + 3 * (20 + ANSWER_ROWS));
    assert_int_equal(stats.state_saves, 2);
    scheduler_close(fixture.scheduler);
}

/* Less than a block behind another state: two prompts are not worth one, many are. */
static void a_state_near_another_is_saved_for_many(void **state) {
    (void)state;
    struct fixture fixture;
    for (uint32_t many = 0; many < 2; many++) {
        open_fixture(&fixture, 256, 32);
        const uint32_t count = many ? 40 : 2;
        for (uint32_t i = 0; i < count; i++)
            submit_plain(&fixture, i, (struct runs){{{1, 50}, {200 + 17 * i, 17}}});
        submit_plain(&fixture, count, (struct runs){{{1, 40}, {900, 17}}});
        const struct scheduler_stats stats = run(&fixture);
        assert_int_equal(stats.state_saves, many ? 2 : 1);
        assert_int_equal(fixture.cached[1], many ? 50 : 40);
        scheduler_close(fixture.scheduler);
    }
}

static void equal_prompts_begin_at_their_last_whole_block(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, 32);
    submit(&fixture, 0, (struct runs){{{1, 40}}}, 3, false);
    const struct scheduler_stats stats = run(&fixture);
    assert_int_equal(stats.rows, 32 + 3 * (8 + ANSWER_ROWS));
    submit_plain(&fixture, 1, (struct runs){{{1, 40}}});
    run(&fixture);
    assert_int_equal(fixture.cached[1], 32);
    scheduler_close(fixture.scheduler);
}

/* No prompt waits when one of the others begins: the second shows where the two branch, and the
 * third begins there. */
static void a_branch_is_saved_when_it_is_met_again(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, 32);
    for (uint32_t i = 0; i < 3; i++) {
        submit_plain(&fixture, i, (struct runs){{{1, 41}, {100 + 30 * i, 25}}});
        run(&fixture);
    }
    assert_int_equal(fixture.cached[1], 0);
    assert_int_equal(fixture.cached[2], 41);
    scheduler_close(fixture.scheduler);
}

static void the_next_turn_of_a_chat_begins_where_the_last_prompt_ended(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, 32);
    submit(&fixture, 0, (struct runs){{{1, 41}}}, 1, true);
    run(&fixture);
    submit(&fixture, 1, (struct runs){{{1, 41}, {600, 30}}}, 1, true);
    run(&fixture);
    assert_int_equal(fixture.cached[1], 32);
    scheduler_close(fixture.scheduler);
}

/* A beginning of several steps: the second prompt waits until its state is saved. */
static void a_prompt_waits_for_a_state_that_is_coming(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 16, 32);
    submit_plain(&fixture, 0, (struct runs){{{1, 64}, {100, 8}}});
    submit_plain(&fixture, 1, (struct runs){{{1, 64}, {200, 8}}});
    const struct scheduler_stats stats = run(&fixture);
    assert_int_equal(fixture.cached[1], 64);
    assert_int_equal(stats.rows, 64 + 2 * (8 + ANSWER_ROWS));
    scheduler_close(fixture.scheduler);
}

/* Two places to spare for three states of one path. */
static void a_path_loses_its_longest_state_first(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, SEQUENCES + 2);
    submit_plain(&fixture, 0, (struct runs){{{1, 64}, {100, 64}, {300, 20}}});
    submit_plain(&fixture, 1, (struct runs){{{1, 64}, {100, 64}, {400, 20}}});
    submit_plain(&fixture, 2, (struct runs){{{1, 64}, {500, 20}}});
    run(&fixture);
    /* All places are wanted by sequences that share nothing. */
    for (uint32_t i = 0; i < SEQUENCES; i++)
        submit_plain(&fixture, 10 + i, (struct runs){{{20 + 100 * i, 20}}});
    struct scheduler_stats stats = run(&fixture);
    assert_int_equal(stats.states_stored, 2);
    /* One more state is saved while all sequences run. */
    for (uint32_t i = 0; i < SEQUENCES; i++)
        submit_plain(&fixture, 20 + i, (struct runs){{{700, 32}, {30 + 50 * i, 20}}});
    stats = run(&fixture);
    assert_int_equal(stats.state_evictions, 1);
    submit_plain(&fixture, 40, (struct runs){{{1, 64}, {100, 64}, {600, 20}}});
    run(&fixture);
    assert_int_equal(fixture.cached[40], 64);
    scheduler_close(fixture.scheduler);
}

static void without_a_place_to_spare_nothing_is_saved(void **state) {
    (void)state;
    struct fixture fixture;
    open_fixture(&fixture, 256, SEQUENCES);
    for (uint32_t i = 0; i < 4; i++)
        submit_plain(&fixture, i, (struct runs){{{1, 41}, {100 + 30 * i, 25}}});
    const struct scheduler_stats stats = run(&fixture);
    assert_int_equal(stats.rows, 4 * (66 + ANSWER_ROWS));
    assert_int_equal(stats.state_saves, 0);
    scheduler_close(fixture.scheduler);
    fixture.backend.caps.state_places = SEQUENCES - 1;
    struct error error = {0};
    assert_int_equal(scheduler_open(&fixture.scheduler, &fixture.options, &error), ERR_INVALID);
    assert_string_equal(error.text, "backend: 7 places for the states of 8 sequences");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_with_one_beginning_compute_it_once),
        cmocka_unit_test(nested_branches_are_saved_one_per_step),
        cmocka_unit_test(a_state_near_another_is_saved_for_many),
        cmocka_unit_test(equal_prompts_begin_at_their_last_whole_block),
        cmocka_unit_test(a_branch_is_saved_when_it_is_met_again),
        cmocka_unit_test(the_next_turn_of_a_chat_begins_where_the_last_prompt_ended),
        cmocka_unit_test(a_prompt_waits_for_a_state_that_is_coming),
        cmocka_unit_test(a_path_loses_its_longest_state_first),
        cmocka_unit_test(without_a_place_to_spare_nothing_is_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
