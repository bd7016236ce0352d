/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* price_options: the options that give prices (costs/prices.h), shared by the commands that tell
 * costs. Their usual place is a settings file, which all these commands read.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/options.h"
#include "costs/prices.h"

/* Options that fill a struct prices; prices_init makes its defaults. */
extern const struct option price_option_rows[]; /* energy, and tokens at a managed API */
extern const struct option cost_option_rows[];  /* rent and others, to tell all costs */
#define PRICE_TABLES(at)                                                                           \
    {price_option_rows, (at)}, {                                                                   \
        cost_option_rows, (at)                                                                     \
    }
