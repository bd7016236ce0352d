/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/embedding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void the_vector_with_the_lowest_index_is_the_first(void **state) {
    (void)state;
    static const struct {
        const char *data, *first;
        uint64_t count;
    } cases[] = {
        {"[{\"index\":0,\"embedding\":[1]}]", "[1]", 1},
        {"[{\"index\":1,\"embedding\":[1]},{\"index\":0,\"embedding\":[2]}]", "[2]", 2},
        {"[{\"embedding\":\"AAAA\"},{\"embedding\":[2]}]", "\"AAAA\"", 2},
        {"[{\"embedding\":null}]", NULL, 1},
        {"[{\"id\":\"model\"}]", NULL, 1},
        {"[7]", NULL, 1},
        {"[]", NULL, 0},
        {"{}", NULL, 0},
        {"", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t count;
        struct str first = embedding_first(str_from(cases[i].data), &count);
        assert_int_equal(count, cases[i].count);
        if (cases[i].first)
            assert_true(str_is(first, cases[i].first));
        else
            assert_null(first.at);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vector_with_the_lowest_index_is_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
