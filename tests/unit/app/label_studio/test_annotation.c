/* SPDX-License-Identifier: Apache-2.0 */
/* An annotation of a judgement is known again until somebody changes it. */
#include "label_studio/annotation.h"

#include "base/err.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static json_t *read_text(const char *text) {
    json_t *value;
    struct error error;
    assert_int_equal(json_read(&value, str_from(text), &error), OK);
    return value;
}

/* The annotation of a judgement on the answer {"word":"yes","number":61.0}. */
static json_t *make(const char *judgement, const char *config) {
    struct form form = {0};
    json_t *answer = read_text("{\"word\":\"yes\",\"number\":61.0}");
    json_t *given = read_text(judgement), *controls = read_text(config);
    form_add_values(&form, answer);
    const struct annotation_wish wish = {.batch = "b",
                                         .project = 3,
                                         .form = &form,
                                         .config = controls,
                                         .answer = answer,
                                         .judgement = given};
    json_t *annotation = annotation_make(&wish);
    json_decref(answer);
    json_decref(given);
    json_decref(controls);
    form_release(&form);
    return annotation;
}

#define ALL "{\"quern_rating\":{},\"quern_comment\":{}}"
#define GOOD                                                                                       \
    "{\"id\":\"one-of-mine\",\"curator\":\"Ana\",\"verdict\":\"corrected\",\"rating\":4,"          \
    "\"fields\":{\"word\":\"no\"}}"

static void an_unchanged_annotation_is_own(void **state) {
    (void)state;
    json_t *annotation = make(GOOD, ALL);
    assert_int_equal(json_array_size(json_object_get(annotation, "result")), 4);
    assert_true(annotation_is_own(annotation));
    json_t *again = make(GOOD, ALL);
    assert_true(json_equal(annotation, again));
    json_decref(again);
    json_decref(annotation);
}

static void any_change_makes_it_another(void **state) {
    (void)state;
    for (int change = 0; change < 5; change++) {
        json_t *annotation = make(GOOD, ALL), *results = json_object_get(annotation, "result");
        if (change == 0) json_object_set_new(annotation, "was_cancelled", json_true());
        if (change == 1) json_array_remove(results, 1);
        if (change == 2) json_array_clear(results);
        if (change == 3)
            json_object_set_new(json_array_get(results, 0), "value",
                                json_pack("{s:[s]}", "text", "x"));
        if (change == 4) json_array_append_new(results, json_pack("{s:s}", "from_name", "word"));
        assert_false(annotation_is_own(annotation));
        json_decref(annotation);
    }
}

static void a_project_without_controls_of_its_own_gets_the_fields(void **state) {
    (void)state;
    json_t *annotation = make(GOOD, "{}");
    assert_int_equal(json_array_size(json_object_get(annotation, "result")), 2);
    json_decref(annotation);
    assert_null(make("{\"id\":\"a\",\"curator\":\"Ana\",\"verdict\":\"skipped\"}", "{}"));
}

static void judgements_differ_in_their_unique_id(void **state) {
    (void)state;
    json_t *a = make(GOOD, ALL);
    json_t *b = make("{\"id\":\"other\",\"curator\":\"Ana\",\"verdict\":\"accepted\"}", ALL);
    const char *id = json_string_value(json_object_get(a, "unique_id"));
    assert_int_equal(strlen(id), 36);
    assert_string_not_equal(id, json_string_value(json_object_get(b, "unique_id")));
    json_decref(a);
    json_decref(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unchanged_annotation_is_own),
        cmocka_unit_test(any_change_makes_it_another),
        cmocka_unit_test(a_project_without_controls_of_its_own_gets_the_fields),
        cmocka_unit_test(judgements_differ_in_their_unique_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
