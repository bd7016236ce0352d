/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that other servers write: right ones in any spelling, and wrong ones. */
#include "grammar/shape_match.h"

#include "base/mem.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static enum shape_match match_of(enum grammar_kind kind, const char *source, const char *text) {
    struct error error;
    json_t *value;
    assert_int_equal(json_read(&value, str_from(source), &error), OK);
    uint32_t fuel = SHAPE_MATCH_FUEL;
    enum shape_match match = shape_match_text(kind, value, str_from(text), &fuel);
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
        {"{\"contains\":{}}", "[1,1]", SHAPE_MATCH_UNKNOWN},
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
        {"{\"pattern\":\"(?<=a)\"}", "\"a\"", SHAPE_MATCH_UNKNOWN},
        {"{\"pattern\":\"^(?!a)\"}", "\"a\"", SHAPE_MATCH_NO},
        {"{\"pattern\":\"^(?!a)\"}", "\"ba\"", SHAPE_MATCH_YES},
        {"{\"type\":\"string\",\"nullable\":true}", "null", SHAPE_MATCH_YES},
        {"{\"type\":\"string\",\"nullable\":false}", "null", SHAPE_MATCH_NO},
        {"{\"uniqueItems\":true}", "[1,{\"a\":[2]},{\"a\":[3]},\"1\",[]]", SHAPE_MATCH_YES},
        {"{\"uniqueItems\":true}", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1.0}]", SHAPE_MATCH_NO},
        {"{\"uniqueItems\":false}", "[1,1]", SHAPE_MATCH_YES},
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
        {"{\"format\":\"date\"}", "\"0000-01-31\"", SHAPE_MATCH_UNKNOWN},
        {"{\"format\":\"date\"}", "\"0400-02-29\"", SHAPE_MATCH_YES},
        {"{\"format\":\"date\"}", "\"0100-02-29\"", SHAPE_MATCH_NO},
        {"{\"format\":\"date\"}", "\"1000-01-01\"", SHAPE_MATCH_YES},
        {"{\"format\":\"time\"}", "\"12:00:00.5Z\"", SHAPE_MATCH_YES},
        {"{\"format\":\"time\"}", "\"12:00:00.0123456789012345678Z\"", SHAPE_MATCH_UNKNOWN},
        {"{\"$defs\":{\"d\":{\"$anchor\":\"a\",\"type\":\"null\"}},\"$ref\":\"#a\"}", "7",
         SHAPE_MATCH_NO},
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
    assert_int_equal(match_of(GRAMMAR_REGEX, "\"(?<=a)\"", "a"), SHAPE_MATCH_UNKNOWN);
    const char *rules = "\"root ::= \\\"(\\\" root \\\")\\\" | \\\"x\\\"\"";
    assert_int_equal(match_of(GRAMMAR_EBNF, rules, "((x))"), SHAPE_MATCH_YES);
    assert_int_equal(match_of(GRAMMAR_EBNF, rules, "((x)"), SHAPE_MATCH_NO);
    assert_int_equal(match_of(GRAMMAR_TAGS, "{\"type\":\"any_text\"}", "x"), SHAPE_MATCH_UNKNOWN);
}

/* --- work without an end --- */

/* `count` times `part`, with commas, between `head` and `tail`. "%d" in the part is its number. */
static char *repeated(const char *head, const char *part, int count, const char *tail) {
    struct buf text;
    const char *number = strstr(part, "%d");
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, head);
    for (int i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(&text, ',');
        buf_add(&text, part, number ? (size_t)(number - part) : strlen(part));
        if (number) buf_printf(&text, "%d%s", i, number + 2);
    }
    buf_add_text(&text, tail);
    return text.at;
}

static char *copy_of(const char *text) {
    return repeated(text, "", 0, "");
}

static void spends_its_fuel(enum grammar_kind kind, char *source, char *text) {
    struct error error;
    json_t *value;
    uint32_t fuel = SHAPE_MATCH_FUEL;
    assert_int_equal(json_read(&value, str_from(source), &error), OK);
    clock_t begin = clock();
    assert_int_equal(shape_match_text(kind, value, str_from(text), &fuel), SHAPE_MATCH_UNKNOWN);
    print_message("# %.0f ms: %.70s\n", 1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC, source);
    assert_int_equal(fuel, 0);
    /* The next text of the answer is not even read. */
    assert_int_equal(shape_match_text(kind, value, STR("7"), &fuel), SHAPE_MATCH_UNKNOWN);
    json_decref(value);
    free(source);
    free(text);
}

/* Schemas and answers of 1 to 4 MiB: every pair of their parts would be compared. */
static void work_without_an_end_is_unknown(void **state) {
    (void)state;
    char *deep =
        repeated("{\"$defs\":{\"d\":{\"type\":\"string\"},",
                 "\"d%d\":{\"oneOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", 3,
                 "},\"oneOf\":[{\"items\":{\"$ref\":\"#\"}},{\"items\":{\"$ref\":\"#\"}}]}");
    char *nested = mem_new(200, 1);
    memset(nested, '[', 60);
    memset(nested + 60, ']', 60);
    spends_its_fuel(GRAMMAR_SCHEMA, deep, nested);
    /* Branches, each of which looks at the whole text or at all names. */
    spends_its_fuel(GRAMMAR_SCHEMA, repeated("{\"anyOf\":[", "{\"maxLength\":%d}", 100000, "]}"),
                    repeated("\"", "long text, longer than any bound here", 100000, "\""));
    spends_its_fuel(GRAMMAR_SCHEMA,
                    repeated("{\"anyOf\":[", "{\"required\":[\"m1\",\"none\"]}", 100000, "]}"),
                    repeated("{", "\"m%d\":0", 100000, "}"));
    spends_its_fuel(GRAMMAR_SCHEMA,
                    repeated("{\"items\":{\"required\":[", "\"m%d\"", 100000, "]}}"),
                    repeated("[", "7", 100000, "]"));
    spends_its_fuel(GRAMMAR_SCHEMA, repeated("{\"items\":{\"enum\":[", "[[[%d]]]", 100000, "]}}"),
                    repeated("[", "[[[99999]]]", 10000, "]"));
    spends_its_fuel(GRAMMAR_SCHEMA,
                    repeated("{\"patternProperties\":{", "\"^a*b%d\":false", 50000, "}}"),
                    repeated("{", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaac%d\":0", 50000, "}"));
    spends_its_fuel(
        GRAMMAR_SCHEMA,
        repeated("{\"additionalProperties\":{\"x-a\":[", "%d", 100000, "],\"$ref\":\"#none\"}}"),
        repeated("{", "\"m%d\":0", 100000, "}"));
    /* A keyword that is not supported, everywhere. */
    spends_its_fuel(GRAMMAR_SCHEMA,
                    repeated("{\"items\":{\"anyOf\":[", "{\"not\":{\"const\":%d}}", 50000, "]}}"),
                    repeated("[", "%d", 50000, "]"));
    spends_its_fuel(GRAMMAR_SCHEMA, copy_of("{\"pattern\":\"(a?){300}a{300}$\"}"),
                    repeated("\"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 30000, "\""));
    spends_its_fuel(GRAMMAR_CHOICE, repeated("[", "\"no %d\"", 1200000, "]"), copy_of("no"));
    spends_its_fuel(GRAMMAR_REGEX, copy_of("\"(([ab,]{1,90}){1,90}){1,90}c\""),
                    repeated("", "abababababababababababababababa", 100000, ""));
    spends_its_fuel(GRAMMAR_EBNF,
                    copy_of("\"root ::= a | b\\na ::= [0-9,]* [1] [0-9,]{400} [2]\\n"
                            "b ::= [0-9,]* [2] [0-9,]{500} [1]\""),
                    repeated("", "%d", 300000, ""));
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
            uint32_t fuel = SHAPE_MATCH_FUEL;
            enum shape_match match = shape_match_text(
                GRAMMAR_SCHEMA, json_object_get(group, "schema"), str_from(text), &fuel);
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
        cmocka_unit_test(work_without_an_end_is_unknown),
        cmocka_unit_test(the_suite_is_never_contradicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
