/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* front_options: the options of `quern serve` about its clients and the receivers of its events:
 * keys, webhooks, and the files of their secrets.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/options.h"

/* Rows that fill a struct serve_options. */
extern const struct option front_option_rows[];
