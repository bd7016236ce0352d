/* SPDX-License-Identifier: Apache-2.0 */
/* Events of streams and whole answers, as several servers write them. */
#include "bench/answer_event.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct answer_event read_event(const char *text) {
    struct answer_event event;
    assert_true(answer_event_read(&event, str_from(text)));
    return event;
}

static void text_thoughts_and_calls_are_tokens(void **state) {
    (void)state;
    static const char *const with[] = {
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}",
        "{\"choices\":[{\"text\":\"a\"}]}",
        "{\"choices\":[{\"message\":{\"content\":\"a\"}}]}",
    };
    static const char *const without[] = {
        "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":null},\"finish_reason\":\"stop\"}]}",
        "{\"choices\":[]}",
        "{}",
        "[DONE]",
    };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        assert_true(read_event(with[i]).has_text);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_false(read_event(without[i]).has_text);
}

static void ends_errors_and_usage_are_told(void **state) {
    (void)state;
    assert_true(read_event(" [DONE] ").is_end);
    assert_true(read_event("{\"choices\":[{\"finish_reason\":\"length\"}]}").is_finished);
    assert_false(read_event("{\"choices\":[{\"finish_reason\":null}]}").is_finished);
    assert_true(read_event("{\"error\":{\"message\":\"x\"}}").is_error);
    assert_false(read_event("{\"error\":null}").is_error);
    assert_false(read_event("{\"usage\":null}").has_usage);
    struct answer_event is =
        read_event("{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    assert_true(is.has_usage);
    assert_int_equal(is.prompt_tokens, 5);
    assert_int_equal(is.completion_tokens, 7);
    assert_int_equal(is.cached_tokens, 3);
}

static void other_bytes_are_no_event(void **state) {
    (void)state;
    static const char *const bad[] = {"", "x", "[]", "{", "\"a\"", "{\"a\":1} x"};
    struct answer_event event;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(answer_event_read(&event, str_from(bad[i])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_thoughts_and_calls_are_tokens),
        cmocka_unit_test(ends_errors_and_usage_are_told),
        cmocka_unit_test(other_bytes_are_no_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
