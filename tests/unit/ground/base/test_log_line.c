/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_line.h"

#include "base/rng.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static char line[LOG_LINE_BYTES + 1];

static size_t write_line(bool is_json, const char *format, ...) PRINTF_LIKE(2, 3);

static size_t write_line(bool is_json, const char *format, ...) {
    const struct log_head head = {"T", "serve", "info"};
    va_list args;
    va_start(args, format);
    size_t bytes = log_line_write(line, &head, is_json, format, args);
    va_end(args);
    line[bytes] = '\0';
    return bytes;
}

static void a_line_of_text_reads_like_its_format(void **state) {
    (void)state;
    write_line(false, "batch=%s event=%s lines=%u error=\"%s\", retrying", "b1", "fault", 7u, "no");
    assert_string_equal(line, "T serve info batch=b1 event=fault lines=7 error=\"no\", retrying\n");
    write_line(false, "open files stay at %llu", 1024ull);
    assert_string_equal(line, "T serve info open files stay at 1024\n");
    write_line(false, "event=full host=%s; all wait (--x=%d)", "a", 1);
    assert_string_equal(line, "T serve info event=full host=a; all wait (--x=1)\n");
    write_line(false, "seconds=%.3f mode=%04o id=%08x share=%d%% n=%zu m=%lld", 1.5, 0700u, 0xABCu,
               50, (size_t)3, -4ll);
    assert_string_equal(line,
                        "T serve info seconds=1.500 mode=0700 id=00000abc share=50% n=3 m=-4\n");
}

static void a_value_that_is_no_word_gets_quotes(void **state) {
    (void)state;
    write_line(false, "left=%s dir=%s name=%.*s next=%s", "two lines", "", 2, "abc", "a\"b");
    assert_string_equal(line, "T serve info left=\"two lines\" dir=\"\" name=ab next=\"a\\\"b\"\n");
}

static void a_line_of_json_has_a_member_for_each_field(void **state) {
    (void)state;
    write_line(true, "batch=%s event=%s lines=%u seconds=%.2f error=\"%s\", retrying", "b1",
               "fault", 7u, 0.25, "it \\ \"is\"");
    assert_string_equal(
        line, "{\"ts\":\"T\",\"level\":\"info\",\"process\":\"serve\",\"msg\":\"retrying\","
              "\"batch\":\"b1\",\"event\":\"fault\",\"lines\":7,\"seconds\":0.25,"
              "\"error\":\"it \\\\ \\\"is\\\"\"}\n");
    write_line(true, "event=ready model=%s mode=%04o", "12", 0700u);
    assert_string_equal(line,
                        "{\"ts\":\"T\",\"level\":\"info\",\"process\":\"serve\",\"msg\":\"ready\","
                        "\"event\":\"ready\",\"model\":\"12\",\"mode\":\"0700\"}\n");
}

/* What a client sends cannot end a line, begin a field or act on a terminal. */
static void no_argument_leaves_its_place(void **state) {
    (void)state;
    const char *evil =
        "x\n2026 serve error event=fake\r\x1b[2J\" status=200 \xC2\x9B\xE2\x80\xAE\xFFz";
    write_line(false, "event=request path=%s status=%d error=\"%s\"", evil, 404, evil);
    const char *shown = "\"x\\u000a2026 serve error event=fake\\u000d\\u001b[2J\\\" status=200 "
                        "\\u009b\\u202e\\xffz\"";
    char wanted[1024];
    snprintf(wanted, sizeof wanted, "T serve info event=request path=%s status=404 error=%s\n",
             shown, shown);
    assert_string_equal(line, wanted);

    write_line(true, "event=request path=%s status=%d; it said %s", evil, 404, evil);
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    assert_int_equal(json_object_size(object), 7);
    assert_int_equal(json_integer_value(json_object_get(object, "status")), 404);
    const char *path = json_string_value(json_object_get(object, "path"));
    assert_memory_equal(path, evil, strlen("x\n2026 serve error event=fake"));
    assert_true(utf8_is_valid(str_from(path)));
    json_decref(object);
}

static void check_line(bool is_json, size_t bytes) {
    assert_true(bytes <= LOG_LINE_BYTES && line[bytes - 1] == '\n');
    assert_true(utf8_is_valid((struct str){line, bytes}));
    for (size_t i = 0; i + 1 < bytes; i++)
        assert_true((unsigned char)line[i] >= ' ' && line[i] != 0x7F);
    if (!is_json) return;
    json_error_t error;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!object) fail_msg("%s: %s", error.text, line);
    assert_true(json_is_object(object));
    assert_int_equal(json_integer_value(json_object_get(object, "status")), 400);
    json_decref(object);
}

/* 20,000 lines with values of random bytes and lengths, and with random ends of their room. */
static void each_line_is_whole_whatever_its_values_are(void **state) {
    (void)state;
    struct rng rng = {7};
    static const char likely[] = "\"\\\n\r\x1b {},:=%\xC2\x9B\xE2\x80\xA8\xF0\x9F\x98\x80\xFF";
    for (int i = 0; i < 20000; i++) {
        char values[3][3000];
        for (int j = 0; j < 3; j++) {
            uint64_t mode = rng_next(&rng);
            size_t most = mode & 1 ? sizeof values[j] - 1 : 40, count = rng_next(&rng) % most;
            for (size_t at = 0; at < count; at++) {
                uint64_t draw = rng_next(&rng);
                char c = draw & 256 ? likely[draw % (sizeof likely - 1)] : (char)draw;
                values[j][at] = c ? c : 'a';
            }
            values[j][count] = '\0';
        }
        for (int is_json = 0; is_json < 2; is_json++)
            check_line(is_json, write_line(is_json, "status=%d %s a=%s b=\"%s\" c=%.*s %s, %s", 400,
                                           values[0], values[1], values[2], 9, values[0], values[2],
                                           values[1]));
    }
}

static void a_long_value_is_cut_between_characters(void **state) {
    (void)state;
    char text[5000] = "";
    for (size_t i = 0; i + 3 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 3);
    for (int is_json = 0; is_json < 2; is_json++) {
        size_t bytes = write_line(is_json, "status=%d error=\"%s\" next=%u", 400, text, 5u);
        check_line(is_json, bytes);
        assert_non_null(strstr(line, is_json ? "\xC3\xA9…\",\"next\":5}" : "\xC3\xA9…\" next=5\n"));
        assert_true(bytes < 1200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_text_reads_like_its_format),
        cmocka_unit_test(a_value_that_is_no_word_gets_quotes),
        cmocka_unit_test(a_line_of_json_has_a_member_for_each_field),
        cmocka_unit_test(no_argument_leaves_its_place),
        cmocka_unit_test(each_line_is_whole_whatever_its_values_are),
        cmocka_unit_test(a_long_value_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
