/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/prices.h"

#include <inttypes.h>
#include <math.h>

#define NANOS_PER_UNIT 1000000000
#define DECIMALS 9
#define DIGITS_SHOWN 3 /* digits of an amount below 1, in a text */

void prices_init(struct prices *ret_prices) {
    *ret_prices = (struct prices){.watts = PRICE_NOT_GIVEN,
                                  .per_kwh = PRICE_NOT_GIVEN,
                                  .rent_per_hour = PRICE_NOT_GIVEN,
                                  .rent_speed = PRICE_NOT_GIVEN,
                                  .input_per_million = PRICE_NOT_GIVEN,
                                  .cached_per_million = PRICE_NOT_GIVEN,
                                  .output_per_million = PRICE_NOT_GIVEN};
}

bool price_is_given(double price) {
    return price >= 0;
}

const char *prices_currency(const struct prices *prices) {
    return prices->currency && *prices->currency ? prices->currency : "USD";
}

int64_t nanos_of(double amount) {
    double nanos = amount * NANOS_PER_UNIT;
    if (!(nanos > 0)) return 0;
    return nanos < 9e18 ? llround(nanos) : INT64_MAX;
}

int64_t prices_of_tokens(const struct prices *prices, double input_tokens, double cached_tokens,
                         double output_tokens) {
    double cached_price = price_is_given(prices->cached_per_million) ? prices->cached_per_million
                                                                     : prices->input_per_million;
    if (!price_is_given(prices->input_per_million) && input_tokens > 0) return NANOS_NOT_KNOWN;
    if (!price_is_given(prices->output_per_million) && output_tokens > 0) return NANOS_NOT_KNOWN;
    double million_times = (input_tokens - cached_tokens) * fmax(prices->input_per_million, 0) +
                           cached_tokens * fmax(cached_price, 0) +
                           output_tokens * fmax(prices->output_per_million, 0);
    return nanos_of(million_times / 1e6 * (1 - prices->batch_discount));
}

/* Appends `nanos` with at least `shown_min` decimals, and no zeros after these. */
static void write_decimal(struct buf *buf, int64_t nanos, int shown_min) {
    char decimals[DECIMALS + 1];
    int shown = DECIMALS;
    int64_t rest = nanos % NANOS_PER_UNIT;
    for (int i = DECIMALS - 1; i >= 0; i--, rest /= 10) decimals[i] = (char)('0' + rest % 10);
    while (shown > shown_min && decimals[shown - 1] == '0') shown--;
    buf_printf(buf, "%" PRId64, nanos / NANOS_PER_UNIT);
    if (shown > 0) buf_printf(buf, ".%.*s", shown, decimals);
}

void nanos_write_json(struct buf *buf, int64_t nanos) {
    if (nanos < 0)
        buf_add_text(buf, "null");
    else
        write_decimal(buf, nanos, 0);
}

/* The unit of the last digit that a text shows. */
static int64_t last_digit(int64_t nanos) {
    int64_t unit = 1, least = 1;
    for (int i = 0; i < DIGITS_SHOWN; i++) least *= 10;
    while (nanos / unit >= least && unit < NANOS_PER_UNIT / 100) unit *= 10;
    return unit;
}

void nanos_write_text(struct buf *buf, int64_t nanos) {
    if (nanos < 0) {
        buf_add_text(buf, "not known");
        return;
    }
    int64_t unit = last_digit(nanos);
    if (nanos < INT64_MAX - unit) nanos = (nanos + unit / 2) / unit * unit;
    write_decimal(buf, nanos, 2);
}
