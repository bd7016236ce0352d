/* SPDX-License-Identifier: Apache-2.0 */
#include "json/cost.h"
#include "json/json.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The memory of jansson, as malloc's chunks, and the call that fails (0: none). */
static size_t held, peak, calls, failing_call;

static void *counted_alloc(size_t bytes) {
    if (++calls == failing_call) return NULL;
    void *memory = malloc(bytes);
    if (!memory) abort();
    held += malloc_usable_size(memory) + 8;
    if (held > peak) peak = held;
    return memory;
}

static void counted_free(void *memory) {
    if (memory) held -= malloc_usable_size(memory) + 8;
    free(memory);
}

static uint64_t random_state = 20261122;

static uint32_t below(uint32_t count) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % count;
}

static void add_random(struct buf *buf, unsigned depth);

static void add_random_string(struct buf *buf) {
    static const char *const pieces[] = {"a",      "\\n", "\\u0041", "\xC3\xA9", "\xF0\x9F\x98\x80",
                                         "[{\\\"", "0"};
    uint32_t count = below(3) ? below(4) : below(300);
    buf_add_byte(buf, '"');
    for (uint32_t i = 0; i < count; i++) buf_add_text(buf, pieces[below(7)]);
    buf_add_byte(buf, '"');
}

static void add_random_members(struct buf *buf, unsigned depth, bool is_object) {
    uint32_t count = below(4) ? below(4) : below(depth < 3 ? 60 : 10);
    buf_add_byte(buf, is_object ? '{' : '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) buf_add_byte(buf, ',');
        if (below(20) == 0) buf_add_byte(buf, ' ');
        if (is_object && below(5)) {
            buf_printf(buf, "\"%x\":", below(1u << 20));
        } else if (is_object) {
            add_random_string(buf);
            buf_add_byte(buf, ':');
        }
        add_random(buf, depth + 1);
    }
    buf_add_byte(buf, is_object ? '}' : ']');
}

static void add_random(struct buf *buf, unsigned depth) {
    static const char *const plain[] = {"0",     "-1.5e3", "123456789", "true",
                                        "false", "null",   "{}",        "[]"};
    uint32_t kind = depth > 8 ? 2 + below(4) : below(6);
    if (kind < 2)
        add_random_members(buf, depth, kind == 0);
    else if (kind < 4)
        add_random_string(buf);
    else
        buf_add_text(buf, plain[below(8)]);
}

static void check_cost(struct str text, bool is_whole) {
    json_t *value = NULL;
    size_t deep_at, cost = json_cost(text, &deep_at);
    held = peak = 0;
    if (json_read(&value, text, NULL) == OK) json_decref(value);
    assert_int_equal(held, 0);
    if (peak > cost) fail_msg("%zu bytes of memory, foreseen %zu: %.200s", peak, cost, text.at);
    /* Not so far above it that honest texts are refused. */
    if (is_whole && cost > 2 * peak + 600)
        fail_msg("foreseen %zu, but %zu were taken: %.200s", cost, peak, text.at);
}

static void no_tree_takes_more_than_was_foreseen(void **state) {
    (void)state;
    for (int i = 0; i < 4000; i++) {
        struct buf text;
        buf_init(&text, BUF_UNLIMITED);
        add_random(&text, 0);
        check_cost(buf_str(&text), true);
        if (i % 4 == 0) /* cut off somewhere: the tree up to there was built */
            check_cost((struct str){text.at, 1 + below((uint32_t)text.bytes)}, false);
        buf_release(&text);
    }
}

/* {"x":[{},{},…]} and its relatives. */
static void bombs_are_refused_before_anything_is_built(void **state) {
    (void)state;
    static const char *const pieces[] = {"{}", "[]", "0", "\"\"", "[[]]", "{\"a\":0}", "[{}]"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct buf text;
        json_t *value;
        struct error error;
        buf_init(&text, BUF_UNLIMITED);
        buf_add_text(&text, "{\"x\":[");
        while (text.bytes < 1 << 20) buf_printf(&text, "%s,", pieces[i]);
        buf_printf(&text, "%s]}", pieces[i]);
        calls = 0;
        size_t room = 8 * text.bytes;
        assert_int_equal(json_read_within(&value, buf_str(&text), &room, &error), ERR_LIMIT);
        assert_int_equal(room, 8 * text.bytes);
        assert_int_equal(calls, 0);
        assert_non_null(strstr(error.text, "as a tree of values"));
        check_cost(buf_str(&text), true);
        buf_release(&text);
    }
}

static void long_texts_and_ordinary_bodies_cost_less_than_eight_times_their_bytes(void **state) {
    (void)state;
    struct buf text;
    json_t *value;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, "{\"messages\":[");
    for (int i = 0; i < 1000; i++)
        buf_printf(&text, "%s{\"role\":\"user\",\"content\":\"%0100d\"}", i ? "," : "", i);
    buf_add_text(&text, "]}");
    size_t room = 8 * text.bytes;
    assert_int_equal(json_read_within(&value, buf_str(&text), &room, NULL), OK);
    assert_true(room < 8 * text.bytes);
    json_decref(value);
    buf_release(&text);
}

static void the_text_is_not_blamed_for_a_machine_without_memory(void **state) {
    (void)state;
    struct str text = STR(
        "{\"a\":[1,2.5,\"x\",{\"b\":null,\"c\":\"\\u00e9 and a longer text, of 100 bytes and more, "
        "so that the buffer of the lexer has to grow at least once\"}],\"d\":[[],{}]}");
    enum err err = ERR_UNAVAILABLE;
    json_t *whole = NULL;
    assert_int_equal(json_read(&whole, text, NULL), OK);
    for (size_t nth = 1; err != OK; nth++) {
        json_t *value = NULL;
        struct error error;
        calls = 0;
        failing_call = nth;
        err = json_read(&value, text, &error);
        if (err == OK) {
            assert_true(json_equal(value, whole));
            json_decref(value);
        } else {
            assert_int_equal(err, ERR_UNAVAILABLE);
            assert_non_null(strstr(error.text, "no memory"));
        }
        assert_true(nth < 1000);
    }
    failing_call = 0;
    json_decref(whole);
}

static void numbers_and_keys_that_the_reader_cannot_hold_are_the_texts_fault(void **state) {
    (void)state;
    static const char *const bad[] = {"[123456789012345678901]", "[1e999]", "{\"a\\u0000b\":1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *value;
        struct error error;
        assert_int_equal(json_read(&value, str_from(bad[i]), &error), ERR_INVALID);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_tree_takes_more_than_was_foreseen),
        cmocka_unit_test(bombs_are_refused_before_anything_is_built),
        cmocka_unit_test(long_texts_and_ordinary_bodies_cost_less_than_eight_times_their_bytes),
        cmocka_unit_test(the_text_is_not_blamed_for_a_machine_without_memory),
        cmocka_unit_test(numbers_and_keys_that_the_reader_cannot_hold_are_the_texts_fault),
    };
    json_set_alloc_funcs(counted_alloc, counted_free); /* before the first reading */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
