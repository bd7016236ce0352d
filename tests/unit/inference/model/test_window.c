/* SPDX-License-Identifier: Apache-2.0 */

/* Models whose layers see a window only, under the scheduler, in a cache so small that pages go
 * from one sequence to the next as their windows pass. */
#include "model/model.h"
#include "program/kv_layout.h"
#include "scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define REQUESTS 9u
#define PROMPT_MAX 120u
#define GENERATED 70u

struct text {
    uint32_t count;
    int32_t ids[GENERATED];
};

struct run {
    struct text texts[REQUESTS];
    struct scheduler_stats stats;
    uint32_t pages_peak;
};

/* A few beginnings that several share, then words of their own. */
static uint32_t make_prompt(uint32_t number, uint32_t vocab, int32_t ret_prompt[PROMPT_MAX]) {
    static const uint32_t counts[] = {5, 49, 90, 64, 33, 117, 80, 97, 16};
    for (uint32_t i = 0; i < counts[number]; i++) {
        uint32_t own = i < 48 ? number % 2 : 7 + number;
        ret_prompt[i] = (int32_t)(3 + (i * 31 + own * 77) % (vocab - 3));
    }
    return counts[number];
}

static void on_event(void *user, const struct scheduler_event *event) {
    struct run *run = user;
    struct text *text = &run->texts[event->id];
    if (event->kind == SCHEDULER_TOKEN) text->ids[text->count++] = event->token;
}

static struct model *open_model(const char *file, uint32_t block_count) {
    char path[512];
    struct model *model;
    struct error error = {0};
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/tiny/%s", shared ? shared : ".", file);
    struct model_options options = {
        .threads = 2, .block_count = block_count, .rows_max = 50, .context_max = 256};
    enum err err = model_open(&model, path, &options, &error);
    if (err == ERR_NOT_FOUND) skip();
    if (err != OK) print_message("# %s\n", error.text);
    assert_int_equal(err, OK);
    return model;
}

static void submit(struct scheduler *scheduler, uint32_t number, uint32_t vocab) {
    int32_t prompt[PROMPT_MAX];
    struct error error;
    struct scheduler_request request = {
        .id = number,
        .prompt = prompt,
        .prompt_count = make_prompt(number, vocab, prompt),
        .sampling = {.max_tokens = GENERATED, .ignore_eos = true},
    };
    assert_int_equal(scheduler_submit(scheduler, &request, &error), OK);
}

static void drain(struct scheduler *scheduler, struct run *run) {
    struct error error;
    while (scheduler_has_work(scheduler)) {
        assert_int_equal(scheduler_step(scheduler, &error), OK);
        scheduler_check(scheduler);
        scheduler_stats(scheduler, &run->stats);
        if (run->stats.pages_used > run->pages_peak) run->pages_peak = run->stats.pages_used;
    }
}

/* All texts, one after the other or all at once. */
static void run_all(struct model *model, bool one_by_one, struct run *ret_run) {
    struct scheduler *scheduler;
    struct error error;
    *ret_run = (struct run){0};
    struct scheduler_options options = {.backend = model_backend(model),
                                        .enable_prefix_caching = !one_by_one,
                                        .on_event = on_event,
                                        .user = ret_run};
    assert_int_equal(scheduler_open(&scheduler, &options, &error), OK);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        submit(scheduler, i, model_backend(model)->caps.vocab);
        if (one_by_one) drain(scheduler, ret_run);
    }
    drain(scheduler, ret_run);
    /* Runs again, with the prefixes that the cache has kept. */
    struct run again = *ret_run;
    for (uint32_t i = 0; i < REQUESTS; i++) ret_run->texts[i].count = 0;
    for (uint32_t i = REQUESTS; i-- > 0;) submit(scheduler, i, model_backend(model)->caps.vocab);
    drain(scheduler, ret_run);
    assert_memory_equal(again.texts, ret_run->texts, sizeof again.texts);
    scheduler_close(scheduler);
}

static void check_model(const char *file, uint32_t full_groups, uint32_t window_groups) {
    static struct run roomy, tight;
    struct model *model = open_model(file, 400);
    const struct backend_caps *caps = &model_backend(model)->caps;
    assert_int_equal(caps->full_pages, full_groups);
    assert_int_equal(caps->window_pages, window_groups);
    assert_int_equal(caps->window_tokens, 16);
    run_all(model, true, &roomy);
    assert_int_equal(roomy.stats.preemptions, 0);
    assert_int_equal(roomy.stats.prefix_hit_tokens, 0);
    model_close(model);

    model = open_model(file, 16);
    run_all(model, false, &tight);
    assert_true(tight.stats.prefix_hit_tokens > 0);
    assert_true(tight.stats.evictions > 0 || tight.stats.preemptions > 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        assert_int_equal(tight.texts[i].count, GENERATED);
        assert_memory_equal(tight.texts[i].ids, roomy.texts[i].ids, sizeof roomy.texts[i].ids);
    }
    model_close(model);
}

static void pages_of_passed_windows_serve_others_gemma3(void **state) {
    (void)state;
    check_model("gemma3/model-bf16.gguf", 1, 6);
}

static void pages_of_passed_windows_serve_others_mistral(void **state) {
    (void)state;
    check_model("mistral", 0, 1);
}

/* A long text alone holds whole blocks of the layers that see all, and two or three of the others.
 */
static void a_sequence_holds_its_window_only(void **state) {
    (void)state;
    static struct run run;
    struct scheduler *scheduler;
    struct error error;
    struct model *model = open_model("gemma3/model-bf16.gguf", 400);
    const struct backend_caps *caps = &model_backend(model)->caps;
    struct scheduler_options options = {.backend = model_backend(model), .user = &run};
    run = (struct run){0};
    assert_int_equal(scheduler_open(&scheduler, &options, &error), OK);
    submit(scheduler, 5, caps->vocab); /* 117 tokens, 50 rows a step */
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(scheduler_step(scheduler, &error), OK);
    scheduler_stats(scheduler, &run.stats);
    /* Positions 102 to 117 are seen by the next row: blocks 6 and 7 of 8. */
    assert_int_equal(run.stats.pages_used, 8 * caps->full_pages + 2 * caps->window_pages);
    scheduler_cancel(scheduler, 5);
    scheduler_close(scheduler);
    model_close(model);
}

static void a_context_within_the_window_has_one_group(void **state) {
    (void)state;
    struct model_options options = {.threads = 1, .context_max = 30};
    char path[512];
    struct model *model;
    struct error error = {0};
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/tiny/gemma3/model-bf16.gguf", shared ? shared : ".");
    enum err err = model_open(&model, path, &options, &error);
    if (err == ERR_NOT_FOUND) skip();
    assert_int_equal(err, OK);
    assert_int_equal(model_backend(model)->caps.full_pages, 1);
    assert_int_equal(model_backend(model)->caps.window_pages, 0);
    model_close(model);
}

/* Gemma 3 of 4B and 27B, and a model whose layers all have the window. */
static void groups_waste_little(void **state) {
    (void)state;
    static const struct {
        uint32_t layers, period, layers_each, full, window;
    } cases[] = {{34, 6, 5, 1, 6}, {62, 6, 5, 2, 11}, {26, 6, 2, 2, 11}, {32, 0, 32, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config = {.kv_heads = 1,
                                      .head_dim = 8,
                                      .architecture = config_architecture(STR("gemma3")),
                                      .layers = cases[i].layers};
        bool is_local[CONFIG_LAYERS_MAX];
        config_local_layers(config.layers, 0, cases[i].period, is_local);
        config_set_windows(&config, 1024, is_local);
        struct kv_layout layout = kv_layout_of(&config, 8192);
        assert_int_equal(layout.layers_each, cases[i].layers_each);
        assert_int_equal(layout.full_groups, cases[i].full);
        assert_int_equal(layout.window_groups, cases[i].window);
        for (uint32_t j = 0; j < config.layers; j++) {
            assert_true(layout.place[j] < layout.layers_each);
            assert_int_equal(layout.group[j] >= layout.full_groups,
                             config_layer_is_local(&config, j));
            for (uint32_t k = 0; k < j; k++)
                assert_true(layout.group[j] != layout.group[k] ||
                            layout.place[j] != layout.place[k]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_passed_windows_serve_others_gemma3),
        cmocka_unit_test(pages_of_passed_windows_serve_others_mistral),
        cmocka_unit_test(a_sequence_holds_its_window_only),
        cmocka_unit_test(a_context_within_the_window_has_one_group),
        cmocka_unit_test(groups_waste_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
