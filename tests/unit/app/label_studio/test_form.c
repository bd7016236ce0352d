/* SPDX-License-Identifier: Apache-2.0 */
/* A form from schemas and answers, its config, and the judgement made from an annotation. */
#include "label_studio/form.h"

#include "json/json.h"
#include "label_studio/config.h"
#include "label_studio/judgement.h"
#include "label_studio/reply.h"
#include "label_studio/studio_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *read_json(const char *text) {
    json_t *value;
    struct error error;
    assert_int_equal(json_read(&value, str_from(text), &error), OK);
    return value;
}

static struct form form_of(const char *schema) {
    struct form form = {0};
    json_t *value = read_json(schema);
    form_add_schema(&form, value, NULL);
    json_decref(value);
    return form;
}

static void check_control(const struct form *form, size_t index, const char *name,
                          const char *field, enum control_kind kind) {
    assert_true(index < form->count);
    assert_string_equal(form->at[index].name, name);
    assert_string_equal(form->at[index].field, field);
    assert_int_equal(form->at[index].kind, kind);
}

static void a_schema_gives_a_control_per_field(void **state) {
    (void)state;
    struct form form =
        form_of("{\"$ref\":\"#/$defs/top\",\"$defs\":{\"top\":{\"type\":\"object\",\"properties\":{"
                "\"a\":{\"enum\":[\"x\",null,2]},\"b\":{\"type\":[\"null\",\"boolean\"]},"
                "\"c\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5},"
                "\"d\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":5},"
                "\"e\":{\"properties\":{\"f g\":{\"type\":\"string\"}}},"
                "\"h\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
                "\"i\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]}},"
                "\"j\":{\"anyOf\":[{\"$ref\":\"#/$defs/loop\"},{\"type\":\"null\"}]},"
                "\"k\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}},"
                "\"loop\":{\"$ref\":\"#/$defs/loop\"}}}");
    assert_int_equal(form.count, 7);
    check_control(&form, 0, "a", "a", CONTROL_CHOICE);
    assert_int_equal(json_array_size(form.at[0].options), 2);
    check_control(&form, 1, "b", "b", CONTROL_CHOICE);
    check_control(&form, 2, "c", "c", CONTROL_RATING);
    check_control(&form, 3, "d", "d", CONTROL_NUMBER);
    check_control(&form, 4, "quern_field_5", "e.f g", CONTROL_TEXT);
    check_control(&form, 5, "i", "i", CONTROL_CHOICES);
    check_control(&form, 6, "k", "k", CONTROL_TEXTS);
    form_release(&form);
}

/* A schema that contains itself ends at a depth. */
static void a_schema_without_end_ends(void **state) {
    (void)state;
    struct form form =
        form_of("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"},\"b\":{\"type\":"
                "\"string\"}}}");
    assert_true(form.count > 1 && form.count < 20);
    form_release(&form);
}

static void the_config_escapes_what_a_schema_says(void **state) {
    (void)state;
    struct form form =
        form_of("{\"type\":\"object\",\"properties\":{\"\\\"/><x\":{\"enum\":[\"<&'\\n\"]}}}");
    struct buf config;
    buf_init(&config, BUF_UNLIMITED);
    config_write(&config, &form);
    assert_non_null(strstr(config.at, "<Header value=\"&#34;/&#62;&#60;x\" size=\"5\"/>"));
    assert_non_null(strstr(config.at, "<Choice value=\"&#60;&#38;&#39;&#10;\"/>"));
    assert_null(strstr(config.at, "<x"));
    buf_release(&config);
    form_release(&form);
}

static json_t *judge(const struct form *form, const char *meta, const char *annotation) {
    json_t *task = read_json(meta), *object = read_json(annotation);
    const struct annotation given = {"http://x", object, task, "ana"};
    json_t *judgement = judgement_make(form, &given);
    json_decref(task);
    json_decref(object);
    return judgement;
}

static void check_fields(const struct form *form, const char *value, const char *verdict,
                         const char *fields) {
    struct buf annotation, text;
    buf_init(&annotation, BUF_UNLIMITED);
    buf_init(&text, BUF_UNLIMITED);
    buf_printf(&annotation, "{\"id\":7,\"updated_at\":\"t\",\"result\":[%s]}", value);
    json_t *judgement =
        judge(form,
              "{\"custom_id\":\"c\",\"answer\":{\"o\":{\"n\":4,\"x\":[1]},"
              "\"t\":\"text\",\"jobs\":[{\"at\":\"A\",\"y\":1},{\"at\":\"B\",\"y\":2}]}}",
              annotation.at);
    assert_string_equal(json_string_value(json_object_get(judgement, "verdict")), verdict);
    if (json_object_get(judgement, "fields"))
        json_write_canonical(&text, json_object_get(judgement, "fields"));
    assert_string_equal(text.at ? text.at : "", fields);
    json_decref(judgement);
    buf_release(&annotation);
    buf_release(&text);
}

static void an_annotation_corrects_the_fields_that_differ(void **state) {
    (void)state;
    struct form form =
        form_of("{\"type\":\"object\",\"properties\":{\"o\":{\"properties\":{\"n\":{\"type\":"
                "\"integer\"}}},\"t\":{\"type\":\"string\"},\"new\":{\"type\":\"boolean\"}}}");
    check_fields(&form, "{\"from_name\":\"o.n\",\"value\":{\"number\":4.0}}", "accepted", "");
    check_fields(&form, "{\"from_name\":\"o.n\",\"value\":{\"number\":5.0}}", "corrected",
                 "{\"o\":{\"n\":5,\"x\":[1]}}");
    check_fields(&form, "{\"from_name\":\"t\",\"value\":{\"text\":[\"text\"]}}", "accepted", "");
    check_fields(&form, "{\"from_name\":\"new\",\"value\":{\"choices\":[\"true\"]}}", "corrected",
                 "{\"new\":true}");
    check_fields(&form, "{\"from_name\":\"new\",\"value\":{\"choices\":[\"other\"]}}", "accepted",
                 "");
    check_fields(&form, "{\"from_name\":\"unknown\",\"value\":1},3", "accepted", "");
    form_release(&form);
}

#define JOBS                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"jobs\":{\"type\":\"array\",\"maxItems\":4,\"items\":{" \
    "\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"string\"},\"y\":{\"type\":"            \
    "\"integer\"}}}}}}"

static struct form form_of_jobs(int most) {
    struct form form = {0};
    json_t *schema = read_json(JOBS), *lengths = json_pack("{s:i}", "jobs", most);
    form_add_schema(&form, schema, lengths);
    json_decref(lengths);
    json_decref(schema);
    return form;
}

static void each_object_of_an_array_has_controls_and_there_is_room_for_one_more(void **state) {
    (void)state;
    struct form form = form_of_jobs(2), most = form_of_jobs(40);
    assert_int_equal(form.count, 9);
    check_control(&form, 0, "jobs.0.at", "jobs.0.at", CONTROL_TEXT);
    check_control(&form, 1, "jobs.0.y", "jobs.0.y", CONTROL_NUMBER);
    check_control(&form, 2, "jobs.0", "jobs.0", CONTROL_REMOVE);
    check_control(&form, 8, "jobs.2", "jobs.2", CONTROL_REMOVE);
    assert_int_equal(most.count, 3 * 4); /* maxItems */
    json_t *schema = read_json(JOBS), *lengths = json_object();
    json_t *answer = read_json("{\"jobs\":[{},{},{}],\"o\":{\"in\":[{}]},\"t\":[1,2]}");
    assert_true(form_has_arrays(schema));
    form_add_lengths(lengths, answer);
    assert_int_equal(json_integer_value(json_object_get(lengths, "jobs")), 3);
    assert_int_equal(json_integer_value(json_object_get(lengths, "o.in")), 1);
    assert_null(json_object_get(lengths, "t"));
    json_decref(schema);
    json_decref(lengths);
    json_decref(answer);
    form_release(&form);
    form_release(&most);
}

static void an_annotation_corrects_adds_and_removes_objects_of_an_array(void **state) {
    (void)state;
    struct form form = form_of_jobs(2);
    check_fields(&form, "{\"from_name\":\"jobs.1.y\",\"value\":{\"number\":2}}", "accepted", "");
    check_fields(&form, "{\"from_name\":\"jobs.1.y\",\"value\":{\"number\":3}}", "corrected",
                 "{\"jobs\":[{\"at\":\"A\",\"y\":1},{\"at\":\"B\",\"y\":3}]}");
    check_fields(&form, "{\"from_name\":\"jobs.2.at\",\"value\":{\"text\":[\"C\"]}}", "corrected",
                 "{\"jobs\":[{\"at\":\"A\",\"y\":1},{\"at\":\"B\",\"y\":2},{\"at\":\"C\"}]}");
    check_fields(&form,
                 "{\"from_name\":\"jobs.0\",\"value\":{\"choices\":[\"remove this entry\"]}},"
                 "{\"from_name\":\"jobs.1.at\",\"value\":{\"text\":[\"D\"]}}",
                 "corrected", "{\"jobs\":[{\"at\":\"D\",\"y\":2}]}");
    check_fields(&form, "{\"from_name\":\"jobs.0\",\"value\":{\"choices\":[]}}", "accepted", "");
    check_fields(&form,
                 "{\"from_name\":\"jobs.2\",\"value\":{\"choices\":[\"remove this entry\"]}}",
                 "accepted", "");
    form_release(&form);
}

static void an_annotation_without_its_result_is_none(void **state) {
    (void)state;
    char key[128];
    static const char *const texts[] = {"{\"id\":1}", "{\"id\":1,\"updated_at\":\"t\"}",
                                        "{\"id\":0,\"updated_at\":\"t\",\"result\":[]}",
                                        "{\"id\":1,\"updated_at\":\"\",\"result\":[]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *object = read_json(texts[i]);
        assert_false(annotation_key(object, key, sizeof key));
        json_decref(object);
    }
}

static void a_token_is_known_by_its_form(void **state) {
    (void)state;
    /* {"exp":8102617425,"iat":1} without padding */
    const struct str jwt = STR("eyJ9.eyJleHAiOjgxMDI2MTc0MjUsImlhdCI6MX0.c2ln");
    assert_int_equal(studio_token_claim(jwt, "exp"), 8102617425);
    assert_int_equal(studio_token_claim(jwt, "none"), 0);
    assert_int_equal(studio_token_claim(STR("0123456789abcdef"), "exp"), 0);
    assert_int_equal(studio_token_claim(STR("a.b.c"), "exp"), 0);
    struct studio_token token;
    studio_token_init(&token, "0123456789abcdef");
    assert_string_equal(token.line, "Authorization: Token 0123456789abcdef");
    assert_false(studio_token_forget(&token));
    studio_token_release(&token);
    studio_token_init(&token, jwt.at);
    assert_true(token.is_personal && !token.line);
    studio_token_release(&token);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_gives_a_control_per_field),
        cmocka_unit_test(a_schema_without_end_ends),
        cmocka_unit_test(the_config_escapes_what_a_schema_says),
        cmocka_unit_test(an_annotation_corrects_the_fields_that_differ),
        cmocka_unit_test(each_object_of_an_array_has_controls_and_there_is_room_for_one_more),
        cmocka_unit_test(an_annotation_corrects_adds_and_removes_objects_of_an_array),
        cmocka_unit_test(an_annotation_without_its_result_is_none),
        cmocka_unit_test(a_token_is_known_by_its_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
