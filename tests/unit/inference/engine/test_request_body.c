/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_body.h"

#include "engine/request.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCABULARY 300

/* `head`, then `piece` again and again with commas up to about `bytes`, then `tail`. */
static struct buf repeated(const char *head, const char *piece, size_t bytes, const char *tail) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, head);
    while (body.bytes < bytes) buf_printf(&body, "%s,", piece);
    buf_printf(&body, "%s%s", piece, tail);
    return body;
}

static struct refusal refused(enum endpoint endpoint, const struct buf *body) {
    struct request request;
    struct refusal refusal = {0};
    if (request_parse(&request, endpoint, buf_str(body), VOCABULARY, &refusal))
        fail_msg("was accepted");
    return refusal;
}

#define CHAT_HEAD "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\""

static void a_body_whose_tree_would_cost_more_than_eight_times_its_bytes_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *head, *piece, *tail;
    } bombs[] = {
        {CHAT_HEAD "}],\"x\":[", "{}", "]}"},
        {CHAT_HEAD "}],\"tools\":[", "[]", "]}"},
        {CHAT_HEAD "}],\"chat_template_kwargs\":{\"a\":[", "{\"b\":[]}", "]}}"},
        {CHAT_HEAD ",\"x\":[", "\"\"", "]}]}"},
        {"{\"model\":\"m\",\"messages\":[", "{}", "]}"},
        {"{\"model\":\"m\",\"prompt\":[", "1.5", "]}"},
        {"{\"model\":\"m\",\"prompt\":[", "{}", "]"}, /* not even JSON */
    };
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        struct buf body = repeated(bombs[i].head, bombs[i].piece, (size_t)3 << 20, bombs[i].tail);
        struct refusal refusal = refused(ENDPOINT_CHAT, &body);
        assert_int_equal(refusal.status, 400);
        assert_string_equal(refusal.code, "request_too_complex");
        assert_non_null(strstr(refusal.message, "too complex"));
        buf_release(&body);
    }
}

static void arguments_of_tool_calls_share_the_bound_of_the_body(void **state) {
    (void)state;
    struct buf body = repeated(CHAT_HEAD "},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
                                         "\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[",
                               "{}", (size_t)2 << 20, "]}\"}}]}]}");
    struct refusal refusal = refused(ENDPOINT_CHAT, &body);
    assert_string_equal(refusal.code, "request_too_complex");
    assert_string_equal(refusal.param, "messages[1].tool_calls[0].function.arguments");
    buf_release(&body);
}

static void a_long_text_and_many_messages_are_read(void **state) {
    (void)state;
    struct request request;
    struct refusal refusal;
    struct buf body = repeated("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"",
                               "word after word", (size_t)8 << 20, "\"}]}");
    assert_true(request_parse(&request, ENDPOINT_CHAT, buf_str(&body), VOCABULARY, &refusal));
    assert_true(request.memory_left < 7 * body.bytes);
    request_release(&request);
    buf_release(&body);
    body = repeated(
        "{\"model\":\"m\",\"messages\":[",
        "{\"role\":\"user\",\"content\":\"A message of ordinary length has more than a hundred "
        "characters, as this one and its many copies have, one by one.\"}",
        (size_t)4 << 20, "]}");
    assert_true(request_parse(&request, ENDPOINT_CHAT, buf_str(&body), VOCABULARY, &refusal));
    request_release(&request);
    buf_release(&body);
}

static void a_long_array_of_token_ids_costs_four_bytes_an_id(void **state) {
    (void)state;
    struct buf body =
        repeated("{\"model\":\"m\",\"prompt\":[", "17, 299", (size_t)3 << 20, "],\"n\":2}");
    struct request request;
    struct refusal refusal;
    assert_true(
        request_parse(&request, ENDPOINT_COMPLETIONS, buf_str(&body), VOCABULARY, &refusal));
    size_t count;
    const int32_t *ids = id_lists_get(&request.ids, 0, &count);
    assert_true(request.prompt_count == 1 && request.choices == 2 && !request.ids.is_list);
    assert_true(count > 700000 && count % 2 == 0);
    for (size_t i = 0; i < count; i += 2) assert_true(ids[i] == 17 && ids[i + 1] == 299);
    request_release(&request);
    buf_release(&body);
    body = repeated("{\"model\":\"m\",\"prompt\":[", "[ 1,2,3 ]", 6000, ", [4]]}");
    assert_true(
        request_parse(&request, ENDPOINT_COMPLETIONS, buf_str(&body), VOCABULARY, &refusal));
    assert_true(request.prompt_count == request.ids.count && request.ids.is_list);
    ids = id_lists_get(&request.ids, 1, &count);
    assert_true(count == 3 && ids[0] == 1 && ids[2] == 3);
    ids = id_lists_get(&request.ids, request.prompt_count - 1, &count);
    assert_true(count == 1 && ids[0] == 4);
    request_release(&request);
    buf_release(&body);
}

/* A long array with a fault gets the sentence that a short one gets. */
static void a_fault_in_a_long_array_is_told_as_in_a_short_one(void **state) {
    (void)state;
    static const char *const faults[] = {"300", "-1",   "1.0",           "\"a\"", "[]",
                                         "[1]", "null", "1234567890123", "{}"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char tail[64];
        snprintf(tail, sizeof tail, ",%s]}", faults[i]);
        struct buf body = repeated("{\"model\":\"m\",\"prompt\":[", "17", 30, tail);
        struct refusal of_short = refused(ENDPOINT_COMPLETIONS, &body);
        buf_release(&body);
        body = repeated("{\"model\":\"m\",\"prompt\":[", "17", 20000, tail);
        struct refusal of_long = refused(ENDPOINT_COMPLETIONS, &body);
        buf_release(&body);
        assert_string_equal(of_short.message, of_long.message);
        assert_string_equal(of_short.code, of_long.code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_whose_tree_would_cost_more_than_eight_times_its_bytes_is_refused),
        cmocka_unit_test(arguments_of_tool_calls_share_the_bound_of_the_body),
        cmocka_unit_test(a_long_text_and_many_messages_are_read),
        cmocka_unit_test(a_long_array_of_token_ids_costs_four_bytes_an_id),
        cmocka_unit_test(a_fault_in_a_long_array_is_told_as_in_a_short_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
