/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char cache[] = "/tmp/quern-test-catalog-XXXXXX";

static void put(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/quern/models/%s", cache, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static int make_folder(void **state) {
    (void)state;
    char path[128];
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1) != 0) return -1;
    snprintf(path, sizeof path, "%s/quern", cache);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/quern/models", cache);
    return mkdir(path, 0700);
}

static void a_known_name_that_was_not_fetched_says_how_to_get_it(void **state) {
    (void)state;
    struct model_choice choice;
    struct error error;
    assert_int_equal(catalog_choose("smollm2", &choice, &error), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "quern pull smollm2"));
}

static void a_known_name_is_served_under_all_its_names_the_alias_first(void **state) {
    (void)state;
    struct model_choice choice;
    struct error error;
    put("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert_int_equal(catalog_choose("gpt-4=SmolLM2", &choice, &error), OK);
    assert_string_equal(choice.names[0], "gpt-4");
    assert_string_equal(choice.names[1], "smollm2");
    assert_true(choice.name_count > 2);
    assert_non_null(strstr(choice.path, "SmolLM2-135M-Instruct.Q4_1.gguf"));
}

static void a_file_of_the_folder_is_found_with_and_without_its_ending(void **state) {
    (void)state;
    struct model_choice choice;
    struct error error;
    put("mine.gguf");
    assert_int_equal(catalog_choose("mine", &choice, &error), OK);
    assert_string_equal(choice.names[0], "mine");
    assert_int_equal(catalog_choose("mine.gguf", &choice, &error), OK);
    assert_string_equal(choice.names[0], "mine");
}

static void an_unknown_name_and_an_empty_alias_are_refused(void **state) {
    (void)state;
    struct model_choice choice;
    struct error error;
    assert_int_equal(catalog_choose("nobody", &choice, &error), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "nobody"));
    assert_int_equal(catalog_choose("=mine", &choice, &error), ERR_INVALID);
    assert_int_equal(catalog_choose("../../nobody/there", &choice, &error), ERR_NOT_FOUND);
}

static void count_file(void *context, const struct model_file *file) {
    char *names = context;
    size_t used = strlen(names);
    snprintf(names + used, 256 - used, "%s ", file->name);
}

static void the_list_has_the_names_that_model_takes(void **state) {
    (void)state;
    char names[256] = "";
    struct error error;
    assert_int_equal(catalog_list(count_file, names, &error), OK);
    assert_string_equal(names, "smollm2 mine.gguf ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_name_that_was_not_fetched_says_how_to_get_it),
        cmocka_unit_test(a_known_name_is_served_under_all_its_names_the_alias_first),
        cmocka_unit_test(a_file_of_the_folder_is_found_with_and_without_its_ending),
        cmocka_unit_test(an_unknown_name_and_an_empty_alias_are_refused),
        cmocka_unit_test(the_list_has_the_names_that_model_takes),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
