/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of JSON-Schema-Test-Suite (draft 2020-12) in ../shared/structured. No invalid instance
 * is taken, and no valid one refused, for every schema that compiles. Without the file the test is
 * skipped. */
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define NAMES_MAX 200

struct names {
    const char *at[NAMES_MAX];
    size_t count;
};

static size_t place_of(const struct names *names, const char *name) {
    size_t i = 0;
    while (i < names->count && strcmp(names->at[i], name) != 0) i++;
    return i;
}

static void add_name(struct names *names, const char *name) {
    if (names->count < NAMES_MAX && place_of(names, name) == names->count)
        names->at[names->count++] = name;
}

/* Gathers the names of all objects, and after those of an object its required ones. */
static void gather(struct names *names, const json_t *value) {
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) add_name(names, key);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) gather(names, member);
    for (size_t i = 0; i < json_array_size(value); i++) gather(names, json_array_get(value, i));
    const json_t *required = json_object_get(value, "required");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (json_is_string(json_array_get(required, i)))
            add_name(names, json_string_value(json_array_get(required, i)));
}

/* The value with its members in the order of the schema, and 1.0 as 1. */
static json_t *ordered(const struct names *names, json_t *value) {
    if (json_is_real(value)) {
        double real = json_real_value(value);
        bool is_whole = real > -1e18 && real < 1e18 && real == (double)(int64_t)real;
        return is_whole ? json_integer((int64_t)real) : json_incref(value);
    }
    if (json_is_array(value)) {
        json_t *list = json_array();
        for (size_t i = 0; i < json_array_size(value); i++)
            json_array_append_new(list, ordered(names, json_array_get(value, i)));
        return list;
    }
    if (!json_is_object(value)) return json_incref(value);
    json_t *object = json_object();
    for (size_t place = 0; place <= names->count; place++) {
        for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
            if (place_of(names, json_object_iter_key(at)) != place) continue;
            json_object_setn_new(object, json_object_iter_key(at), json_object_iter_key_len(at),
                                 ordered(names, json_object_iter_value(at)));
        }
    }
    return object;
}

/* Valid instances that schema_format.c says it leaves out. */
static bool is_left_out(const char *file, const char *text) {
    return strcmp(file, "optional/format/hostname") == 0 && strstr(text, "xn--");
}

struct counts {
    size_t schemas, refused, right, left_out;
};

static void check_group(const json_t *group, struct counts *counts) {
    const json_t *schema = json_object_get(group, "schema"),
                 *tests = json_object_get(group, "tests");
    const char *file = json_string_value(json_object_get(group, "file"));
    struct names names = {.count = 0};
    struct error error;
    struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
    counts->schemas++;
    counts->refused += !grammar;
    gather(&names, schema);
    for (size_t i = 0; i < json_array_size(tests) && grammar; i++) {
        const json_t *test = json_array_get(tests, i);
        bool is_valid = json_is_true(json_object_get(test, "valid"));
        json_t *data = ordered(&names, json_object_get(test, "data"));
        char *text = json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        bool is_taken = takes(grammar, str_from(text));
        if (is_taken == is_valid)
            counts->right++;
        else if (!is_taken && is_left_out(file, text))
            counts->left_out++;
        else
            fail_msg("%s: %s, %s: %s is %s", file,
                     json_string_value(json_object_get(group, "description")),
                     json_string_value(json_object_get(test, "description")), text,
                     is_taken ? "taken" : "refused");
        free(text);
        json_decref(data);
    }
    grammar_drop(grammar);
}

static void test_suite(void **state) {
    char path[4096];
    const char *shared = getenv("QUERN_SHARED");
    (void)state;
    snprintf(path, sizeof path, "%s/structured/json-schema-test-suite.json", shared ? shared : ".");
    json_t *suite = json_load_file(path, JSON_ALLOW_NUL, NULL);
    if (!suite) skip();
    struct counts counts = {0};
    const json_t *groups = json_object_get(suite, "groups");
    for (size_t i = 0; i < json_array_size(groups); i++)
        check_group(json_array_get(groups, i), &counts);
    print_message("# %zu schemas, %zu refused; %zu instances right, %zu valid ones left out\n",
                  counts.schemas, counts.refused, counts.right, counts.left_out);
    assert_true(counts.refused <= 74 && counts.left_out <= 15);
    json_decref(suite);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
