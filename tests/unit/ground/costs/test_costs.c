/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/costs.h"

#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_text(void (*write)(struct buf *, int64_t), int64_t nanos, const char *wanted) {
    struct buf buf;
    buf_init(&buf, 100);
    write(&buf, nanos);
    assert_string_equal(buf.at, wanted);
    buf_release(&buf);
}

static void amounts_are_written_without_binary_fractions(void **state) {
    (void)state;
    assert_int_equal(nanos_of(0.1) + nanos_of(0.2), nanos_of(0.3));
    assert_text(nanos_write_json, nanos_of(0.1) + nanos_of(0.2), "0.3");
    assert_text(nanos_write_json, 0, "0");
    assert_text(nanos_write_json, 1, "0.000000001");
    assert_text(nanos_write_json, nanos_of(12.5), "12.5");
    assert_text(nanos_write_json, INT64_MAX, "9223372036.854775807");
    assert_text(nanos_write_json, NANOS_NOT_KNOWN, "null");
    assert_text(nanos_write_text, nanos_of(1234.567), "1234.57");
    assert_text(nanos_write_text, nanos_of(3), "3.00");
    assert_text(nanos_write_text, nanos_of(0.5), "0.50");
    assert_text(nanos_write_text, nanos_of(0.0512345), "0.0512");
    assert_text(nanos_write_text, nanos_of(0.99999), "1.00");
    assert_text(nanos_write_text, 7, "0.000000007");
    assert_text(nanos_write_text, NANOS_NOT_KNOWN, "not known");
    assert_int_equal(nanos_of(1e300), INT64_MAX);
    assert_int_equal(nanos_of(-1), 0);
    assert_int_equal(nanos_of(NAN), 0);
}

static void tokens_cost_what_the_owner_gave(void **state) {
    (void)state;
    struct prices prices;
    prices_init(&prices);
    assert_true(prices_of_tokens(&prices, 1, 0, 1) == NANOS_NOT_KNOWN);
    prices.input_per_million = 0.15;
    assert_true(prices_of_tokens(&prices, 1000, 0, 1) == NANOS_NOT_KNOWN);
    assert_int_equal(prices_of_tokens(&prices, 1000, 0, 0), 150000);
    prices.output_per_million = 0.6;
    assert_int_equal(prices_of_tokens(&prices, 1e6, 0, 1e6), nanos_of(0.75));
    /* Cached tokens cost as much as others until they have a price, which may be 0. */
    assert_int_equal(prices_of_tokens(&prices, 1e6, 1e6, 0), nanos_of(0.15));
    prices.cached_per_million = 0;
    assert_int_equal(prices_of_tokens(&prices, 1e6, 4e5, 0), nanos_of(0.09));
    prices.batch_discount = 0.5;
    assert_int_equal(prices_of_tokens(&prices, 1e6, 4e5, 1e6), nanos_of(0.345));
}

static const struct cost_job job = {.has_seconds = true,
                                    .seconds = {1800, 3600, 7200},
                                    .has_unshared = true,
                                    .seconds_unshared = {3600, 7200, 14400},
                                    .measured_watts = NAN,
                                    .deduplicated = 10,
                                    .input_tokens = 1000000,
                                    .cached_tokens = 400000,
                                    .deduplicated_input_tokens = 100000,
                                    .output_tokens = {90000, 100000, 120000},
                                    .deduplicated_output_tokens = {9000, 10000, 12000}};

static void a_bill_is_told_once_per_month_and_without_sharing(void **state) {
    (void)state;
    struct prices prices;
    struct costs costs;
    struct buf buf;
    json_t *json;
    struct error error;
    prices_init(&prices);
    prices.watts = 200;
    prices.per_kwh = 0.5;
    prices.rent_per_hour = 2;
    prices.rent_speed = 4;
    prices.input_per_million = 1;
    prices.cached_per_million = 0.5;
    prices.output_per_million = 2;
    prices.times_per_month = 30;
    costs_count(&job, &prices, &costs);
    assert_true(costs.shared.electricity.mean == nanos_of(0.1));
    assert_true(costs.shared.electricity.high == nanos_of(0.2));
    assert_true(costs.unshared.electricity.mean == nanos_of(0.2));
    assert_true(costs.shared.rented.mean == nanos_of(0.5));
    assert_true(costs.shared.api.mean == nanos_of(0.6 + 0.2 + 0.2));
    assert_true(costs.unshared.api.mean == nanos_of(1.2));
    buf_init(&buf, BUF_UNLIMITED);
    costs_write_json(&buf, &job, &prices, &costs);
    assert_int_equal(json_read(&json, buf_str(&buf), &error), OK);
    const json_t *month = json_member(json, "per_month");
    assert_true(json_number_value(json_member(json_member(month, "rented_gpu"), "mean")) == 15);
    const json_t *saved = json_member(json, "saved");
    assert_int_equal(json_integer_value(json_member(saved, "input_tokens_computed")), 500000);
    assert_true(json_number_value(json_member(json_member(saved, "seconds"), "mean")) == 3600);
    json_decref(json);
    buf_clear(&buf);
    costs_write_text(&buf, &job, &prices, &costs);
    assert_non_null(strstr(buf.at, "Electricity 0.10 (0.05 to 0.20) USD, without sharing 0.20; "
                                   "30 times per month 3.00 (1.50 to 6.00) USD\n"));
    buf_release(&buf);
}

static void what_nobody_gave_is_not_told(void **state) {
    (void)state;
    struct prices prices;
    struct costs costs;
    struct buf buf;
    json_t *json;
    struct error error;
    prices_init(&prices);
    costs_count(&job, &prices, &costs);
    buf_init(&buf, BUF_UNLIMITED);
    costs_write_json(&buf, &job, &prices, &costs);
    assert_int_equal(json_read(&json, buf_str(&buf), &error), OK);
    const json_t *once = json_object_get(json, "once");
    assert_true(json_is_null(json_object_get(json, "power")));
    assert_true(json_is_null(json_object_get(json, "per_month")));
    assert_true(json_is_null(json_object_get(once, "watt_hours")));
    assert_true(json_is_null(json_object_get(once, "electricity")));
    assert_true(json_is_null(json_object_get(once, "rented_gpu")));
    assert_true(json_is_null(json_object_get(once, "managed_api")));
    json_decref(json);
    buf_clear(&buf);
    costs_write_text(&buf, &job, &prices, &costs);
    assert_null(strstr(buf.at, "USD"));
    buf_release(&buf);
}

static void a_machine_that_counts_its_energy_needs_no_watts(void **state) {
    (void)state;
    struct prices prices;
    struct costs costs;
    struct cost_job measured = job;
    prices_init(&prices);
    measured.measured_watts = 50;
    costs_count(&measured, &prices, &costs);
    assert_int_equal(costs.power_source, POWER_MEASURED);
    assert_true(costs.shared.watt_hours.mean == 50);
    prices.watts = 80;
    costs_count(&measured, &prices, &costs);
    assert_int_equal(costs.power_source, POWER_GIVEN);
    assert_true(costs.shared.watt_hours.mean == 80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_written_without_binary_fractions),
        cmocka_unit_test(tokens_cost_what_the_owner_gave),
        cmocka_unit_test(a_bill_is_told_once_per_month_and_without_sharing),
        cmocka_unit_test(what_nobody_gave_is_not_told),
        cmocka_unit_test(a_machine_that_counts_its_energy_needs_no_watts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
