/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* compare_show: a comparison of two result files as tables for a reader, and as one JSON object.
 *
 * Thread: main.
 * Memory: borrows the comparison. */

#include "compare/comparison.h"
#include "costs/prices.h"

/* The prices of the tokens of each file. */
struct compare_prices {
    struct prices at[COMPARISON_SIDES];
};

/* Prints to standard output. ERR_IO if it cannot. */
enum err compare_show_tables(const struct comparison *comparison,
                             const struct comparison_options *options,
                             const struct compare_prices *prices, struct error *error) MUST_CHECK;
enum err compare_show_json(const struct comparison *comparison,
                           const struct comparison_options *options,
                           const struct compare_prices *prices, struct error *error) MUST_CHECK;
