/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST "Host: localhost\r\n"

static struct head read_text(const char *text, enum head_state expected) {
    struct head head;
    size_t bytes = strlen(text);
    /* Fed byte by byte, so that every place to stop is tried. */
    enum head_state state = HEAD_INCOMPLETE;
    for (size_t count = 1; count <= bytes && state == HEAD_INCOMPLETE; count++) {
        char *exact = malloc(count);
        assert_non_null(exact);
        memcpy(exact, text, count);
        state = head_read(&head, (struct str){exact, count}, count - 1);
        free(exact);
    }
    if (state != expected) print_error("%s\n", text);
    assert_int_equal(state, expected);
    struct head whole;
    assert_int_equal(head_read(&whole, str_from(text), 0), expected);
    if (state != HEAD_INCOMPLETE) assert_int_equal(whole.refusal_status, head.refusal_status);
    return whole;
}

static void a_plain_request_is_accepted_with_its_length(void **state) {
    (void)state;
    const char *text = "GET /v1/models?a=b HTTP/1.1\r\n" HOST "Accept: */*\r\n\r\n";
    struct head head = read_text(text, HEAD_COMPLETE);
    assert_int_equal(head.bytes, strlen(text));
    assert_int_equal(head.body, HEAD_BODY_NONE);
}

static void bodies_are_none_sized_or_chunked(void **state) {
    (void)state;
    struct head head =
        read_text("POST / HTTP/1.1\r\n" HOST "Content-Length: 42\r\n\r\n", HEAD_COMPLETE);
    assert_int_equal(head.body, HEAD_BODY_LENGTH);
    assert_int_equal(head.body_bytes, 42);
    head = read_text("POST / HTTP/1.1\r\n" HOST "content-length: 0\r\n\r\n", HEAD_COMPLETE);
    assert_int_equal(head.body, HEAD_BODY_NONE);
    head =
        read_text("POST / HTTP/1.1\r\n" HOST "transfer-ENCODING: Chunked\r\n\r\n", HEAD_COMPLETE);
    assert_int_equal(head.body, HEAD_BODY_CHUNKED);
}

static void what_two_readers_could_take_differently_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\n" HOST "\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: localhost\n\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A: b\r\n folded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A: b\r\n\tfolded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "A: b\001c\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 1 2\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 9999999999999999999\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nauthorization: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n", 417},
        {"GET  / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /\r\n" HOST "\r\n", 400},
        {"GET / HTTP/1.1 \r\n" HOST "\r\n", 400},
        {"GET / http/1.1\r\n" HOST "\r\n", 400},
        {"GET / HTTP/2.0\r\n" HOST "\r\n", 505},
        {"GET x HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http://x/ HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http://localhost HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http:///a HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http://u@localhost/ HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET http://localhost?a=/ HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET ftp://localhost/ HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /\177 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"GET /\303\244 HTTP/1.1\r\n" HOST "\r\n", 400},
        {"G(T / HTTP/1.1\r\n" HOST "\r\n", 400},
        {"\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct head head = read_text(cases[i].text, HEAD_REFUSED);
        assert_int_equal(head.refusal_status, cases[i].status);
        assert_non_null(head.refusal);
    }
}

static void a_nul_in_a_header_is_refused(void **state) {
    (void)state;
    struct head head;
    struct str text = STR("GET / HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n");
    assert_int_equal(head_read(&head, text, 0), HEAD_REFUSED);
}

static char *repeat(const char *start, const char *piece, size_t count, const char *end) {
    size_t bytes = strlen(start) + strlen(piece) * count + strlen(end) + 1;
    char *text = malloc(bytes), *at = text;
    assert_non_null(text);
    at = mempcpy(at, start, strlen(start));
    for (size_t i = 0; i < count; i++) at = mempcpy(at, piece, strlen(piece));
    memcpy(at, end, strlen(end) + 1);
    return text;
}

static int status_of(char *text) {
    struct head head;
    enum head_state state = head_read(&head, str_from(text), 0);
    free(text);
    return state == HEAD_REFUSED ? head.refusal_status : state == HEAD_COMPLETE ? 0 : -1;
}

static void sizes_are_bounded_to_the_byte(void **state) {
    (void)state;
    const char *tail = " HTTP/1.1\r\n" HOST "\r\n";
    assert_int_equal(status_of(repeat("GET /", "a", HEAD_TARGET_BYTES_MAX - 1, tail)), 0);
    assert_int_equal(status_of(repeat("GET /", "a", HEAD_TARGET_BYTES_MAX, tail)), 414);
    assert_int_equal(status_of(repeat("GET /", "a", 2 * HEAD_BYTES_MAX, "")), 414);
    const char *start = "GET / HTTP/1.1\r\n" HOST;
    assert_int_equal(status_of(repeat(start, "a:b\r\n", HEAD_FIELDS_MAX - 1, "\r\n")), 0);
    assert_int_equal(status_of(repeat(start, "a:b\r\n", HEAD_FIELDS_MAX, "\r\n")), 431);
    size_t fixed = strlen(start) + strlen("a:") + strlen("\r\n\r\n");
    char *line = repeat("a:", "b", HEAD_BYTES_MAX - fixed, "\r\n");
    assert_int_equal(status_of(repeat(start, line, 1, "\r\n")), 0);
    free(line);
    line = repeat("a:", "b", HEAD_BYTES_MAX - fixed + 1, "\r\n");
    assert_int_equal(status_of(repeat(start, line, 1, "\r\n")), 431);
    free(line);
    assert_int_equal(status_of(repeat(start, "a: bcdefgh\r\n", 2000, "")), 431);
}

/* Feeds a chunked body cut at `cut`; returns the state and how many bytes belong to it. */
static enum head_state scan(struct str text, size_t cut, size_t *ret_used) {
    struct chunk_scan scan = {0};
    size_t used = 0;
    char *copy = malloc(text.bytes + 1);
    assert_non_null(copy);
    memcpy(copy, text.at, text.bytes);
    enum head_state state = chunk_scan_feed(&scan, copy, cut, &used);
    *ret_used = used;
    if (state == HEAD_INCOMPLETE) {
        assert_int_equal(used, cut);
        state = chunk_scan_feed(&scan, copy + cut, text.bytes - cut, &used);
        *ret_used = cut + used;
    }
    free(copy);
    return state;
}

static void a_blank_before_an_extension_is_made_a_part_of_it(void **state) {
    (void)state;
    struct chunk_scan scan = {0};
    char text[] = "5 \t;a b\r\nh llo\r\n0\r\n\r\n";
    size_t used;
    assert_int_equal(chunk_scan_feed(&scan, text, strlen(text), &used), HEAD_COMPLETE);
    assert_string_equal(text, "5;;;a b\r\nh llo\r\n0\r\n\r\n");
}

static void a_chunked_body_ends_where_its_last_chunk_does(void **state) {
    (void)state;
    struct str text = STR("5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nGET /");
    for (size_t cut = 0; cut <= text.bytes; cut++) {
        size_t used;
        assert_int_equal(scan(text, cut, &used), HEAD_COMPLETE);
        assert_int_equal(used, text.bytes - 5);
    }
}

static void extensions_and_trailers_of_chunks_are_skipped(void **state) {
    (void)state;
    static const char *const cases[] = {
        "5;ext=1\r\nhello\r\n0\r\n\r\n",
        "5 ; a=\"b;c\";d\r\nhello\r\n0;last\r\n\r\n",
        "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        "0\r\na:\r\nContent-Lengths:\tc d\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 0; cut <= strlen(cases[i]); cut++) {
            size_t used;
            assert_int_equal(scan(str_from(cases[i]), cut, &used), HEAD_COMPLETE);
            assert_int_equal(used, strlen(cases[i]));
        }
}

static void extensions_and_trailers_are_bounded(void **state) {
    (void)state;
    char *texts[] = {repeat("5;", "a", CHUNK_EXTRA_BYTES_MAX + 1, ""),
                     repeat("0\r\n", "a: b\r\n", CHUNK_EXTRA_BYTES_MAX, "")};
    for (size_t i = 0; i < 2; i++) {
        size_t used;
        assert_int_equal(scan(str_from(texts[i]), 1, &used), HEAD_REFUSED);
        free(texts[i]);
    }
}

static void expect_moved(const char *before, const char *after) {
    char text[200];
    snprintf(text, sizeof text, "%s", before);
    head_move_blanks(text, strlen(text));
    assert_string_equal(text, after);
}

static void a_blank_after_a_value_goes_before_it(void **state) {
    (void)state;
    expect_moved("GET / HTTP/1.1\r\nHost:a\r\nContent-Length: 12 \t\r\nA: \r\nB: c d \r\n\r\n",
                 "GET / HTTP/1.1\r\nHost:a\r\nContent-Length:   12\r\nA: \r\nB:  c d\r\n\r\n");
    expect_moved("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\n\r\n");
}

static void a_target_in_absolute_form_counts_for_its_path(void **state) {
    (void)state;
    assert_int_equal(head_origin_bytes(STR("/v1")), 0);
    assert_int_equal(head_origin_bytes(STR("HTTP://a:80/v1")), 11);
    assert_int_equal(head_origin_bytes(STR("https://[::1]:80/")), 16);
    assert_int_equal(head_origin_bytes(STR("x")), SIZE_MAX);
    read_text("GET http://LOCALHOST:8080/ HTTP/1.1\r\n" HOST "\r\n", HEAD_COMPLETE);
    read_text("GET http://[::1]:8080/ HTTP/1.1\r\nHost: [::1]\r\n\r\n", HEAD_COMPLETE);
}

static void anything_but_chunks_is_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        ";ext=1\r\nhello",
        "5 x\r\n",
        "5;a\nhello",
        "5;a\001\r\n",
        "0\r\nno colon\r\n",
        "0\r\n: x\r\n",
        "0\r\nContent-LENGTH: 4\r\n\r\n",
        "0\r\na: b\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\n folded: x",
        "0\r\na: b\n\r\n",
        "0\r\na: b\r\r\n",
        "\r\nhello",
        "g\r\n",
        "5\nhello",
        "5\r\nhelloX\r\n",
        "5\r\nhello\n0\r\n",
        "0x5\r\n",
        "0000000000000005\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "-1\r\n",
        "5 \r\n",
        "ffffffffffffffff\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 0; cut <= strlen(cases[i]); cut++) {
            size_t used;
            assert_int_equal(scan(str_from(cases[i]), cut, &used), HEAD_REFUSED);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_request_is_accepted_with_its_length),
        cmocka_unit_test(bodies_are_none_sized_or_chunked),
        cmocka_unit_test(what_two_readers_could_take_differently_is_refused),
        cmocka_unit_test(a_nul_in_a_header_is_refused),
        cmocka_unit_test(sizes_are_bounded_to_the_byte),
        cmocka_unit_test(a_chunked_body_ends_where_its_last_chunk_does),
        cmocka_unit_test(extensions_and_trailers_of_chunks_are_skipped),
        cmocka_unit_test(a_blank_before_an_extension_is_made_a_part_of_it),
        cmocka_unit_test(extensions_and_trailers_are_bounded),
        cmocka_unit_test(a_blank_after_a_value_goes_before_it),
        cmocka_unit_test(a_target_in_absolute_form_counts_for_its_path),
        cmocka_unit_test(anything_but_chunks_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
