/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/reply.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define BYTES_MAX 65536

static void feed(struct reply_reader *reader, struct str bytes) {
    char *room = reply_room(reader, bytes.bytes);
    assert_non_null(room);
    memcpy(room, bytes.at, bytes.bytes);
    buf_commit(&reader->bytes, bytes.bytes);
}

static enum err read_all(struct str bytes, struct error *error) {
    struct reply_reader reader;
    reply_reader_init(&reader, BYTES_MAX);
    const struct reply_value *values;
    size_t count;
    bool found = true;
    enum err err = OK;
    feed(&reader, bytes);
    while (err == OK && found) err = reply_next(&reader, &values, &count, &found, error);
    reply_reader_release(&reader);
    return err;
}

static void check_tree(const struct reply_value *values, size_t count) {
    assert_int_equal(count, 7);
    assert_int_equal(values[0].kind, REPLY_LIST);
    assert_int_equal(values[0].count, 4);
    assert_true(str_is(values[1].text, "OK"));
    assert_int_equal(values[2].number, -7);
    assert_int_equal(values[3].kind, REPLY_LIST);
    assert_true(str_equals(values[4].text, STR("a\r\nb")));
    assert_int_equal(values[5].kind, REPLY_NONE);
    assert_int_equal(values[6].kind, REPLY_ERROR);
    assert_ptr_equal(reply_behind(&values[3]), &values[6]);
    assert_ptr_equal(reply_behind(&values[0]), &values[7]);
}

static void a_reply_is_the_same_in_whatever_pieces_it_comes(void **state) {
    (void)state;
    struct str bytes = STR("*4\r\n+OK\r\n:-7\r\n*2\r\n$4\r\na\r\nb\r\n$-1\r\n-ERR no\r\n");
    for (size_t piece = 1; piece <= bytes.bytes; piece++) {
        struct reply_reader reader;
        reply_reader_init(&reader, BYTES_MAX);
        size_t found_count = 0;
        for (size_t at = 0; at < bytes.bytes; at += piece) {
            const struct reply_value *values;
            size_t count;
            bool found;
            struct error error;
            size_t left = bytes.bytes - at;
            feed(&reader, (struct str){bytes.at + at, left < piece ? left : piece});
            assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
            if (!found) continue;
            check_tree(values, count);
            found_count++;
        }
        assert_int_equal(found_count, 1);
        reply_reader_release(&reader);
    }
}

static void two_replies_in_one_piece_come_one_after_the_other(void **state) {
    (void)state;
    struct reply_reader reader;
    const struct reply_value *values;
    size_t count;
    bool found;
    struct error error;
    reply_reader_init(&reader, BYTES_MAX);
    feed(&reader, STR(":1\r\n*0\r\n:2"));
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_true(found && values->number == 1);
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_true(found && values->kind == REPLY_LIST && values->count == 0);
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_false(found);
    feed(&reader, STR("3\r\n"));
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_true(found && values->number == 23);
    reply_reader_release(&reader);
}

static void bytes_that_are_no_reply_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        const char *reason;
    } rows[] = {
        {"hello\r\n", "no known kind"},
        {"\r\n", "no known kind"},
        {":x\r\n", "a number that is none"},
        {"$x\r\n", "a length that is no number"},
        {"$-2\r\n", "a length that is no number"},
        {"$99999999\r\n", "too many bytes"},
        {"$9223372036854775807\r\n", "too many bytes"},
        {"*4294967296\r\n", "too many values"},
        {"*9223372036854775807\r\n", "too many values"},
        {"*1048576\r\n*1048576\r\n", "too many values"},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "too many values"},
        {"$1\r\nabc", "another length"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error error = {0};
        assert_int_equal(read_all(str_from(rows[i].bytes), &error), ERR_CORRUPT);
        if (!strstr(error.text, rows[i].reason)) fail_msg("row %zu: %s", i, error.text);
    }
    char line[REPLY_LINE_BYTES + 8];
    struct error error;
    memset(line, 'a', sizeof line);
    line[0] = '+';
    assert_int_equal(read_all((struct str){line, sizeof line}, &error), ERR_CORRUPT);
}

static void a_reader_that_has_refused_stays_bad_until_it_is_cleared(void **state) {
    (void)state;
    struct reply_reader reader;
    const struct reply_value *values;
    size_t count;
    bool found;
    struct error error;
    reply_reader_init(&reader, BYTES_MAX);
    feed(&reader, STR("?\r\n:1\r\n"));
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), ERR_CORRUPT);
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), ERR_CORRUPT);
    reply_reader_clear(&reader);
    feed(&reader, STR(":1\r\n"));
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_true(found && values->number == 1);
    reply_reader_release(&reader);
}

static void a_length_takes_no_memory_before_its_bytes_have_come(void **state) {
    (void)state;
    struct reply_reader reader;
    const struct reply_value *values;
    size_t count;
    bool found;
    struct error error;
    reply_reader_init(&reader, (size_t)1 << 30);
    feed(&reader, STR("*1000000\r\n$1000000000\r\n"));
    assert_int_equal(reply_next(&reader, &values, &count, &found, &error), OK);
    assert_false(found);
    assert_true(reader.bytes.capacity < 4096);
    assert_true(reader.value_capacity < 64);
    reply_reader_release(&reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_is_the_same_in_whatever_pieces_it_comes),
        cmocka_unit_test(two_replies_in_one_piece_come_one_after_the_other),
        cmocka_unit_test(bytes_that_are_no_reply_are_refused),
        cmocka_unit_test(a_reader_that_has_refused_stays_bad_until_it_is_cleared),
        cmocka_unit_test(a_length_takes_no_memory_before_its_bytes_have_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
