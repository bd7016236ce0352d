/* SPDX-License-Identifier: Apache-2.0 */
/* A draft model of real arithmetic: what it guesses is what it would generate alone, whatever it
 * was asked before. */
#include "model/draft_model.h"

#include "backend_driver.h"
#include "base/rng.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CONTEXT 200u
#define BLOCKS ((CONTEXT + BACKEND_BLOCK_TOKENS - 1) / BACKEND_BLOCK_TOKENS)
#define ROOM 5u
#define SEQUENCES 3u /* one more than places */
#define TURNS 60

struct text {
    int32_t ids[CONTEXT];
    uint32_t count, prompt_count;
};

static struct model *open_tiny(const char *file) {
    char path[512];
    struct model *model;
    struct error error = {0};
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/tiny/%s", shared ? shared : ".", file);
    const struct model_options options = {.threads = 2,
                                          .block_count = SCHEDULER_GUESSED_MAX * BLOCKS,
                                          .rows_max = 32,
                                          .context_max = CONTEXT};
    enum err err = model_open(&model, path, &options, &error);
    if (err == ERR_NOT_FOUND) skip();
    if (err != OK) print_message("# %s\n", error.text);
    assert_int_equal(err, OK);
    return model;
}

static int32_t token(struct rng *rng, uint32_t vocab) {
    return 3 + (int32_t)rng_below(rng, vocab - 3);
}

static void ask(struct draft_model *drafts, uint64_t sequence, const struct text *text,
                struct scheduler_guess *ret_guess) {
    *ret_guess = (struct scheduler_guess){.sequence = sequence,
                                          .prompt = text->ids,
                                          .prompt_count = text->prompt_count,
                                          .generated = text->ids + text->prompt_count,
                                          .generated_count = text->count - text->prompt_count,
                                          .room = ROOM};
    draft_model_guess(drafts, ret_guess);
    assert_true(ret_guess->count <= ROOM && ret_guess->ns >= 0);
}

/* The same by a model that was never asked: its calls until it knows the text, then its guess. */
static void ask_new(const struct model *model, const struct text *text,
                    struct scheduler_guess *ret_guess) {
    struct draft_model *drafts;
    struct error error;
    assert_int_equal(draft_model_open(&drafts, model_backend(model), &error), OK);
    for (uint32_t known = 0; known < text->count; known += 32) ask(drafts, 1, text, ret_guess);
    draft_model_close(drafts);
}

static void check_equal(const struct scheduler_guess *one, const struct scheduler_guess *other) {
    assert_int_equal(one->count, other->count);
    for (uint32_t i = 0; i < one->count; i++) {
        assert_int_equal(one->tokens[i], other->tokens[i]);
        assert_int_equal(one->certainty[i], other->certainty[i]);
    }
}

/* The text goes on as guessed, or otherwise from some token on. */
static void go_on(struct text *text, const struct scheduler_guess *guess, struct rng *rng,
                  uint32_t vocab) {
    const uint32_t right = guess->count > 0 ? (uint32_t)rng_below(rng, guess->count + 1) : 0;
    for (uint32_t i = 0; i < right && text->count < CONTEXT - ROOM; i++)
        text->ids[text->count++] = guess->tokens[i];
    if (text->count < CONTEXT - ROOM) text->ids[text->count++] = token(rng, vocab);
}

static uint64_t check_turns(const char *file) {
    struct model *model = open_tiny(file), *fresh = open_tiny(file);
    struct draft_model *drafts;
    struct error error;
    struct rng rng = {0};
    rng.state = 77;
    const uint32_t vocab = model_backend(model)->caps.vocab;
    assert_int_equal(draft_model_open(&drafts, model_backend(model), &error), OK);
    struct text texts[SEQUENCES] = {0};
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        texts[i].count = texts[i].prompt_count = 10 + 9 * i;
        for (uint32_t k = 0; k < texts[i].count; k++) texts[i].ids[k] = token(&rng, vocab);
    }
    uint64_t guessed = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const uint32_t i = (uint32_t)rng_below(&rng, turn < TURNS / 2 ? 2 : SEQUENCES);
        struct scheduler_guess guess, wanted;
        ask_new(fresh, &texts[i], &wanted);
        for (uint32_t known = 0; known < texts[i].count; known += 32)
            ask(drafts, 10 + i, &texts[i], &guess);
        check_equal(&guess, &wanted);
        guessed += guess.count;
        go_on(&texts[i], &guess, &rng, vocab);
    }
    draft_model_close(drafts);
    model_close(fresh);
    model_close(model);
    return guessed;
}

static void guesses_do_not_depend_on_what_was_asked_before(void **state) {
    (void)state;
    uint64_t guessed = check_turns("llama3/model-q8_0.gguf");
    guessed += check_turns("gemma3/model-q8_0.gguf");
    print_message("# %llu tokens guessed\n", (unsigned long long)guessed);
    assert_true(guessed > 0);
}

static void a_guess_is_what_the_model_generates(void **state) {
    (void)state;
    struct model *model = open_tiny("llama3/model-q8_0.gguf");
    const uint32_t vocab = model_backend(model)->caps.vocab;
    struct rng rng = {0};
    struct error error;
    uint32_t guessed = 0;
    rng.state = 5;
    for (int turn = 0; turn < 20; turn++) {
        struct text text = {.count = 20, .prompt_count = 20};
        for (uint32_t k = 0; k < text.count; k++) text.ids[k] = token(&rng, vocab);
        struct scheduler_guess guess;
        ask_new(model, &text, &guess);
        struct driver_run run = {.prompt = text.ids,
                                 .prompt_count = text.count,
                                 .sampling = {.max_tokens = ROOM},
                                 .stop = -1};
        assert_int_equal(drive(model_backend(model), &run, 1, BLOCKS, &error), OK);
        assert_memory_equal(guess.tokens, run.generated, guess.count * sizeof *guess.tokens);
        guessed += guess.count;
    }
    assert_true(guessed > 0);
    model_close(model);
}

static void a_text_beyond_the_context_gets_no_guess(void **state) {
    (void)state;
    struct model *model = open_tiny("llama3/model-q8_0.gguf");
    struct draft_model *drafts;
    struct error error;
    assert_int_equal(draft_model_open(&drafts, model_backend(model), &error), OK);
    static int32_t ids[CONTEXT + 1];
    for (uint32_t i = 0; i <= CONTEXT; i++) ids[i] = 3 + (int32_t)i % 50;
    struct scheduler_guess guess = {
        .sequence = 1, .prompt = ids, .prompt_count = CONTEXT + 1, .room = ROOM};
    draft_model_guess(drafts, &guess);
    assert_int_equal(guess.count, 0);
    /* At the end of the context there is room for one key and no more. */
    for (uint32_t known = 0; known < CONTEXT; known += 32) {
        guess = (struct scheduler_guess){
            .sequence = 2, .prompt = ids, .prompt_count = CONTEXT, .room = ROOM};
        draft_model_guess(drafts, &guess);
    }
    assert_true(guess.count <= 1);
    draft_model_close(drafts);
    model_close(model);
}

static void a_model_that_cannot_take_a_guess_back_is_refused(void **state) {
    (void)state;
    struct draft_model *drafts;
    struct error error;
    struct backend backend = {.caps = {.page_count = 10, .full_pages = 1, .steps_max = 2}};
    assert_int_equal(draft_model_open(&drafts, &backend, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "on the CPU only"));
    backend.caps.steps_max = 1;
    backend.caps.state_places = 4;
    assert_int_equal(draft_model_open(&drafts, &backend, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "recurrent"));
    backend.caps.state_places = 0;
    backend.caps.page_count = SCHEDULER_GUESSED_MAX - 1;
    assert_int_equal(draft_model_open(&drafts, &backend, &error), ERR_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_do_not_depend_on_what_was_asked_before),
        cmocka_unit_test(a_guess_is_what_the_model_generates),
        cmocka_unit_test(a_text_beyond_the_context_gets_no_guess),
        cmocka_unit_test(a_model_that_cannot_take_a_guess_back_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
