/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/price_options.h"

#define AT(field) offsetof(struct prices, field)
const struct option price_option_rows[] = {
    {"watts", OPTION_NUMBER, AT(watts), "W",
     .help = "power of the machine at work, in watts (default: what its counters report)",
     .max = 1e6},
    {"price-per-kwh", OPTION_NUMBER, AT(per_kwh), "P", .help = "price of electricity", .max = 1e6},
    {"input-price", OPTION_NUMBER, AT(input_per_million), "P",
     .help = "price of a million input tokens at a managed API", .max = 1e6},
    {"cached-price", OPTION_NUMBER, AT(cached_per_million), "P",
     .help = "price of a million cached input tokens there (default: that of input)", .max = 1e6},
    {"output-price", OPTION_NUMBER, AT(output_per_million), "P",
     .help = "price of a million output tokens at a managed API", .max = 1e6},
    {"batch-discount", OPTION_NUMBER, AT(batch_discount), "S",
     .help = "share that the API takes off for batches, 0 to 1 (often 0.5; default 0)", .max = 1},
    {0},
};

const struct option cost_option_rows[] = {
    {"rent-per-hour", OPTION_NUMBER, AT(rent_per_hour), "P",
     .help = "price of a rented machine for an hour", .max = 1e6},
    {"rent-speed", OPTION_NUMBER, AT(rent_speed), "X",
     .help = "speed of the rented machine as a multiple of this one's (default 1)", .min = 1e-3,
     .max = 1e6},
    {"currency", OPTION_TEXT, AT(currency), "NAME", .help = "currency of all prices (default USD)"},
    {"times-per-month", OPTION_INTEGER, AT(times_per_month), "N",
     .help = "runs of this job per month, to report its monthly costs", .max = 1e6},
    {0},
};
