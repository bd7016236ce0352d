/* SPDX-License-Identifier: Apache-2.0 */
#include "api/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND_NS 1000000000ll

static void a_flood_leaves_a_bounded_number_of_lines(void **state) {
    (void)state;
    struct access access;
    uint64_t written = 0, skipped_told = 0, skipped;
    access_init(&access, false, NULL);
    for (int64_t i = 0; i < 1000000; i++) { /* 10,000 requests per second for 100 s */
        if (!access_take(&access, ACCESS_UNKNOWN, 7 * SECOND_NS + i * 100000, &skipped)) continue;
        written++;
        skipped_told += skipped;
    }
    assert_in_range(written, 1095, 1101); /* 100 at once, and 10 per second */
    /* Each line that was not written is told with the next one, and counted. */
    assert_true(access_take(&access, ACCESS_UNKNOWN, 200 * SECOND_NS, &skipped));
    assert_int_equal(written + skipped_told + skipped, 1000000);
    assert_int_equal(atomic_load(&access.skipped_total), 1000000 - written);
    /* The other kinds have lines of their own. */
    assert_true(access_take(&access, ACCESS_SERVED, 7 * SECOND_NS, &skipped));
    assert_true(access_take(&access, ACCESS_REFUSED, 7 * SECOND_NS, &skipped));
    assert_int_equal(skipped, 0);
    access_release(&access);
}

static void check(const char *param, bool is_foreign, const char *sentence, const char *wanted) {
    struct http_note note = {.is_foreign = is_foreign};
    char text[HTTP_NOTE_BYTES];
    snprintf(note.param, sizeof note.param, "%s", param);
    snprintf(note.sentence, sizeof note.sentence, "%s", sentence);
    access_sentence(&note, text);
    assert_string_equal(text, wanted);
}

static void a_sentence_of_the_server_keeps_names_and_no_texts(void **state) {
    (void)state;
    check("model", false, "The model 'org/small-1.0' does not exist.",
          "The model 'org/small-1.0' does not exist.");
    check("limit", false, "Invalid type for 'limit': expected an integer, got 'a text'.",
          "Invalid type for 'limit': expected an integer, got '…'.");
    check("webhook_url", false, "Invalid value for 'webhook_url': 'http://a/secret' is not https.",
          "Invalid value for 'webhook_url': '…' is not https.");
    check("", false, "The server's memory is full", "The server's memory is full");
    check("", false, "It was 'never closed", "It was '…'");
    check("", false, "", "");
}

static void a_sentence_of_a_worker_ends_where_it_quotes(void **state) {
    (void)state;
    check("n", true, "Invalid 'n': expected 1, but got 0 instead.",
          "Invalid 'n': expected 1, but got 0 instead.");
    check("messages[0].role", true, "Invalid value for 'messages[0].role': 'it's a' secret'.",
          "Invalid value for 'messages[0].role': '…'");
    check("", true, "1 validation error: {'input': {\"prompt\": \"secret\"}}",
          "1 validation error: {'…'");
    check("", true, "input_value=\"it's secret\", type=str", "input_value='…'");
}

static void a_long_sentence_fits(void **state) {
    (void)state;
    char sentence[HTTP_NOTE_BYTES];
    for (size_t i = 0; i + 1 < sizeof sentence; i++) sentence[i] = i % 3 == 0 ? ' ' : '\'';
    sentence[sizeof sentence - 1] = '\0';
    struct http_note note = {.is_foreign = false};
    char text[HTTP_NOTE_BYTES];
    memcpy(note.sentence, sentence, sizeof sentence);
    access_sentence(&note, text);
    assert_true(strlen(text) < HTTP_NOTE_BYTES);
    memset(note.sentence, 'a', sizeof note.sentence - 1);
    access_sentence(&note, text);
    assert_int_equal(strlen(text), HTTP_NOTE_BYTES - 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_leaves_a_bounded_number_of_lines),
        cmocka_unit_test(a_sentence_of_the_server_keeps_names_and_no_texts),
        cmocka_unit_test(a_sentence_of_a_worker_ends_where_it_quotes),
        cmocka_unit_test(a_long_sentence_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
