/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that other servers write: right ones in any spelling, and wrong ones. */
#include "grammar/schema_check.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static enum shape_match match_of(enum grammar_kind kind, const char *source, const char *text) {
    struct error error;
    json_t *value;
    assert_int_equal(json_read(&value, str_from(source), &error), OK);
    enum shape_match match = shape_match_text(kind, value, str_from(text));
    json_decref(value);
    return match;
}

static void a_value_may_be_spelled_in_any_way(void **state) {
    (void)state;
    const char *schema =
        "{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"additionalProperties\":false,"
        "\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1},\"b\":{\"enum\":[\"x\",\"y\"]},"
        "\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/properties/a\"},\"maxItems\":2}}}";
    static const struct {
        const char *text;
        enum shape_match match;
    } cases[] = {
        {"{\"a\":1,\"b\":\"x\"}", SHAPE_MATCH_YES},
        {"\n{ \"b\" : \"\\u0078\",\n\t\"a\" : 1.0 }\n", SHAPE_MATCH_YES},
        {"{\"c\":[2,3],\"b\":\"y\",\"a\":9}", SHAPE_MATCH_YES},
        {"{\"c\":[2,0],\"b\":\"y\",\"a\":9}", SHAPE_MATCH_NO},
        {"{\"c\":[2,3,4],\"b\":\"y\",\"a\":9}", SHAPE_MATCH_NO},
        {"{\"a\":1}", SHAPE_MATCH_NO},
        {"{\"a\":1,\"b\":\"z\"}", SHAPE_MATCH_NO},
        {"{\"a\":1,\"b\":\"x\",\"d\":1}", SHAPE_MATCH_NO},
        {"{\"a\":1.5,\"b\":\"x\"}", SHAPE_MATCH_NO},
        {"{\"a\":99999999999999999999999999,\"b\":\"x\"}", SHAPE_MATCH_UNKNOWN},
        {"```json\n{\"a\":1,\"b\":\"x\"}\n```", SHAPE_MATCH_NO},
        {"{\"a\":1,\"b\":\"x\"", SHAPE_MATCH_NO},
        {"Here it is.", SHAPE_MATCH_NO},
        {"", SHAPE_MATCH_NO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (match_of(GRAMMAR_SCHEMA, schema, cases[i].text) != cases[i].match)
            fail_msg("%s", cases[i].text);
}

static void what_it_cannot_judge_is_unknown(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text;
        enum shape_match match;
    } cases[] = {
        {"{\"uniqueItems\":true}", "[1,1]", SHAPE_MATCH_UNKNOWN},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}", "{\"a\":1}",
         SHAPE_MATCH_UNKNOWN},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}}}", "7", SHAPE_MATCH_NO},
        {"{\"anyOf\":[{\"not\":{}},{\"type\":\"integer\"}]}", "7", SHAPE_MATCH_YES},
        {"{\"anyOf\":[{\"not\":{}},{\"type\":\"string\"}]}", "7", SHAPE_MATCH_UNKNOWN},
        {"{\"oneOf\":[{\"not\":{}},{\"type\":\"integer\"}]}", "7", SHAPE_MATCH_UNKNOWN},
        {"{\"oneOf\":[{\"minimum\":1},{\"type\":\"integer\"},{\"not\":{}}]}", "7", SHAPE_MATCH_NO},
        {"{\"allOf\":[{\"not\":{}},{\"type\":\"string\"}]}", "7", SHAPE_MATCH_NO},
        {"{\"$ref\":\"#\"}", "7", SHAPE_MATCH_UNKNOWN},
        {"{\"$ref\":\"#/$defs/none\"}", "7", SHAPE_MATCH_UNKNOWN},
        {"{\"pattern\":\"(?=a)\"}", "\"a\"", SHAPE_MATCH_UNKNOWN},
        {"{\"format\":\"unheard-of\"}", "\"a\"", SHAPE_MATCH_UNKNOWN},
        {"{\"format\":\"date\"}", "\"2026-02-30\"", SHAPE_MATCH_NO},
        {"{\"pattern\":\"^a+$\",\"maxLength\":3}", "\"aaa\"", SHAPE_MATCH_YES},
        {"{\"pattern\":\"^a+$\",\"maxLength\":3}", "\"aab\"", SHAPE_MATCH_NO},
        {"{\"multipleOf\":0.1}", "0.3", SHAPE_MATCH_YES},
        {"{\"multipleOf\":0.1}", "0.35", SHAPE_MATCH_NO},
        {"{\"const\":{\"a\":[1,null]}}", "{\"a\":[1.0,null]}", SHAPE_MATCH_YES},
        {"{\"propertyNames\":{\"pattern\":\"^x\"}}", "{\"y\":1}", SHAPE_MATCH_NO},
        {"{\"patternProperties\":{\"^x\":{\"type\":\"string\"}},\"additionalProperties\":false}",
         "{\"x1\":\"s\"}", SHAPE_MATCH_YES},
        {"{\"patternProperties\":{\"^x\":{\"type\":\"string\"}},\"additionalProperties\":false}",
         "{\"x1\":\"s\",\"y\":1}", SHAPE_MATCH_NO},
        {"[]", "7", SHAPE_MATCH_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (match_of(GRAMMAR_SCHEMA, cases[i].schema, cases[i].text) != cases[i].match)
            fail_msg("%s: %s", cases[i].schema, cases[i].text);
}

static void other_kinds_are_compared_byte_for_byte(void **state) {
    (void)state;
    assert_int_equal(match_of(GRAMMAR_CHOICE, "[\"yes\",\"no\"]", "no"), SHAPE_MATCH_YES);
    assert_int_equal(match_of(GRAMMAR_CHOICE, "[\"yes\",\"no\"]", "no "), SHAPE_MATCH_NO);
    assert_int_equal(match_of(GRAMMAR_REGEX, "\"[a-c]{2,3}\"", "abc"), SHAPE_MATCH_YES);
    assert_int_equal(match_of(GRAMMAR_REGEX, "\"[a-c]{2,3}\"", "a"), SHAPE_MATCH_NO);
    assert_int_equal(match_of(GRAMMAR_REGEX, "\"(?=a)\"", "a"), SHAPE_MATCH_UNKNOWN);
    const char *rules = "\"root ::= \\\"(\\\" root \\\")\\\" | \\\"x\\\"\"";
    assert_int_equal(match_of(GRAMMAR_EBNF, rules, "((x))"), SHAPE_MATCH_YES);
    assert_int_equal(match_of(GRAMMAR_EBNF, rules, "((x)"), SHAPE_MATCH_NO);
    assert_int_equal(match_of(GRAMMAR_TAGS, "{\"type\":\"any_text\"}", "x"), SHAPE_MATCH_UNKNOWN);
}

/* A schema that a value keeps in exponentially many ways ends at the bound of steps. */
static void a_schema_that_takes_too_long_is_unknown(void **state) {
    (void)state;
    struct buf schema;
    buf_init(&schema, BUF_UNLIMITED);
    buf_add_text(&schema, "{\"$defs\":{\"d0\":{\"type\":\"string\"}");
    for (int i = 1; i < 40; i++)
        buf_printf(&schema,
                   ",\"d%d\":{\"oneOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}",
                   i, i - 1, i - 1);
    buf_add_text(&schema, "},\"$ref\":\"#/$defs/d39\"}");
    assert_int_equal(match_of(GRAMMAR_SCHEMA, schema.at, "7"), SHAPE_MATCH_UNKNOWN);
    buf_release(&schema);
}

/* The suite's instances, in the order in which they stand there. */
static void the_suite_is_never_contradicted(void **state) {
    char path[4096];
    const char *shared = getenv("QUERN_SHARED");
    size_t right = 0, unknown = 0, at, index;
    json_t *group, *test;
    (void)state;
    snprintf(path, sizeof path, "%s/structured/json-schema-test-suite.json", shared ? shared : ".");
    json_t *suite = json_load_file(path, JSON_ALLOW_NUL, NULL);
    if (!suite) skip();
    json_array_foreach(json_object_get(suite, "groups"), at, group) {
        json_array_foreach(json_object_get(group, "tests"), index, test) {
            char *text =
                json_dumps(json_object_get(test, "data"), JSON_ENCODE_ANY | JSON_INDENT(1));
            enum shape_match match =
                shape_match_text(GRAMMAR_SCHEMA, json_object_get(group, "schema"), str_from(text));
            bool is_valid = json_is_true(json_object_get(test, "valid"));
            if (match != SHAPE_MATCH_UNKNOWN && (match == SHAPE_MATCH_YES) != is_valid)
                fail_msg("%s: %s, %s: %s", json_string_value(json_object_get(group, "file")),
                         json_string_value(json_object_get(group, "description")),
                         json_string_value(json_object_get(test, "description")), text);
            *(match == SHAPE_MATCH_UNKNOWN ? &unknown : &right) += 1;
            free(text);
        }
    }
    print_message("# %zu instances right, %zu unknown\n", right, unknown);
    assert_true(right > 2 * unknown);
    json_decref(suite);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_may_be_spelled_in_any_way),
        cmocka_unit_test(what_it_cannot_judge_is_unknown),
        cmocka_unit_test(other_kinds_are_compared_byte_for_byte),
        cmocka_unit_test(a_schema_that_takes_too_long_is_unknown),
        cmocka_unit_test(the_suite_is_never_contradicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
