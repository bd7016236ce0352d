/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/shape_ends.h"

#include "batch/line.h"
#include "batch/quality.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static enum shape_end failed(const char *param, const char *type) {
    char body[256];
    snprintf(body, sizeof body,
             "{\"error\":{\"message\":\"m\",\"type\":\"%s\",\"param\":%s,\"code\":\"c\"}}", type,
             param);
    return shape_end_of(false, SHAPE_NONE, str_from(body));
}

static void an_error_about_the_shape_is_a_refusal_and_any_other_a_failure(void **state) {
    (void)state;
    const char *request = "invalid_request_error";
    assert_int_equal(failed("\"response_format\"", request), SHAPE_REFUSED);
    assert_int_equal(failed("\"response_format.json_schema.schema\"", request), SHAPE_REFUSED);
    assert_int_equal(failed("\"structured_outputs.regex\"", request), SHAPE_REFUSED);
    assert_int_equal(failed("\"guided_json\"", request), SHAPE_REFUSED);
    assert_int_equal(failed("\"messages\"", request), SHAPE_FAILED);
    assert_int_equal(failed("null", request), SHAPE_FAILED);
    /* The engine is busy with other grammars. */
    assert_int_equal(failed("\"response_format\"", "server_error"), SHAPE_FAILED);
    assert_int_equal(shape_end_of(false, SHAPE_NONE, STR("{}")), SHAPE_FAILED);
    assert_int_equal(shape_end_of(false, SHAPE_MISMATCHED, STR("{}")), SHAPE_MISMATCHED);
}

static void an_answer_that_no_worker_speaks_for_is_unchecked(void **state) {
    (void)state;
    assert_int_equal(shape_end_of(true, SHAPE_NONE, STR("{}")), SHAPE_UNCHECKED);
    assert_int_equal(shape_end_of(true, SHAPE_VALID, STR("{}")), SHAPE_VALID);
    assert_int_equal(shape_end_of(true, SHAPE_TRUNCATED, STR("{}")), SHAPE_TRUNCATED);
}

static void counts_come_back_from_the_text_of_the_batch(void **state) {
    (void)state;
    struct batch_extras extras;
    struct buf text;
    uint64_t ends[SHAPE_END_COUNT];
    struct seglog_counts counts = {.successes = 9};
    batch_extras_parse(NULL, &extras);
    buf_init(&text, 4096);
    quality_write(&text, &counts, &extras);
    assert_true(str_ends_with(buf_str(&text), STR("\"shapes\":null}")));
    assert_int_equal(shape_ends_read(text.at, ends), 0);
    for (size_t i = SHAPE_NONE + 1; i < SHAPE_END_COUNT; i++) counts.shapes[i] = 10 + i;
    buf_clear(&text);
    quality_write(&text, &counts, &extras);
    assert_true(str_ends_with(
        buf_str(&text), STR("\"shapes\":{\"asked\":81,\"valid\":11,\"truncated\":12,\"repaired\":0,"
                            "\"unchecked\":13,\"refused\":14,\"mismatched\":15,\"failed\":16}}")));
    assert_int_equal(shape_ends_read(text.at, ends), 81);
    for (size_t i = 0; i < SHAPE_END_COUNT; i++) assert_int_equal(ends[i], counts.shapes[i]);
    assert_int_equal(shape_ends_read(NULL, ends), 0);
    assert_int_equal(shape_ends_read("{\"answers\":1}", ends), 0); /* an earlier version's */
    buf_release(&text);
}

static bool asks(const char *fields) {
    char text[512];
    struct batch_line line;
    snprintf(text, sizeof text, "{\"custom_id\":\"a\",\"body\":{\"model\":\"m\"%s}}", fields);
    assert_int_equal(batch_line_read(str_from(text), &line), BATCH_LINE_READ);
    return batch_line_asks_shape(&line);
}

static void lines_that_ask_for_a_shape_are_told_from_others(void **state) {
    (void)state;
    assert_false(asks(""));
    assert_false(asks(",\"response_format\":null"));
    assert_false(asks(",\"response_format\":{\"type\":\"text\"}"));
    assert_false(asks(",\"guided_json_object\":false,\"guided_whitespace_pattern\":\" \""));
    assert_true(asks(",\"response_format\":{\"type\":\"json_object\"}"));
    assert_true(asks(",\"structured_outputs\":{\"regex\":\"a\"}"));
    assert_true(asks(",\"guided_json_object\":true"));
    assert_true(asks(",\"guided_choice\":[\"a\"]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_about_the_shape_is_a_refusal_and_any_other_a_failure),
        cmocka_unit_test(an_answer_that_no_worker_speaks_for_is_unchecked),
        cmocka_unit_test(counts_come_back_from_the_text_of_the_batch),
        cmocka_unit_test(lines_that_ask_for_a_shape_are_told_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
