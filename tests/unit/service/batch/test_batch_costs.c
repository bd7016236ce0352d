/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/batch_costs.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static json_t *written(const struct store_batch *batch, const struct prices *prices) {
    struct buf text;
    struct error error;
    json_t *costs;
    buf_init(&text, 1 << 16);
    batch_costs_write(&text, batch, prices);
    assert_int_equal(json_read(&costs, buf_str(&text), &error), OK);
    buf_release(&text);
    return costs;
}

static struct store_batch a_batch(enum batch_status status) {
    struct store_batch batch = {.id = "batch_1", .status = status, .has_usage = true};
    batch.in_progress_unix_s = 1000;
    batch.finalizing_unix_s = 4600;
    /* A tenth of the tokens was reused, and half of the others' prompts was cached. */
    batch.usage = (struct usage){.input_tokens = 900000,
                                 .cached_tokens = 450000,
                                 .output_tokens = 100000,
                                 .reused_input_tokens = 90000,
                                 .reused_output_tokens = 10000};
    return batch;
}

static double number(const json_t *costs, const char *bill, const char *name) {
    return json_number_value(json_object_get(json_object_get(costs, bill), name));
}

static void a_batch_that_has_not_ended_has_no_costs(void **state) {
    (void)state;
    const struct store_batch batch = a_batch(BATCH_IN_PROGRESS);
    struct buf text;
    buf_init(&text, 100);
    batch_costs_write(&text, &batch, NULL);
    assert_string_equal(text.at, "null");
    buf_release(&text);
}

static void a_batch_that_has_ended_tells_its_bill(void **state) {
    (void)state;
    const struct store_batch batch = a_batch(BATCH_COMPLETED);
    struct prices prices;
    prices_init(&prices);
    prices.watts = 100;
    prices.per_kwh = 0.3;
    prices.rent_per_hour = 2;
    prices.input_per_million = 1;
    prices.output_per_million = 10;
    json_t *costs = written(&batch, &prices);
    assert_true(number(costs, "once", "seconds") == 3600);
    assert_true(number(costs, "once", "watt_hours") == 100);
    assert_true(number(costs, "once", "electricity") == 0.03);
    assert_true(number(costs, "once", "rented_gpu") == 2);
    assert_true(number(costs, "once", "managed_api") == 1.9);
    /* 495,000 of 1,000,000 tokens were computed. */
    assert_true(number(costs, "saved", "input_tokens_computed") == 405000);
    assert_true(number(costs, "saved", "output_tokens_computed") == 90000);
    double unshared = number(costs, "once_without_sharing", "seconds");
    assert_true(unshared > 7272 && unshared < 7273);
    assert_true(
        json_is_null(json_object_get(json_object_get(costs, "saved"), "deduplicated_requests")));
    json_decref(costs);
}

static void a_batch_within_one_second_counts_one(void **state) {
    (void)state;
    struct store_batch batch = a_batch(BATCH_CANCELLED);
    batch.finalizing_unix_s = batch.in_progress_unix_s;
    json_t *costs = written(&batch, NULL);
    assert_true(number(costs, "once", "seconds") == 1);
    assert_true(json_is_null(json_object_get(json_object_get(costs, "once"), "rented_gpu")));
    json_decref(costs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_has_not_ended_has_no_costs),
        cmocka_unit_test(a_batch_that_has_ended_tells_its_bill),
        cmocka_unit_test(a_batch_within_one_second_counts_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
