/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* compare_show: a comparison of two result files as tables for a reader, and as one JSON object.
 *
 * Thread: main.
 * Memory: borrows the comparison. */

#include "compare/comparison.h"

/* Prints to standard output. ERR_IO if it cannot. */
enum err compare_show_tables(const struct comparison *comparison,
                             const struct comparison_options *options,
                             struct error *error) MUST_CHECK;
enum err compare_show_json(const struct comparison *comparison,
                           const struct comparison_options *options,
                           struct error *error) MUST_CHECK;
