/* SPDX-License-Identifier: Apache-2.0 */
#include "json/fields.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct thing {
    bool is_on;
    int64_t count, expires_after_s;
    double share;
    struct str name, colour, sum;
    const json_t *parts;
};

#define AT(member) .offset = offsetof(struct thing, member)
#define FRUIT 2u

static const char *const colours[] = {"red", "blue", NULL};
static const struct field rows[] = {
    {"name", FIELD_TEXT, FIELD_ANY, 1, 8, FIELD_REQUIRED, AT(name), .description = "A name."},
    {"on", FIELD_BOOL, FIELD_ANY, AT(is_on)},
    {"count", FIELD_INTEGER, FIELD_ANY, 1, 9, 0, AT(count)},
    {"share", FIELD_NUMBER, FIELD_ANY, 0, 1, FIELD_ABOVE_MIN, AT(share)},
    {"colour", FIELD_CHOICE, FIELD_ANY, AT(colour), .choices = colours},
    {"sum", FIELD_MD5, FIELD_ANY, AT(sum)},
    {"parts", FIELD_TEXTS, FIELD_ANY, 1, 2, 0, AT(parts)},
    {"expires_after", FIELD_EXPIRY, FIELD_ANY, 10, 20, 0, AT(expires_after_s)},
    {"kernels", FIELD_INTEGER, FRUIT, 0, 5, 0, AT(count)},
};

/* The sentence of a fault is its number, which is what the tests compare. */
static bool say(struct refusal *refusal, const struct field_fault *fault) {
    return refuse(refusal, NULL, fault->field->name, "%d", (int)fault->trouble);
}

static const struct fields strict = {rows, sizeof rows / sizeof *rows, false, say};
static const struct fields lenient = {rows, sizeof rows / sizeof *rows, true, say};

static bool read_as(const struct fields *fields, unsigned sets, const char *text,
                    struct thing *thing, json_t **ret_object, struct refusal *refusal) {
    struct error error;
    if (json_read(ret_object, str_from(text), &error) != OK) fail_msg("%s", error.text);
    return fields_read(fields, sets, *ret_object, thing, refusal);
}

static void each_kind_fills_its_member(void **state) {
    (void)state;
    struct thing thing = {.count = 3};
    struct refusal refusal;
    json_t *object;
    assert_true(read_as(&strict, FIELD_ANY,
                        "{\"name\":\"n\",\"on\":true,\"share\":0.5,\"colour\":\"blue\","
                        "\"sum\":\"0123456789abcdefABCDEF0123456789\",\"parts\":[\"a\",\"b\"],"
                        "\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":20},"
                        "\"kernels\":77,\"more\":{},\"count\":null}",
                        &thing, &object, &refusal));
    assert_true(str_is(thing.name, "n") && str_is(thing.colour, "blue") && thing.sum.bytes == 32);
    assert_true(thing.is_on && thing.share == 0.5);
    assert_int_equal(thing.count, 3); /* null is absent, and another set's row is not looked at */
    assert_int_equal(thing.expires_after_s, 20);
    assert_int_equal(json_array_size(thing.parts), 2);
    json_decref(object);
}

static void the_first_fault_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *name;
        enum field_trouble trouble;
    } cases[] = {
        {"{}", "name", FIELD_MISSING},
        {"{\"name\":5}", "name", FIELD_WRONG_TYPE},
        {"{\"name\":\"\"}", "name", FIELD_BELOW},
        {"{\"name\":\"123456789\"}", "name", FIELD_ABOVE},
        {"{\"name\":\"a\\u0000\"}", "name", FIELD_HAS_NUL},
        {"{\"name\":\"n\",\"on\":1}", "on", FIELD_WRONG_TYPE},
        {"{\"name\":\"n\",\"count\":0}", "count", FIELD_BELOW},
        {"{\"name\":\"n\",\"count\":10}", "count", FIELD_ABOVE},
        {"{\"name\":\"n\",\"count\":5.0}", "count", FIELD_WRONG_TYPE},
        {"{\"name\":\"n\",\"share\":0}", "share", FIELD_BELOW},
        {"{\"name\":\"n\",\"share\":\"1\"}", "share", FIELD_WRONG_TYPE},
        {"{\"name\":\"n\",\"colour\":\"green\"}", "colour", FIELD_NO_CHOICE},
        {"{\"name\":\"n\",\"sum\":\"12\"}", "sum", FIELD_NO_MD5},
        {"{\"name\":\"n\",\"parts\":[]}", "parts", FIELD_BELOW},
        {"{\"name\":\"n\",\"parts\":[\"a\",5]}", "parts", FIELD_WRONG_TYPE},
        {"{\"name\":\"n\",\"expires_after\":{}}", "expires_after.anchor", FIELD_MISSING},
        {"{\"name\":\"n\",\"expires_after\":{\"anchor\":\"x\",\"seconds\":10}}",
         "expires_after.anchor", FIELD_NO_CHOICE},
        {"{\"name\":\"n\",\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":9}}",
         "expires_after.seconds", FIELD_BELOW},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct thing thing = {0};
        struct refusal refusal;
        json_t *object;
        char number[8];
        if (read_as(&strict, FIELD_ANY, cases[i].text, &thing, &object, &refusal))
            fail_msg("%s was taken", cases[i].text);
        snprintf(number, sizeof number, "%d", (int)cases[i].trouble);
        assert_string_equal(refusal.message, number);
        assert_string_equal(refusal.param, cases[i].name);
        json_decref(object);
    }
}

static void whole_decimals_are_integers_for_those_who_take_them(void **state) {
    (void)state;
    struct thing thing = {0};
    struct refusal refusal;
    json_t *object;
    assert_true(
        read_as(&lenient, FIELD_ANY, "{\"name\":\"n\",\"count\":5.0}", &thing, &object, &refusal));
    assert_int_equal(thing.count, 5);
    json_decref(object);
    assert_false(
        read_as(&lenient, FIELD_ANY, "{\"name\":\"n\",\"count\":5.5}", &thing, &object, &refusal));
    json_decref(object);
}

static void the_schema_has_the_same_rows(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 8192);
    const struct fields some = {rows, 4, false, say};
    fields_write_schema(&buf, &some);
    assert_string_equal(
        buf.at,
        "{\"type\":\"object\",\"required\":[\"name\"],\"properties\":{\"name\":{\"type\":"
        "\"string\",\"minLength\":1,\"maxLength\":8,\"description\":\"A name.\"},\"on\":{\"type\":"
        "[\"boolean\",\"null\"]},\"count\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,"
        "\"maximum\":9},\"share\":{\"type\":[\"number\",\"null\"],\"exclusiveMinimum\":0,"
        "\"maximum\":1}}}");
    buf_release(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_fills_its_member),
        cmocka_unit_test(the_first_fault_is_named),
        cmocka_unit_test(whole_decimals_are_integers_for_those_who_take_them),
        cmocka_unit_test(the_schema_has_the_same_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
