/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/names.h"
#include "workers/echo/worker_echo.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void ignore_result(void *context, const struct worker_result *result) {
    (void)context, (void)result;
}

/* What a worker that serves only `served` calls the model that `name` means; NULL: it has none. */
static const char *found(const struct names *names, const char *served, const char *name) {
    static char text[MODEL_NAME_BYTES];
    const char *const models[] = {served, NULL};
    struct worker_echo_options options = {.models = models};
    struct worker_events events = {.result = ignore_result};
    struct worker *worker;
    struct error error;
    assert_int_equal(worker_echo_open(&worker, &options, &events, &error), OK);
    bool is_found = names_find(names, worker, str_from(name), text);
    worker->ops->close(worker);
    return is_found ? text : NULL;
}

static void a_model_is_found_under_ollamas_name_and_under_its_hugging_face_id(void **state) {
    (void)state;
    assert_string_equal(found(NULL, "google/gemma-3-12b-it", "gemma3:12b"),
                        "google/gemma-3-12b-it");
    assert_string_equal(found(NULL, "gemma3:12b", "google/gemma-3-12b-it"), "gemma3:12b");
    assert_string_equal(found(NULL, "gemma3:12b", "GOOGLE/Gemma-3-12b-IT"), "gemma3:12b");
    assert_null(found(NULL, "gemma3:12b", "gemma3:4b"));
    assert_null(found(NULL, "gemma3:12b", "google/gemma-3-12b"));
    assert_null(found(NULL, "gemma3:12b", ""));
}

static void a_bare_name_is_the_tag_latest(void **state) {
    (void)state;
    assert_string_equal(found(NULL, "llama3.2:3b", "llama3.2"), "llama3.2:3b");
    assert_string_equal(found(NULL, "meta-llama/Llama-3.2-3B-Instruct", "llama3.2:latest"),
                        "meta-llama/Llama-3.2-3B-Instruct");
    assert_string_equal(found(NULL, "mine", "mine:latest"), "mine");
    assert_string_equal(found(NULL, "mine:latest", "mine"), "mine:latest");
    assert_string_equal(found(NULL, "qwen3:latest", "Qwen/Qwen3-8B"), "qwen3:latest");
    assert_string_equal(found(NULL, "gemma3:4b", "any.host/library/gemma3"), "gemma3:4b");
    assert_null(found(NULL, "llama3.2:3b", "llama3.2:1b"));
    assert_null(found(NULL, "mine:8b", "mine"));
}

static void the_operators_aliases_come_first_and_may_lead_to_each_other(void **state) {
    (void)state;
    static const struct name_alias aliases[] = {{"gpt-4", "big"},
                                                {"big", "gemma3:12b"},
                                                {"round", "about"},
                                                {"about", "round"},
                                                {"gemma3:27b", "gemma3:12b"}};
    static const struct names names = {.aliases = aliases, .alias_count = 5};
    assert_string_equal(found(&names, "google/gemma-3-12b-it", "gpt-4"), "google/gemma-3-12b-it");
    assert_string_equal(found(&names, "gemma3:12b", "gemma3:27b"), "gemma3:12b");
    assert_null(found(&names, "gpt-4", "gpt-4"));
    assert_null(found(&names, "gemma3:12b", "round"));
    assert_string_equal(found(&names, "round", "round"), "round");
}

static void hostile_names_find_nothing(void **state) {
    (void)state;
    char longest[600];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_null(found(NULL, "x", longest));
    longest[MODEL_NAME_BYTES - 1] = '\0';
    assert_string_equal(found(NULL, longest, longest), longest);
    assert_null(found(NULL, "x", ":latest"));
    assert_null(found(NULL, "x", "library/"));
}

static void advice_offers_an_alias_only_where_none_is_in_the_way(void **state) {
    (void)state;
    static const struct name_alias aliases[] = {{"*", "large"}};
    const struct names names = {.aliases = aliases, .alias_count = 1};
    const struct str served[] = {STR("small")};
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    names_write_advice(NULL, &text, STR("mine"), served, 1);
    buf_add_byte(&text, '\n');
    names_write_advice(&names, &text, STR("small"), served, 1);
    buf_add_byte(&text, '\0');
    assert_string_equal(text.at,
                        " Served here: 'small'. --alias mine=small serves a model under this "
                        "name.\n An alias makes it 'large', which is not served. Served here: "
                        "'small'.");
    buf_release(&text);
}

static void no_name_is_in_two_rows_of_the_table(void **state) {
    (void)state;
    for (size_t i = 0; i < names_table_count; i++) {
        const char *one;
        size_t count = 0;
        for (; (one = names_of_known(&names_table[i], count)); count++)
            assert_ptr_equal(names_known(str_from(one)), &names_table[i]);
        assert_true(count >= 2);
    }
}

static void a_star_means_all_names_that_begin_so(void **state) {
    (void)state;
    static const struct name_alias aliases[] = {
        {"claude-*", "big"}, {"claude-haiku*", "small"}, {"claude-exact", "qwen"}, {"q*", "qwen"}};
    static const struct names names = {.aliases = aliases, .alias_count = 4};
    assert_true(name_alias_has_star(&aliases[0]) && !name_alias_has_star(&aliases[2]));
    assert_string_equal(found(&names, "big", "claude-"), "big");
    assert_string_equal(found(&names, "big", "claude-sonnet-4-5"), "big");
    assert_string_equal(found(&names, "small", "claude-haiku-4"), "small");
    assert_string_equal(found(&names, "qwen", "claude-exact"), "qwen");
    assert_string_equal(found(&names, "big", "claude-exactly"), "big");
    assert_string_equal(found(&names, "qwen", "q"), "qwen");
    assert_string_equal(found(&names, "qwen", "qwen"), "qwen");
    assert_null(found(&names, "big", "claude"));
    assert_null(found(&names, "big", "other"));
}

static void a_given_name_stands_behind_the_operators_aliases(void **state) {
    (void)state;
    static const struct name_alias aliases[] = {{"fixed", "gemma3:12b"}, {"star-*", "gemma3:12b"}};
    struct names names = {.aliases = aliases, .alias_count = 2, .added = names_added_open()};
    char model[MODEL_NAME_BYTES];
    assert_true(names_added_put(names.added, STR("mine:latest"), STR("gemma3:12b")));
    assert_true(names_added_put(names.added, STR("star-mine"), STR("other")));
    assert_true(names_added_put(names.added, STR("fixed"), STR("other")));
    assert_string_equal(found(&names, "gemma3:12b", "mine"), "gemma3:12b");
    assert_string_equal(found(&names, "gemma3:12b", "mine:latest"), "gemma3:12b");
    assert_string_equal(found(&names, "gemma3:12b", "fixed"), "gemma3:12b");
    assert_string_equal(found(&names, "other", "star-mine"), "other");
    assert_string_equal(found(&names, "gemma3:12b", "star-x"), "gemma3:12b");
    assert_true(names_added_of(names.added, STR("gemma3:12b"), model));
    assert_string_equal(model, "mine");
    assert_true(names_added_put(names.added, STR("mine"), STR("other")));
    assert_string_equal(found(&names, "other", "mine:latest"), "other");
    assert_true(names_added_remove(names.added, STR("mine:latest")));
    assert_false(names_added_remove(names.added, STR("mine")));
    assert_null(found(&names, "other", "mine"));
    assert_false(names_added_put(names.added, STR(""), STR("other")));
    for (int i = 0; names_added_has_room(names.added); i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_true(names_added_put(names.added, str_from(name), STR("other")));
    }
    assert_false(names_added_put(names.added, STR("one more"), STR("other")));
    names_added_close(names.added);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_found_under_ollamas_name_and_under_its_hugging_face_id),
        cmocka_unit_test(a_bare_name_is_the_tag_latest),
        cmocka_unit_test(a_star_means_all_names_that_begin_so),
        cmocka_unit_test(the_operators_aliases_come_first_and_may_lead_to_each_other),
        cmocka_unit_test(hostile_names_find_nothing),
        cmocka_unit_test(advice_offers_an_alias_only_where_none_is_in_the_way),
        cmocka_unit_test(no_name_is_in_two_rows_of_the_table),
        cmocka_unit_test(a_given_name_stands_behind_the_operators_aliases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
