/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prices: the prices that an owner gives, and amounts of money.
 *
 * quern knows no price by itself: a price that was not given is -1, and a figure that needs it is
 * not told.
 * An amount is a whole number of nanos, billionths of the owner's currency: sums and texts have no
 * rounding of binary fractions, and one line of a cheap model is more than 0. The currency is a
 * label.
 *
 * Thread: any; pure.
 * Memory: plain structs; `currency` is borrowed. */

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define PRICE_NOT_GIVEN (-1.0)
#define NANOS_NOT_KNOWN INT64_MIN

struct prices {
    const char *currency;      /* NULL: USD */
    double watts;              /* the whole machine at work, in place of its own counters */
    double per_kwh;            /* price of electricity */
    double rent_per_hour;      /* price of a rented machine */
    double rent_speed;         /* how often as fast as this machine that one is; not given: 1 */
    double input_per_million;  /* tokens of prompts at a managed API */
    double cached_per_million; /* tokens of prompts that it has cached; not given: as input */
    double output_per_million; /* tokens of answers */
    double batch_discount;     /* 0..1: the share that it takes off for batches */
    int64_t times_per_month;   /* how often the job runs; 0: not given */
};

/* No price is given. */
void prices_init(struct prices *ret_prices);
bool price_is_given(double price);
const char *prices_currency(const struct prices *prices);

/* The amount rounded to the nearest nano, at most INT64_MAX. */
int64_t nanos_of(double amount);
/* The price of these tokens at the managed API, with its discount; `cached_tokens` are part of
 * `input_tokens`. NANOS_NOT_KNOWN if a price that counts here is not given: that of input, or,
 * with output, that of output. */
int64_t prices_of_tokens(const struct prices *prices, double input_tokens, double cached_tokens,
                         double output_tokens);

/* Appends a JSON number with all its decimals: 0.0375, 12, 12.5. */
void nanos_write_json(struct buf *buf, int64_t nanos);
/* Appends a text for people, without the currency: 2 decimals from 1 on, below 1 three digits. */
void nanos_write_text(struct buf *buf, int64_t nanos);
