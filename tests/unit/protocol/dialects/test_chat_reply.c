/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/chat_reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void take(struct chat_reply *reply, const char *text) {
    struct piece piece;
    assert_true(piece_read(str_from(text), &piece));
    chat_reply_take(reply, &piece);
}

static void escapes_are_kept_as_they_came(void **state) {
    (void)state;
    struct chat_reply reply;
    struct buf text;
    chat_reply_init(&reply);
    buf_init(&text, BUF_UNLIMITED);
    take(&reply, "{\"choices\":[{\"delta\":{\"content\":\"\\ud83d\\ude00\\\"\"}}]}");
    take(&reply, "{\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\","
                 "\"stop_reason\":\"END\"}]}");
    chat_reply_add_string(&text, &reply.text);
    assert_true(str_is(buf_str(&text), "\"\\ud83d\\ude00\\\"b\""));
    assert_int_equal(reply.end, CHAT_REPLY_STOP);
    assert_true(str_is(buf_str(&reply.stop), "END"));
    buf_release(&text);
    chat_reply_release(&reply);
}

static void counts_come_from_the_usage(void **state) {
    (void)state;
    struct chat_reply reply;
    chat_reply_init(&reply);
    take(&reply, "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":4}}}");
    assert_int_equal(reply.input_tokens, 9);
    assert_int_equal(reply.output_tokens, 3);
    assert_int_equal(reply.cached_tokens, 4);
    chat_reply_release(&reply);
}

static void strange_chunks_are_refused_or_say_nothing(void **state) {
    (void)state;
    static const char *const bad[] = {"", "1", "[]", "{}", "{\"choices\":", "\"x\""};
    static const char *const odd[] = {
        "{\"choices\":{}}",
        "{\"choices\":[1,null,[]]}",
        "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":5,\"tool_calls\":{}}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[1,{\"index\":-1},{\"index\":9}]}}]}",
    };
    struct chat_reply reply;
    struct piece piece;
    chat_reply_init(&reply);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(piece_read(str_from(bad[i]), &piece));
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) take(&reply, odd[i]);
    assert_int_equal(reply.text.bytes, 0);
    assert_int_equal(reply.call_count, 0);
    chat_reply_release(&reply);
}

static void a_call_without_a_name_is_not_whole(void **state) {
    (void)state;
    struct chat_reply reply;
    chat_reply_init(&reply);
    take(&reply,
         "{\"choices\":[{\"message\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}},"
         "{\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}},"
         "{\"function\":{\"name\":\"f\",\"arguments\":\" {\\\"a\\\":1} \"}}]}}]}");
    assert_int_equal(reply.call_count, 3);
    assert_false(chat_reply_call_is_whole(&reply, 0));
    assert_false(chat_reply_call_is_whole(&reply, 1));
    assert_true(chat_reply_call_is_whole(&reply, 2));
    chat_reply_release(&reply);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_kept_as_they_came),
        cmocka_unit_test(counts_come_from_the_usage),
        cmocka_unit_test(strange_chunks_are_refused_or_say_nothing),
        cmocka_unit_test(a_call_without_a_name_is_not_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
