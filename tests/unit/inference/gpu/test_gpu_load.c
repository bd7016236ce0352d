/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define STUB(kind) STUBS "/stub-" kind ".so"
#define GIB ((uint64_t)1 << 30)

static enum err load(struct loaded_gpu *ret_loaded, const char *gpu, const char *plugin,
                     struct error *error) {
    const struct gpu_texts texts = {.device = str_from(gpu), .plugin = str_from(plugin)};
    struct gpu_settings settings;
    enum err err = gpu_settings_read(&settings, &texts, error);
    if (err == OK) err = gpu_load(ret_loaded, &settings, error);
    if (err == OK) err = gpu_load_open(ret_loaded, error);
    return err;
}

/* Each situation: `auto` leaves the CPU with the sentence, `cuda` fails with it. */
static void expect_reason(const char *plugin, const char *part) {
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "auto", plugin, &error), OK);
    assert_null(loaded.table);
    assert_null(loaded.gpu);
    if (!strstr(loaded.reason, part)) fail_msg("'%s' lacks '%s'", loaded.reason, part);
    assert_true(loaded.is_surprising);
    assert_int_equal(load(&loaded, "cuda", plugin, &error), ERR_UNAVAILABLE);
    if (!strstr(error.text, part)) fail_msg("'%s' lacks '%s'", error.text, part);
}

static void each_bad_plugin_has_its_sentence(void **state) {
    (void)state;
    expect_reason("/nonexistent/x.so", "cannot load the plugin: /nonexistent/x.so");
    expect_reason("/nonexistent/x.so",
                  "; install the plugin that was built with this quern, or run "
                  "with --device cpu");
    expect_reason(STUB("symbol"), "is no plugin: it lacks quern_gpu_table");
    char other[80];
    (void)snprintf(other, sizeof other, "is of another build: its interface is %u, not %u",
                   GPU_ABI + 1, GPU_ABI);
    expect_reason(STUB("abi"), other);
    expect_reason(STUB("bytes"), "is of another build: its table has");
    expect_reason(STUB("version"), "is of another build: quern 0.0.1, not " QUERN_VERSION);
}

static void each_bad_machine_has_its_sentence(void **state) {
    (void)state;
    expect_reason(STUB("driver"), "libcuda.so.1 cannot be loaded; install NVIDIA's driver");
    expect_reason(STUB("empty"), "this machine has no stub GPU");
    expect_reason(STUB("refused"), "GPU 0, Stub 0, cannot be used: it has compute capability 6.1");
    expect_reason(STUB("library"), "libcublasLt.so cannot be loaded");
}

static void without_a_plugin_the_sentence_says_how_to_get_one(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "", "", &error), OK);
    assert_null(loaded.table);
    assert_non_null(strstr(loaded.reason, "this quern has no libquern-cuda.so next to it"));
    assert_int_equal(load(&loaded, "cuda", "", &error), ERR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "`make cuda` builds it"));
}

static void the_cpu_loads_no_plugin(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "cpu", STUB("good"), &error), OK);
    assert_null(loaded.table);
    assert_false(loaded.has_library);
    assert_string_equal(loaded.reason, "");
}

static void a_card_is_chosen_by_memory_by_number_or_by_uuid(void **state) {
    (void)state;
    static const struct {
        const char *gpu;
        uint32_t index;
    } cases[] = {
        {"auto", 2}, {"cuda", 2}, {"cuda:0", 0}, {"cuda:GPU-aa", 0}, {"cuda:GPU-cccc-2", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct loaded_gpu loaded;
        struct error error = {0};
        assert_int_equal(load(&loaded, cases[i].gpu, STUB("good"), &error), OK);
        assert_non_null(loaded.gpu);
        assert_int_equal(loaded.card.index, cases[i].index);
        gpu_load_close(&loaded);
        assert_null(loaded.gpu);
    }
}

static void a_card_that_is_named_is_the_only_choice(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "cuda:1", STUB("good"), &error), ERR_UNAVAILABLE);
    assert_string_equal(error.text,
                        "GPU 1, Stub 1, cannot be used: it is lost; restart the machine");
    assert_int_equal(load(&loaded, "cuda:3", STUB("good"), &error), ERR_UNAVAILABLE);
    assert_string_equal(error.text, "--device cuda:3: no GPU has this number or UUID; there are "
                                    "3, from cuda:0 to cuda:2");
    assert_int_equal(load(&loaded, "cuda:GPU-x", STUB("good"), &error), ERR_UNAVAILABLE);
}

static void
memory_that_others_hold_is_refused_after_pauses_and_never_left_to_the_cpu(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "auto", STUB("full"), &error), ERR_LIMIT);
    assert_string_equal(error.text, "12288 MiB are wanted, and 100 MiB are free");
}

static void memory_that_others_give_back_is_used(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load(&loaded, "cuda", STUB("freed"), &error), OK);
    assert_non_null(loaded.gpu);
    assert_true(loaded.memory_bytes == 12 * GIB);
    gpu_load_close(&loaded);
}

static uint64_t memory_for(double share, uint64_t bytes) {
    const struct gpu_settings settings = {
        .plugin = STR(STUB("good")), .memory_share = share, .memory_bytes = bytes};
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(gpu_load(&loaded, &settings, &error), OK);
    assert_int_equal(gpu_load_open(&loaded, &error), OK);
    gpu_load_close(&loaded);
    return loaded.memory_bytes;
}

static void the_memory_is_a_share_or_a_limit_and_by_default_free(void **state) {
    (void)state;
    assert_int_equal(memory_for(0.5, 0), 8 * GIB);
    assert_int_equal(memory_for(1, 0), 16 * GIB);
    assert_int_equal(memory_for(0.5, 3 * GIB), 3 * GIB);
    assert_int_equal(memory_for(0, 0), (uint64_t)(16 * (double)GIB * GPU_SHARE_DEFAULT));
}

static enum err load_ranks(struct loaded_gpu *ret_loaded, uint32_t ranks, const char *card,
                           struct error *error) {
    const struct gpu_settings settings = {.choice = GPU_CHOICE_CARD,
                                          .plugin = STR(STUB("good")),
                                          .card = str_from(card),
                                          .ranks = ranks};
    return gpu_load(ret_loaded, &settings, error);
}

static void several_cards_are_those_that_can_be_used_with_the_least_memory_of_any(void **state) {
    (void)state;
    struct loaded_gpu loaded;
    struct error error = {0};
    assert_int_equal(load_ranks(&loaded, 2, "", &error), OK);
    assert_int_equal(loaded.card.index, 0);
    assert_int_equal(loaded.more[0], 2);
    assert_true(loaded.card.free_bytes == 12 * GIB);
    assert_int_equal(load_ranks(&loaded, 3, "", &error), ERR_UNAVAILABLE);
    assert_string_equal(error.text, "--tensor-parallel-size 3: of the 3 GPUs that there are 2 can "
                                    "be used so");
    assert_int_equal(load_ranks(&loaded, 2, "2", &error), ERR_UNAVAILABLE);
    assert_true(gpu_load_may_shrink(&loaded));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bad_plugin_has_its_sentence),
        cmocka_unit_test(each_bad_machine_has_its_sentence),
        cmocka_unit_test(without_a_plugin_the_sentence_says_how_to_get_one),
        cmocka_unit_test(the_cpu_loads_no_plugin),
        cmocka_unit_test(a_card_is_chosen_by_memory_by_number_or_by_uuid),
        cmocka_unit_test(a_card_that_is_named_is_the_only_choice),
        cmocka_unit_test(memory_that_others_hold_is_refused_after_pauses_and_never_left_to_the_cpu),
        cmocka_unit_test(memory_that_others_give_back_is_used),
        cmocka_unit_test(the_memory_is_a_share_or_a_limit_and_by_default_free),
        cmocka_unit_test(several_cards_are_those_that_can_be_used_with_the_least_memory_of_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
