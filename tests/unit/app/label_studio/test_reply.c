/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"
#include "label_studio/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Checks the object of an answer with this message; NULL: it has none. */
static void check(const char *message, const char *object) {
    struct buf line;
    struct reply reply;
    struct error error;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(
        &line,
        "{\"response\":{\"status_code\":200,\"body\":{\"choices\":[{\"index\":1,\"text\":\"x\"},"
        "{\"index\":0,\"message\":%s}]}},\"error\":null}",
        message);
    assert_int_equal(reply_read(&reply, buf_str(&line), &error), OK);
    buf_clear(&line);
    if (reply.object) json_write(&line, reply.object);
    if (object)
        assert_string_equal(line.at, object);
    else
        assert_null(reply.object);
    reply_release(&reply);
    buf_release(&line);
}

#define CALL(arguments) "[{\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]"

static void an_answer_is_a_content_a_call_or_a_refusal(void **state) {
    (void)state;
    check("{\"content\":\"{\\\"a\\\":1}\"}", "{\"a\":1}");
    check("{\"content\":\"Yes.\",\"refusal\":\"No.\"}", "{\".text\":\"Yes.\"}");
    check("{\"content\":\"Yes.\",\"tool_calls\":" CALL("\"{\\\"a\\\":1}\"") "}",
          "{\".text\":\"Yes.\"}");
    check("{\"content\":\"\",\"tool_calls\":" CALL("\"{\\\"a\\\":1}\"") "}", "{\"a\":1}");
    check("{\"content\":null,\"tool_calls\":" CALL("{\"a\":1}") "}", "{\"a\":1}");
    check("{\"content\":null,\"tool_calls\":" CALL("\"7\"") "}",
          "{\".text\":\"[{\\\"function\\\":{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":\\\"7\\\"}}]"
          "\"}");
    check("{\"content\":null,\"refusal\":\"No.\"}", "{\".text\":\"No.\"}");
    check("{\"content\":\"\",\"refusal\":\"No.\"}", "{\".text\":\"No.\"}");
    check("{\"content\":\"\"}", "{\".text\":\"\"}");
    check("{\"content\":null}", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_a_content_a_call_or_a_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
