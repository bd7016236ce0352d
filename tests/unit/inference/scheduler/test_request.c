/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int32_t prompt[] = {1, 2, 3};
static const int32_t stop[] = {7};
static const int32_t end[] = {8, 9};
static const struct logit_bias biases[] = {{4, 1.5f}};

static struct live_request *open_request(uint64_t id) {
    struct scheduler_request from = {
        .id = id,
        .prompt = prompt,
        .prompt_count = 3,
        .sampling = {.biases = biases,
                     .bias_count = 1,
                     .stop_tokens = stop,
                     .stop_token_count = 1,
                     .end_tokens = end,
                     .end_token_count = 2},
    };
    return live_request_open(&from, 2, 100, 5);
}

static void a_request_keeps_copies_of_all_arrays(void **state) {
    (void)state;
    struct live_request *request = open_request(1);
    assert_ptr_not_equal(request->prompt, prompt);
    assert_memory_equal(request->prompt, prompt, sizeof prompt);
    assert_ptr_not_equal(request->sampling.stop_tokens, stop);
    assert_memory_equal(request->sampling.stop_tokens, stop, sizeof stop);
    assert_memory_equal(request->sampling.end_tokens, end, sizeof end);
    assert_int_equal(request->sampling.biases[0].token, 4);
    assert_int_equal(request->sequences[1].index, 1);
    assert_ptr_equal(request->sequences[1].request, request);
    live_request_close(request);
}

static void tokens_run_on_from_the_prompt_into_what_was_generated(void **state) {
    (void)state;
    struct live_request *request = open_request(1);
    struct sequence *sequence = &request->sequences[0];
    for (int32_t i = 0; i < 200; i++) sequence_append(sequence, 100 + i);
    assert_int_equal(sequence_token_count(sequence), 203);
    int32_t tokens[4];
    sequence_tokens(sequence, 1, 4, tokens);
    assert_memory_equal(tokens, ((int32_t[]){2, 3, 100, 101}), sizeof tokens);
    sequence_tokens(sequence, 0, 3, tokens);
    assert_memory_equal(tokens, prompt, sizeof prompt);
    sequence_tokens(sequence, 199, 4, tokens);
    assert_memory_equal(tokens, ((int32_t[]){296, 297, 298, 299}), sizeof tokens);
    live_request_close(request);
}

static void the_table_finds_each_of_many_until_it_is_removed(void **state) {
    (void)state;
    struct request_table table = {0};
    assert_null(request_table_find(&table, 0));
    for (uint64_t id = 0; id < 5000; id++) request_table_add(&table, open_request(id * 4096));
    for (uint64_t id = 0; id < 5000; id += 2) {
        struct live_request *request = request_table_find(&table, id * 4096);
        assert_non_null(request);
        request_table_remove(&table, request);
        live_request_close(request);
    }
    assert_int_equal(table.count, 2500);
    for (uint64_t id = 0; id < 5000; id++) {
        struct live_request *request = request_table_find(&table, id * 4096);
        assert_true((request != NULL) == (id % 2 == 1));
        assert_true(!request || request->id == id * 4096);
    }
    request_table_release(&table);
    assert_null(request_table_find(&table, 4096));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_keeps_copies_of_all_arrays),
        cmocka_unit_test(tokens_run_on_from_the_prompt_into_what_was_generated),
        cmocka_unit_test(the_table_finds_each_of_many_until_it_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
