/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/message_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool take(void *context, const struct message_request *request,
                 struct refusal *ret_refusal) {
    if (strcmp(request->custom_id, "refused") == 0)
        return refuse(ret_refusal, "x", "requests", "the taker refuses it");
    buf_printf(context, "%s=", request->custom_id);
    buf_add_str(context, request->params);
    buf_add_byte(context, ';');
    return true;
}

/* What is taken of a body that comes in pieces of that size, or the refusal. */
static void read_body(const char *body, size_t piece_bytes, struct buf *ret_log) {
    struct message_requests reader;
    struct refusal refusal;
    struct str rest = str_from(body);
    bool is_good = true;
    buf_clear(ret_log);
    message_requests_init(&reader, take, ret_log);
    while (is_good && rest.bytes > 0) {
        struct str piece = {rest.at, rest.bytes < piece_bytes ? rest.bytes : piece_bytes};
        is_good = message_requests_feed(&reader, piece, &refusal);
        rest = str_skip(rest, piece.bytes);
    }
    if (is_good) is_good = message_requests_end(&reader, &refusal);
    if (!is_good) buf_add_text(ret_log, refusal.message);
    message_requests_release(&reader);
}

static const struct {
    const char *body, *log;
} cases[] = {
    {"{\"requests\":[{\"custom_id\":\"a\",\"params\":{\"x\":\"]}\\\"\\\\\"}}]}",
     "a={\"x\":\"]}\\\"\\\\\"};"},
    {" { \"n\" : -1.5e3 , \"requests\" : [ {\"params\":{} , \"custom_id\":\"\\u0061\" } ,\r\n"
     "{\"custom_id\":\"b\",\"params\":{\"a\":[{}]},\"more\":null} ] , \"t\":true } ",
     "a={};b={\"a\":[{}]};"},
    {"{\"requests\":[{\"custom_id\":\"a\",\"params\":{}},{\"custom_id\":\"refused\",\"params\":{}}]"
     "}",
     "a={};the taker refuses it"},
    {"{\"requests\":[1]}", "requests.0: expected an object, got a number"},
    {"{\"requests\":[{\"custom_id\":\"a\",\"params\":{}}",
     "a={};requests.0: the body ends too early, after 42 bytes"},
    {"{\"x\":tru,\"requests\":[]}",
     "body: not valid JSON: invalid token near 'tru', at byte 3, counted from byte 6 of the body"},
};

static void every_size_of_pieces_gives_the_same(void **state) {
    (void)state;
    struct buf log;
    buf_init(&log, BUF_UNLIMITED);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 12; piece++) {
            read_body(cases[i].body, piece, &log);
            assert_string_equal(log.at, cases[i].log);
        }
    buf_release(&log);
}

static void a_request_that_never_ends_has_a_bound(void **state) {
    (void)state;
    static const char start[] = "{\"requests\":[{\"custom_id\":\"a\",\"params\":{\"x\":\"";
    struct message_requests reader;
    struct refusal refusal;
    struct buf log, piece;
    buf_init(&log, BUF_UNLIMITED);
    buf_init(&piece, BUF_UNLIMITED);
    for (size_t i = 0; i < 65536; i++) buf_add_byte(&piece, 'x');
    message_requests_init(&reader, take, &log);
    assert_true(message_requests_feed(&reader, str_from(start), &refusal));
    size_t fed = 0;
    while (message_requests_feed(&reader, buf_str(&piece), &refusal)) {
        fed += piece.bytes;
        assert_true(fed <= MESSAGE_REQUEST_BYTES_MAX);
    }
    assert_non_null(strstr(refusal.message, "requests.0: it begins at byte 14 of the body"));
    message_requests_release(&reader);
    buf_release(&log);
    buf_release(&piece);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_of_pieces_gives_the_same),
        cmocka_unit_test(a_request_that_never_ends_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
