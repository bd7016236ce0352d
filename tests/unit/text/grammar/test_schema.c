/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "compiled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define MOST 14

/* A schema, and texts that it has and has not. */
static const struct {
    const char *schema;
    const char *good[MOST], *bad[MOST];
} rows[] = {
    {"{\"type\":\"object\"}",
     {"{}", "{\"a\":1}", "{\"a\": [1, {\"b\":null}], \"c\":\"d\"}"},
     {"[]", "{", "{\"a\"}", "{\"a\":1,}", "{ }", "{\"a\":  1}", "{\"a\" :1}", "{} ", "\n{}"}},
    {"true",
     {"null", "true", "-1.5e+10", "\"\"", "[]", "[[],{}]", "0", "\"\\n\\u0001\\\"\\\\/é\""},
     {"nul", "01", "1.", ".5", "+1", "\"\n\"", "\"\\/\"", "\"\\u00e9\"", "\"\\ud800\"", "1e999",
      "'a'", "\"\xff\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}"
     "},"
     "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
     {"{\"a\":\"x\",\"b\":1}", "{\"a\": \"\", \"b\": -12}"},
     {"{}", "{\"a\":\"x\"}", "{\"b\":1,\"a\":\"x\"}", "{\"a\":\"x\",\"b\":1,\"c\":2}",
      "{\"a\":1,\"b\":1}", "{\"a\":\"x\",\"b\":1.0}", "{\"a\":\"x\",\"b\":-0}"}},
    {"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"b\"],\"type\":\"object\","
     "\"additionalProperties\":false}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,\"b\":1}"}},
    /* A name that is listed stands at its place or not at all, however it is spelled. */
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}}}",
     {"{\"ab\":null,\"abc\":1,\"a\":2}", "{\"a\":1}", "{\"x\":1,\"x\":2}"},
     {"{\"x\":1,\"ab\":null}", "{\"ab\":1}", "{\"\\u0061b\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":2,"
     "\"minProperties\":1}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":\"b\"}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^i_\":{\"type\":\"integer\"},\"_s$\":{\"type\":"
     "\"string\"}},\"additionalProperties\":false}",
     {"{\"i_a\":1}", "{\"a_s\":\"\"}", "{}"},
     {"{\"a\":1}", "{\"i_a\":\"\"}", "{\"i_s\":1}", "{\"i_s\":\"\"}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":"
     "{\"type\":\"number\"}}",
     {"{}", "{\"a\":1.5}", "{\"b\":1,\"a\":2}"},
     {"{\"c\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}",
     {"[true]", "[true, false,true]"},
     {"[]", "[true,]", "[1]", "[true,true,true,true]", "[,true]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":"
     "false,"
     "\"minItems\":1}",
     {"[1]", "[1,\"a\"]"},
     {"[]", "[\"a\"]", "[1,\"a\",null]"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"éé\"", "\"😀\\n\\\"\""},
     {"\"a\"", "\"abcd\"", "\"\\n\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+$\",\"maxLength\":2}",
     {"\"a\"", "\"cb\""},
     {"\"\"", "\"abc\"", "\"d\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\"\\\\n$\"}", {"\"\\\"\\n\""}, {"\"\"\""}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
     {"-12", "0", "104", "-1", "99"},
     {"-13", "105", "-0", "1.0", "-120", "00", "1000"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":2.5}",
     {"0.1", "2.5", "2.50", "1", "0.0001", "2.49999"},
     {"0", "0.0", "-0", "-1", "2.51", "2.501", "3", "1e0"}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":-0.25}",
     {"-1.5", "-1", "-0.25", "-0.250"},
     {"-1.51", "-0.2", "-0.249", "0", "1"}},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10}",
     {"14", "21", "700"},
     {"7", "15", "0"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25}",
     {"0", "1.5", "-2.25", "3.50", "100"},
     {"0.1", "1.26"}},
    {"{\"enum\":[\"a\",1,2.5,null,[1,\"x\"],{\"k\":true}]}",
     {"\"a\"", "1", "2.5", "null", "[1, \"x\"]", "{\"k\":true}"},
     {"\"b\"", "2", "[1]", "{}", "true"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",\"bb\",1],\"minLength\":2}", {"\"bb\""}, {"\"a\"", "1"}},
    {"{\"enum\":[1,2,3,4],\"minimum\":2,\"not_really\":1,\"x-order\":1}", {NULL}, {NULL}},
    {"{\"const\":\"a\\\"b\"}", {"\"a\\\"b\""}, {"\"a\""}},
    {"{\"anyOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"null\"}]}",
     {"0", "null"},
     {"-1"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\",\"minimum\":2}]}",
     {"1", "-3", "2.5"},
     {"2", "3", "2.0", "1.5"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},\"x\":{\"type\":"
     "\"integer\"}},\"required\":[\"kind\",\"x\"]},{\"type\":\"object\",\"properties\":{\"kind\":"
     "{\"const\":\"b\"}},\"required\":[\"kind\"]}]}",
     {"{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\"}"},
     {"{\"kind\":\"a\"}", "{\"kind\":\"c\"}", "{\"kind\":\"a\",\"x\":\"1\"}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}],\"multipleOf\":2}",
     {"4"},
     {"3", "5", "6", "2"}},
    {"{\"$ref\":\"#/$defs/"
     "node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":"
     "\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
     "node\"},{\"type\":\"null\"}]}},\"required\":"
     "[\"v\",\"next\"],\"additionalProperties\":false}}}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
     {"{\"v\":1}", "{\"v\":1,\"next\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}"}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"23-01-01\""}},
    /* Names of propertyNames come once, a few of them in any order. */
    {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/n\"},\"$defs\":{\"n\":{\"enum\":["
     "\"a\",\"b\",\"c\"]}},\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":2}",
     {"{\"c\":1,\"a\":2}", "{\"a\":1, \"b\":2, \"c\":3}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"d\":1,\"a\":2}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"bb\",\"c\",\"d\",\"e\",\"f\",\"g\"]"
     ","
     "\"maxLength\":1},\"maxProperties\":3}",
     {"{}", "{\"a\":1,\"d\":2,\"g\":3}"},
     {"{\"a\":1,\"a\":1}", "{\"d\":1,\"a\":2}", "{\"bb\":1}", "{\"a\":1,\"c\":1,\"d\":1,\"e\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"properties\":{\"b\":{"
     "\"type\":"
     "\"null\"},\"z\":{}},\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"b\":null,\"a\":1}"},
     {"{\"a\":1,\"b\":null}", "{\"z\":1}", "{\"a\":null}", "{\"a\":1,\"a\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",1,1.0,null]},\"uniqueItems\":true,"
     "\"minItems\":1}",
     {"[\"a\"]", "[1,\"a\",null]", "[null,1]"},
     {"[]", "[1,1]", "[\"a\",null,\"a\"]", "[2]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8]},\"uniqueItems\":true,\"maxItems\":"
     "3}",
     {"[]", "[1,3,8]", "[8]"},
     {"[1,1]", "[3,1]", "[1,2,3,4]", "[1,2,2]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}",
     {"[]", "[false,true]", "[true]"},
     {"[true,true]", "[true,false,true]", "[null]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"[]", "[[1,1]]"}, {"[1,2]"}},
    {"{\"type\":\"string\",\"nullable\":true,\"maxLength\":1}", {"null", "\"a\""}, {"\"ab\"", "1"}},
    {"{\"type\":\"string\",\"nullable\":false}", {"\"a\""}, {"null"}},
    {"{\"type\":\"string\",\"format\":\"uuid4\"}",
     {"\"123e4567-e89b-42d3-a456-426614174000\""},
     {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567-e89b-42d3-c456-426614174000\""}},
    {"{\"type\":\"string\",\"format\":\"path\",\"maxLength\":4}",
     {"\"/a\\n\"", "\"\""},
     {"\"/abcd\"", "1"}},
    {"{\"type\":\"string\",\"format\":\"byte\"}",
     {"\"\"", "\"YQ==\"", "\"YWI=\"", "\"YWJj\""},
     {"\"YQ\"", "\"Y===\"", "\"é===\""}},
    {"{\"type\":\"string\",\"format\":\"ipvanyaddress\"}",
     {"\"1.2.3.4\"", "\"::1\""},
     {"\"1.2.3\"", "\"a\""}},
    {"{\"type\":\"string\",\"format\":\"uri-reference\"}",
     {"\"\"", "\"a/b\"", "\"//h/p?q#f\"", "\"mailto:a@b\"", "\"#f\"", "\"../x\""},
     {"\"a b\"", "\"1:x\"", "\"\\\\\"", "\"%zz\""}},
    {"{\"type\":\"string\",\"format\":\"json-pointer\"}",
     {"\"\"", "\"/a/~0~1/0\""},
     {"\"a\"", "\"/~2\"", "\"/~\""}},
    {"{\"type\":\"string\",\"contentMediaType\":\"application/json\",\"contentSchema\":{}}",
     {"\"x\""},
     {"1"}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)[a-z.]+@[a-z]+$\"}",
     {"\"a.b@c\""},
     {"\".a@c\"", "\"a..b@c\"", "\"a@\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[[:alpha:]]+$\"}",
     {"\"aZ\""},
     {"\"a]\"", "\"1\"", "\":\""}},
    /* Large multiples, by the number that is written. */
    {"{\"type\":\"integer\",\"multipleOf\":9973,\"minimum\":-30000,\"maximum\":1000000000}",
     {"0", "9973", "-9973", "-29919", "997300", "999992710"},
     {"9974", "-0", "-39892", "1000002656", "9973.0", "09973", "1", "19947"}},
    {"{\"type\":\"number\",\"multipleOf\":2500,\"exclusiveMinimum\":0,\"exclusiveMaximum\":10000}",
     {"2500", "7500.0", "5000.00"},
     {"0", "10000", "2500.5", "250", "-2500", "2500.", "02500"}},
    {"{\"type\":\"number\",\"multipleOf\":12.35,\"minimum\":-25,\"maximum\":30}",
     {"0", "12.35", "24.7", "24.70", "24.700", "-12.35", "-24.7", "0.00"},
     {"12.3", "12.36", "12.350001", "37.05", "-37.05", "24", "12"}},
    {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":150},{\"multipleOf\":400}],\"maximum\":2400,"
     "\"minimum\":1}",
     {"1200", "2400"},
     {"0", "600", "3600", "150", "400"}},
    {"{\"type\":\"integer\",\"multipleOf\":10000,\"minimum\":10001,\"maximum\":19999}",
     {NULL},
     {NULL}},
    {"{\"type\":\"integer\",\"multipleOf\":1234.5,\"maximum\":5000,\"minimum\":1}",
     {"2469", "4938"},
     {"1234", "1235", "7407"}},
    {"{\"type\":[\"string\",\"null\"],\"format\":\"uuid\"}",
     {"null", "\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123\""}},
};

static void check_row(size_t i) {
    struct error error;
    json_t *schema = value_of(rows[i].schema);
    struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
    json_decref(schema);
    if (!rows[i].good[0]) {
        assert_null(grammar);
        return;
    }
    if (!grammar) fail_msg("%s: %s", rows[i].schema, error.text);
    for (size_t k = 0; k < MOST && rows[i].good[k]; k++)
        if (!takes(grammar, str_from(rows[i].good[k])))
            fail_msg("%s has %s", rows[i].schema, rows[i].good[k]);
    for (size_t k = 0; k < MOST && rows[i].bad[k]; k++)
        if (takes(grammar, str_from(rows[i].bad[k])))
            fail_msg("%s has not %s", rows[i].schema, rows[i].bad[k]);
    grammar_drop(grammar);
}

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(i);
}

/* The time of day at which an offset has a leap second: 23:59:60 in UTC. */
static void write_leap(char *text, size_t room, int offset, int minutes_off) {
    int local = (23 * 60 + 59 + offset + minutes_off + 2 * 1440) % 1440, size = abs(offset);
    snprintf(text, room, "\"%02d:%02d:60%c%02d:%02d\"", local / 60, local % 60,
             offset < 0 ? '-' : '+', size / 60, size % 60);
}

/* Every offset has its one leap second; a minute, an hour and twelve hours next to it have none. */
static void test_leap_seconds(void **state) {
    static const int shifts[] = {1, -1, 10, -10, 60, -60, 720};
    struct error error;
    char text[32];
    (void)state;
    json_t *schema = value_of("{\"type\":\"string\",\"format\":\"time\"}");
    struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
    json_decref(schema);
    assert_non_null(grammar);
    for (int offset = -1439; offset < 1440; offset++) {
        write_leap(text, sizeof text, offset, 0);
        if (!takes(grammar, str_from(text))) fail_msg("%s is refused", text);
        for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
            write_leap(text, sizeof text, offset, shifts[i]);
            if (takes(grammar, str_from(text))) fail_msg("%s is taken", text);
        }
    }
    grammar_drop(grammar);
}

/* What cannot be held is refused with its name and place. */
static void test_refusals(void **state) {
    static const struct {
        const char *schema, *words;
    } bad[] = {
        {"{\"properties\":{\"a\":{\"items\":{\"not\":{}}}}}",
         "$.properties.a.items: the keyword 'not'"},
        {"{\"if\":{},\"then\":{}}", "$: the keyword 'if'"},
        {"{\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"contains\":{}}", "'contains'"},
        {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "'dependentRequired'"},
        {"{\"unevaluatedProperties\":false}", "'unevaluatedProperties'"},
        {"{\"nullable\":1}", "$.nullable: it must be a boolean"},
        {"{\"uniqueItems\":1}", "$.uniqueItems: it must be a boolean"},
        {"{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"format\":\"iban\"}", "$.format: the format 'iban'"},
        {"{\"pattern\":\"(?<=a)b\"}", "$.pattern: look-around"},
        {"{\"pattern\":\"((?=a).)+\"}", "$.pattern: a look-ahead"},
        {"{\"type\":\"text\"}", "$.type"},
        {"{\"type\":3}", "$.type"},
        {"{\"minLength\":-1}", "$.minLength"},
        {"{\"minLength\":\"1\"}", "$.minLength"},
        {"{\"minimum\":\"1\"}", "$.minimum"},
        {"{\"exclusiveMinimum\":true}", "$.exclusiveMinimum"},
        {"{\"multipleOf\":0}", "$.multipleOf"},
        {"{\"required\":[1]}", "$.required"},
        {"{\"properties\":[]}", "$.properties"},
        {"{\"items\":[{}]}", "$.items"},
        {"{\"anyOf\":[]}", "$.anyOf"},
        {"{\"anyOf\":{}}", "$.anyOf"},
        {"{\"properties\":{\"a\":3}}", "$.properties.a"},
        {"{\"$ref\":\"#/$defs/a\"}", "$.$ref: '#/$defs/a' names nothing"},
        {"{\"$ref\":\"https://example.com/a\"}", "$.$ref"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{}]}", "refers to itself"},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         "$.oneOf: branches 0 and 1"},
        {"{\"minProperties\":2}", "$.minProperties"},
        {"false", "no value"},
        {"{\"enum\":[]}", "no value"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no value"},
        {"{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}", "no value"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "no text"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error;
        json_t *schema = value_of(bad[i].schema);
        struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
        json_decref(schema);
        if (grammar) fail_msg("%s compiles", bad[i].schema);
        if (!strstr(error.text, bad[i].words)) fail_msg("%s: %s", bad[i].schema, error.text);
    }
}

/* Appends an object schema of many properties, or an enum, or nested references. */
static void write_large(struct buf *text, int kind) {
    switch (kind) {
    case 0: /* 2^60 ways through references */
        buf_add_text(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
        for (int i = 0; i < 60; i++)
            buf_printf(
                text,
                "\"d%d\":{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/d%d\"},"
                "\"y\":{\"$ref\":\"#/$defs/d%d\"}}},",
                i, i + 1, i + 1);
        buf_add_text(text, "\"d60\":{}}}");
        return;
    case 1: /* 2^30 branches */
        buf_add_text(text, "{\"allOf\":[");
        for (int i = 0; i < 30; i++)
            buf_printf(
                text, "%s{\"anyOf\":[{\"properties\":{\"p%d\":{}}},{\"properties\":{\"q%d\":{}}}]}",
                i ? "," : "", i, i);
        buf_add_text(text, "]}");
        return;
    case 2:
        buf_add_text(text, "{\"enum\":[0");
        for (int i = 0; i < 60000; i++) buf_printf(text, ",\"value %d\"", i * 7919);
        buf_add_text(text, "]}");
        return;
    case 3:
        buf_add_text(text, "{\"type\":\"object\",\"properties\":{\"a\":{}");
        for (int i = 0; i < 20000; i++) buf_printf(text, ",\"p%d\":{\"type\":\"string\"}", i);
        buf_add_text(text, "}}");
        return;
    case 4: /* the smallest common length is the product */
        buf_add_text(text, "{\"minLength\":1,\"allOf\":[true");
        for (int i = 3; i < 40; i += 2)
            buf_printf(text, ",{\"type\":\"string\",\"pattern\":\"^(a{%d})*$\"}", i);
        buf_add_text(text, "]}");
        return;
    default:
        buf_add_text(text, "{\"oneOf\":[true");
        for (int i = 0; i < 300; i++)
            buf_printf(text, ",{\"type\":\"object\",\"properties\":{\"k\":{\"const\":%d}}}", i);
        buf_add_text(text, "]}");
    }
}

static void test_large(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        struct buf text;
        struct error error;
        buf_init(&text, 16 << 20);
        write_large(&text, kind);
        json_t *schema = value_of(text.at);
        struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
        assert_true(kind == 0 ? grammar != NULL : grammar == NULL);
        grammar_drop(grammar);
        json_decref(schema);
        buf_release(&text);
    }
}

/* A long text is a count, and costs no more than a short one. */
static void test_long_texts(void **state) {
    (void)state;
    struct buf text;
    struct error error;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 50; i++)
        buf_printf(&text, "%s\"m%d\":{\"type\":\"string\",\"minLength\":%d}", i > 0 ? "," : "", i,
                   1000 + i);
    buf_add_text(&text, "}}");
    json_t *schema = value_of(text.at);
    struct grammar *grammar = compiled(GRAMMAR_SCHEMA, schema, &error);
    assert_non_null(grammar);
    grammar_drop(grammar);
    json_decref(schema);
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_texts),   cmocka_unit_test(test_texts),
        cmocka_unit_test(test_leap_seconds), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
