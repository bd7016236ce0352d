/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SHAPED                                                                                     \
    "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":"   \
    "{\"type\":\"object\",\"required\":[\"a\"]}}}}"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define FORCED "{\"tools\":[" TOOL "],\"tool_choice\":\"required\"}"
#define MESSAGE(message) "{\"choices\":[{\"message\":" message ",\"finish_reason\":\"stop\"}]}"

static void a_refusal_is_an_answer_whatever_was_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *request, *answer;
        enum shape_end end;
    } cases[] = {
        {SHAPED, MESSAGE("{\"content\":\"{\\\"a\\\":1}\"}"), SHAPE_VALID},
        {SHAPED, MESSAGE("{\"content\":\"{}\"}"), SHAPE_MISMATCHED},
        {SHAPED, MESSAGE("{\"content\":null}"), SHAPE_MISMATCHED},
        {SHAPED, MESSAGE("{\"content\":null,\"refusal\":\"No.\"}"), SHAPE_UNCHECKED},
        {SHAPED, MESSAGE("{\"content\":\"\",\"refusal\":\"No.\"}"), SHAPE_UNCHECKED},
        {SHAPED, MESSAGE("{\"content\":\"No.\",\"refusal\":\"No.\"}"), SHAPE_MISMATCHED},
        {SHAPED, MESSAGE("{\"content\":[{\"text\":\"{}\"}]}"), SHAPE_MISMATCHED},
        {SHAPED, MESSAGE("{\"content\":null,\"tool_calls\":[{}]}"), SHAPE_UNCHECKED},
        {SHAPED, "{\"choices\":[{\"text\":\"{\\\"a\\\":1}\",\"finish_reason\":\"stop\"}]}",
         SHAPE_VALID},
        {SHAPED, "{\"choices\":[{\"text\":\"{\\\"a\",\"finish_reason\":\"length\"}]}",
         SHAPE_TRUNCATED},
        {FORCED, MESSAGE("{\"content\":\"x\"}"), SHAPE_MISMATCHED},
        {FORCED, MESSAGE("{\"content\":null,\"refusal\":\"No.\"}"), SHAPE_NONE},
        {FORCED,
         MESSAGE("{\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
                 "\"{}\"}}]}"),
         SHAPE_NONE},
        {"{}", MESSAGE("{\"content\":\"x\"}"), SHAPE_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *param = NULL;
        enum shape_end end =
            upstream_shape_look(str_from(cases[i].request), str_from(cases[i].answer), &param);
        if (end != cases[i].end) fail_msg("%s: %s: %d", cases[i].request, cases[i].answer, end);
        if (end == SHAPE_MISMATCHED) assert_non_null(param);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_is_an_answer_whatever_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
