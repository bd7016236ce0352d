/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "json/envelope.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(const struct refusal *refusal, const char *expected) {
    struct buf buf;
    buf_init(&buf, 8192);
    refusal_write(&buf, refusal);
    assert_string_equal(buf.at, expected);
    buf_release(&buf);
}

static void all_four_members_are_always_there(void **state) {
    (void)state;
    struct refusal refusal;
    assert_false(refuse(&refusal, "invalid_value", "n", "Invalid 'n': %d.", 0));
    check(&refusal, "{\"error\":{\"message\":\"Invalid 'n': 0.\",\"type\":"
                    "\"invalid_request_error\",\"param\":\"n\",\"code\":\"invalid_value\"}}");
    assert_false(refuse_status(&refusal, 499, NULL, NULL, "The request was cancelled."));
    check(&refusal, "{\"error\":{\"message\":\"The request was cancelled.\",\"type\":"
                    "\"invalid_request_error\",\"param\":null,\"code\":null}}");
    assert_false(refuse_missing(&refusal, "model"));
    check(&refusal, "{\"error\":{\"message\":\"Missing required parameter: 'model'.\",\"type\":"
                    "\"invalid_request_error\",\"param\":\"model\",\"code\":"
                    "\"missing_required_parameter\"}}");
}

static void the_type_follows_the_status(void **state) {
    (void)state;
    static const struct {
        int32_t status;
        const char *type;
    } cases[] = {{400, "\"type\":\"invalid_request_error\""},
                 {429, "\"type\":\"rate_limit_exceeded\""},
                 {499, "\"type\":\"invalid_request_error\""},
                 {503, "\"type\":\"server_error\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf buf;
        buf_init(&buf, 8192);
        envelope_write(&buf, cases[i].status, NULL, NULL, STR("A sentence."));
        assert_non_null(strstr(buf.at, cases[i].type));
        buf_release(&buf);
    }
}

static void long_texts_are_cut_at_a_character(void **state) {
    (void)state;
    struct refusal refusal;
    struct buf text, body;
    buf_init(&text, 8192);
    for (int i = 0; i < 1000; i++) buf_add_text(&text, i ? "é" : "x");
    refuse(&refusal, NULL, text.at, "é%s", text.at);
    assert_true(strlen(refusal.param) >= REFUSAL_PARAM_BYTES - 2);
    assert_true(strlen(refusal.message) >= REFUSAL_MESSAGE_BYTES - 2);
    buf_init(&body, 65536);
    refusal_write(&body, &refusal);
    assert_null(strstr(body.at, "fffd"));
    buf_release(&text);
    buf_release(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_four_members_are_always_there),
        cmocka_unit_test(the_type_follows_the_status),
        cmocka_unit_test(long_texts_are_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
