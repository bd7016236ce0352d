/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/message_batch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    enum batch_status status;
    uint64_t total, completed, failed;
    const char *counts;
} ends[] = {
    {BATCH_VALIDATING, 0, 0, 0, "9,\"succeeded\":0,\"errored\":0,\"canceled\":0,\"expired\":0}"},
    {BATCH_IN_PROGRESS, 9, 4, 1, "9,\"succeeded\":0,\"errored\":0,\"canceled\":0,\"expired\":0}"},
    {BATCH_CANCELLING, 9, 4, 1, "9,\"succeeded\":0,\"errored\":0,\"canceled\":0,\"expired\":0}"},
    {BATCH_COMPLETED, 9, 7, 2, "0,\"succeeded\":7,\"errored\":2,\"canceled\":0,\"expired\":0}"},
    {BATCH_CANCELLED, 9, 4, 1, "0,\"succeeded\":4,\"errored\":1,\"canceled\":4,\"expired\":0}"},
    {BATCH_CANCELLED, 0, 0, 0, "0,\"succeeded\":0,\"errored\":0,\"canceled\":9,\"expired\":0}"},
    {BATCH_EXPIRED, 9, 4, 1, "0,\"succeeded\":4,\"errored\":1,\"canceled\":0,\"expired\":4}"},
    {BATCH_FAILED, 0, 0, 0, "0,\"succeeded\":0,\"errored\":9,\"canceled\":0,\"expired\":0}"},
};

static void counts_stand_still_until_the_end_and_add_up_to_all_requests(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const struct store_batch batch = {.id = "batch_1",
                                          .inline_requests = 9,
                                          .status = ends[i].status,
                                          .total = ends[i].total,
                                          .completed = ends[i].completed,
                                          .failed = ends[i].failed};
        buf_clear(&text);
        message_batch_write(&text, &batch, "http://h");
        if (!strstr(text.at, ends[i].counts)) fail_msg("%zu: %s", i, text.at);
        bool has_results = strstr(text.at, "\"http://h/v1/messages/batches/msgbatch_1/results\"");
        assert_int_equal(has_results, ends[i].status >= BATCH_COMPLETED);
    }
    buf_release(&text);
}

static void ids_are_those_of_batches_under_another_name(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    message_batch_add_id(&text, "batch_0f");
    assert_string_equal(text.at, "msgbatch_0f");
    assert_true(message_batch_read_id(buf_str(&text), id));
    assert_string_equal(id, "batch_0f");
    static const char too_long[] = "msgbatch_00000000000000000000000000000000000000000000000000"
                                   "00000000000000000000000000000000000000000000000000";
    static const char *const bad[] = {"", "msgbatch_", "batch_0f", "MSGBATCH_0f", too_long};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(message_batch_read_id(str_from(bad[i]), id));
    buf_release(&text);
}

#define RAN(status, body)                                                                          \
    "{\"id\":\"r\",\"custom_id\":\"a\",\"response\":{\"status_code\":" status                      \
    ",\"request_id\":\"req_1\",\"body\":" body "},\"error\":null}"
#define DID_NOT(code)                                                                              \
    "{\"id\":\"r\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"" code              \
    "\",\"message\":\"Why.\"}}"
#define FAULT(type, message, request)                                                              \
    "{\"type\":\"errored\",\"error\":{\"type\":\"error\",\"error\":{\"type\":\"" type              \
    "\",\"message\":\"" message "\"},\"request_id\":" request "}}"

static const struct {
    const char *record, *result;
} results[] = {
    {RAN("200", "{\"type\":\"message\",\"content\":[]}"),
     "{\"type\":\"succeeded\",\"message\":{\"type\":\"message\",\"content\":[]}}"},
    {RAN("400", "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                "\"x\"}}"),
     FAULT("invalid_request_error", "x", "\"req_1\"")},
    {RAN("429", "{\"error\":{\"message\":\"x\",\"type\":\"rate_limit_exceeded\"}}"),
     FAULT("rate_limit_error", "x", "\"req_1\"")},
    {RAN("500", "{}"), FAULT("api_error", "The worker's error has no form.", "\"req_1\"")},
    {RAN("200", "{\"object\":\"chat.completion\"}"),
     FAULT("api_error",
           "This request was one of another API. GET /v1/batches/{id}/results has its answer.",
           "null")},
    {DID_NOT("batch_expired"), "{\"type\":\"expired\"}"},
    {DID_NOT("batch_cancelled"), "{\"type\":\"canceled\"}"},
    {DID_NOT("request_timeout"), FAULT("timeout_error", "Why.", "null")},
    {DID_NOT("batch_failed"), FAULT("api_error", "Why.", "null")},
};

static void each_record_becomes_one_result(void **state) {
    (void)state;
    struct buf text, wanted;
    buf_init(&text, BUF_UNLIMITED);
    buf_init(&wanted, BUF_UNLIMITED);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        buf_clear(&text);
        buf_clear(&wanted);
        buf_printf(&wanted, "{\"custom_id\":\"a\",\"result\":%s}\n", results[i].result);
        assert_true(message_batch_add_result(&text, str_from(results[i].record)));
        assert_string_equal(text.at, wanted.at);
    }
    static const char *const bad[] = {"",
                                      "5",
                                      "{}",
                                      "{\"custom_id\":\"a\"}",
                                      "{\"custom_id\":5,\"response\":null,\"error\":{}}",
                                      RAN("\"x\"", "{}"),
                                      RAN("200", "[]")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(message_batch_add_result(&text, str_from(bad[i])));
    buf_release(&text);
    buf_release(&wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_stand_still_until_the_end_and_add_up_to_all_requests),
        cmocka_unit_test(ids_are_those_of_batches_under_another_name),
        cmocka_unit_test(each_record_becomes_one_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
