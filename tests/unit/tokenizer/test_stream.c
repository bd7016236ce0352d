/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "tokenizer/stream.h"

#include <string.h>

static void a_character_comes_out_with_its_last_byte(void **state) {
    (void)state;
    struct token_stream stream = {0};
    struct buf text;
    buf_init(&text, 100);
    static const char smile[] = "\xF0\x9F\x99\x82";
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(text.bytes, 0);
        assert_int_equal(stream.held_bytes, i);
        token_stream_feed(&stream, (struct str){smile + i, 1}, &text);
    }
    assert_true(str_is(buf_str(&text), smile));
    assert_int_equal(stream.held_bytes, 0);
    buf_release(&text);
}

static void what_can_never_complete_is_replaced_at_once(void **state) {
    (void)state;
    struct token_stream stream = {0};
    struct buf text;
    buf_init(&text, 100);
    token_stream_feed(&stream, STR("a\xE2\x82"), &text);
    assert_true(str_is(buf_str(&text), "a"));
    token_stream_feed(&stream, STR("b\xFF"), &text);
    assert_true(str_is(buf_str(&text), "a\xEF\xBF\xBD"
                                       "b\xEF\xBF\xBD"));
    buf_release(&text);
}

static void a_flush_replaces_what_is_held_and_starts_anew(void **state) {
    (void)state;
    struct token_stream stream = {0};
    struct buf text;
    buf_init(&text, 100);
    token_stream_flush(&stream, &text);
    assert_int_equal(text.bytes, 0);
    token_stream_feed(&stream, STR("\xF0\x9F\x99"), &text);
    token_stream_flush(&stream, &text);
    assert_true(str_is(buf_str(&text), "\xEF\xBF\xBD"));
    token_stream_feed(&stream, STR("\x82z"), &text);
    assert_true(str_is(buf_str(&text), "\xEF\xBF\xBD\xEF\xBF\xBDz"));
    buf_release(&text);
}

/* However the bytes are cut, the text is that of all of them repaired at once. */
static void cuts_do_not_change_the_text(void **state) {
    (void)state;
    static const char pieces[][5] = {
        "a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82", "\xE2\x82", "\xF0\x9F",
        "\xFF", "\x80",     "\xED\xA0",     "\xF4\x90\x80\x80", "\xC0\xAF", " "};
    struct rng rng = {7};
    struct buf bytes, whole, cut;
    buf_init(&bytes, 10000);
    buf_init(&whole, 10000);
    buf_init(&cut, 10000);
    for (int round = 0; round < 3000; round++) {
        buf_clear(&bytes);
        buf_clear(&whole);
        buf_clear(&cut);
        for (uint64_t count = rng_below(&rng, round % 100 ? 12 : 600); count > 0; count--)
            buf_add_text(&bytes, pieces[rng_below(&rng, sizeof pieces / sizeof *pieces)]);
        utf8_add_repaired(&whole, buf_str(&bytes));
        struct token_stream stream = {0};
        struct str left = buf_str(&bytes);
        while (left.bytes > 0) {
            size_t taken =
                1 + (size_t)rng_below(&rng, left.bytes < 9 ? left.bytes : left.bytes / 2);
            token_stream_feed(&stream, (struct str){left.at, taken}, &cut);
            assert_true(stream.held_bytes <= 3);
            assert_true(utf8_is_valid(buf_str(&cut)));
            left = str_skip(left, taken);
        }
        token_stream_flush(&stream, &cut);
        assert_true(str_equals(buf_str(&whole), buf_str(&cut)));
    }
    buf_release(&bytes);
    buf_release(&whole);
    buf_release(&cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_comes_out_with_its_last_byte),
        cmocka_unit_test(what_can_never_complete_is_replaced_at_once),
        cmocka_unit_test(a_flush_replaces_what_is_held_and_starts_anew),
        cmocka_unit_test(cuts_do_not_change_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
