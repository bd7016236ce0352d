/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_usage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_spelling_is_read(void **state) {
    (void)state;
    static const struct {
        const char *usage;
        uint64_t prompt, cached, completion;
    } cases[] = {
        {"{\"prompt_tokens\":5,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_"
         "tokens\":"
         "3}}",
         5, 3, 7},
        {"{\"input_tokens\":5,\"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":3}}",
         5, 3, 7},
        {"{\"input_tokens\":9,\"prompt_tokens\":5,\"output_tokens\":9,\"completion_tokens\":7}", 5,
         0, 7},
        {"{\"prompt_tokens\":null,\"input_tokens\":4,\"prompt_tokens_details\":null}", 4, 0, 0},
        {"{\"prompt_tokens\":-1,\"completion_tokens\":\"7\"}", 0, 0, 0},
        {"{\"input_tokens\":5,\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":16,"
         "\"output_tokens\":7}",
         23, 16, 7},
        {"{\"input_tokens\":5,\"cache_read_input_tokens\":null,\"output_tokens\":7}", 5, 0, 7},
        {"null", 0, 0, 0},
        {"[1]", 0, 0, 0},
        {"", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer_usage usage;
        answer_usage_read(&usage, str_from(cases[i].usage));
        assert_int_equal(answer_usage_prompt(&usage), cases[i].prompt);
        assert_int_equal(answer_usage_count(usage.cached), cases[i].cached);
        assert_int_equal(answer_usage_count(usage.completion), cases[i].completion);
    }
}

static void a_count_that_is_absent_differs_from_0(void **state) {
    (void)state;
    struct answer_usage usage;
    answer_usage_read(&usage,
                      STR("{\"prompt_tokens\":0,\"prompt_tokens_details\":{\"cached_tokens\":0}}"));
    assert_non_null(usage.prompt.at);
    assert_non_null(usage.cached.at);
    assert_null(usage.completion.at);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(a_count_that_is_absent_differs_from_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
