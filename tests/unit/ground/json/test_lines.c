/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/rng.h"
#include "json/jsonl.h"
#include "json/lines.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define STREAMS 60
#define LINES_MAX 12

/* A file of drawn lines, of which some are blank and some longer than the pieces of a read. */
static FILE *draw(struct rng *rng, struct buf *text) {
    static const size_t sizes[] = {0, 1, 2, 3, 40, 70000, (256 << 10) - 1, 256 << 10, 600000};
    static const char *const edges[] = {"", "", "", " ", "\r", "\t \r"};
    buf_clear(text);
    if (rng_below(rng, 4) == 0) buf_add_text(text, "\xEF\xBB\xBF");
    for (size_t left = rng_below(rng, LINES_MAX); left > 0; left--) {
        size_t bytes = sizes[rng_below(rng, sizeof sizes / sizeof *sizes)];
        for (size_t i = 0; i < bytes; i++) buf_add_byte(text, "ab"[i % 2]);
        buf_add_text(text, edges[rng_below(rng, sizeof edges / sizeof *edges)]);
        if (left > 1 || rng_below(rng, 2) == 0) buf_add_byte(text, '\n');
    }
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(text->at, 1, text->bytes, file), text->bytes);
    rewind(file);
    return file;
}

static void whole_lines_together_are_the_stream(void **state) {
    (void)state;
    struct rng rng = {2};
    struct buf text;
    struct error error;
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < STREAMS; i++) {
        FILE *file = draw(&rng, &text);
        struct lines lines;
        uint64_t at = 0, number = 0;
        lines_init(&lines, fileno(file));
        while (lines_next_whole(&lines, &error) == OK && lines.line.at) {
            assert_int_equal(lines.number, ++number);
            assert_int_equal(lines.offset, at);
            assert_true(at + lines.line.bytes <= text.bytes);
            assert_memory_equal(lines.line.at, text.at + at, lines.line.bytes);
            at += lines.line.bytes;
            const char *end = memchr(lines.line.at, '\n', lines.line.bytes);
            assert_true(end ? end == lines.line.at + lines.line.bytes - 1 : at == text.bytes);
        }
        assert_int_equal(at, text.bytes);
        lines_release(&lines);
        fclose(file);
    }
    buf_release(&text);
}

static void a_part_has_the_lines_between_its_offsets(void **state) {
    (void)state;
    struct rng rng = {4};
    struct buf text;
    struct error error;
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < STREAMS; i++) {
        FILE *file = draw(&rng, &text);
        struct lines lines;
        uint64_t begin = rng_below(&rng, text.bytes + 1);
        uint64_t end = begin + rng_below(&rng, text.bytes - begin + 1), at = begin;
        lines_init_part(&lines, fileno(file), begin, end);
        while (lines_next_whole(&lines, &error) == OK && lines.line.at) {
            assert_int_equal(lines.offset, at);
            assert_true(at + lines.line.bytes <= end);
            assert_memory_equal(lines.line.at, text.at + at, lines.line.bytes);
            at += lines.line.bytes;
            assert_true(at == end || text.at[at - 1] == '\n');
        }
        assert_int_equal(at, end);
        assert_int_equal(lseek(fileno(file), 0, SEEK_CUR), 0);
        lines_release(&lines);

        lines_init_part(&lines, fileno(file), begin, text.bytes + 1);
        enum err err = OK;
        while ((err = lines_next(&lines, &error)) == OK && lines.line.at) continue;
        assert_int_not_equal(err, OK);
        lines_release(&lines);
        fclose(file);
    }
    buf_release(&text);
}

struct expected {
    struct lines *lines;
    const char *text;
    uint64_t count;
};

static void check_line(void *context, const struct jsonl_line *line) {
    struct expected *expected = context;
    struct error error;
    uint64_t bytes = line->bytes, offset = line->offset;
    while (bytes > 0 && strchr(" \t\r", expected->text[offset + bytes - 1])) bytes--;
    for (; bytes > 0 && strchr(" \t\r", expected->text[offset]); offset++) bytes--;
    assert_int_equal(lines_next(expected->lines, &error), OK);
    assert_non_null(expected->lines->line.at);
    assert_int_equal(expected->lines->number, line->number);
    assert_int_equal(expected->lines->offset, offset);
    assert_int_equal(expected->lines->line.bytes, bytes);
    assert_memory_equal(expected->lines->line.at, expected->text + offset, bytes);
    expected->count++;
}

static void lines_are_those_of_the_splitter_without_the_space_around_them(void **state) {
    (void)state;
    struct rng rng = {3};
    struct buf text;
    struct error error;
    uint64_t count = 0;
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < STREAMS; i++) {
        FILE *file = draw(&rng, &text);
        struct lines lines;
        struct jsonl_splitter splitter;
        struct expected expected = {.lines = &lines, .text = text.at};
        lines_init(&lines, fileno(file));
        jsonl_init(&splitter);
        jsonl_feed(&splitter, buf_str(&text), check_line, &expected);
        jsonl_end(&splitter, check_line, &expected);
        assert_int_equal(lines_next(&lines, &error), OK);
        assert_null(lines.line.at);
        count += expected.count;
        lines_release(&lines);
        fclose(file);
    }
    assert_true(count > STREAMS);
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_lines_together_are_the_stream),
        cmocka_unit_test(a_part_has_the_lines_between_its_offsets),
        cmocka_unit_test(lines_are_those_of_the_splitter_without_the_space_around_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
