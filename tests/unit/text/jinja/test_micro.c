/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs every case of a file over the context that the file gives. */
static void run_file(const char *variable, const char *file, size_t count_min) {
    char *path = case_path(variable, file);
    json_t *root = path ? json_load_file(path, JSON_ALLOW_NUL, NULL) : NULL;
    free(path);
    if (!root && strcmp(variable, "QUERN_SHARED") == 0) skip();
    assert_non_null(root);
    json_t *item;
    size_t index, failed = 0;
    json_array_foreach(json_object_get(root, "cases"), index, item) {
        const json_t *text = json_object_get(item, "source");
        struct str source = {json_string_value(text), json_string_length(text)};
        if (!case_holds(item, source, json_object_get(root, "context"))) failed++;
    }
    assert_true(index >= count_min);
    json_decref(root);
    assert_int_equal(failed, 0);
}

static void every_micro_case_renders_as_jinja_does(void **state) {
    (void)state;
    run_file("QUERN_SHARED", "templates/micro.json", 368);
}

static void every_further_case_renders_as_jinja_does(void **state) {
    (void)state;
    run_file("QUERN_SOURCE", "tests/unit/text/jinja/more.json", 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_micro_case_renders_as_jinja_does),
        cmocka_unit_test(every_further_case_renders_as_jinja_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
