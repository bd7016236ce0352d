/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight_costs: from the figures of a sample to those of the whole file: tokens of answers,
 * time, energy and money, with and without sharing.
 *
 * The tokens of answers follow from their share of max_tokens in the sample, or, where some request
 * sets no max_tokens, from their mean per line. The time follows from rows and steps (time_fit.h).
 *
 * Thread: main; pure.
 * Memory: none. */

#include "preflight/preflight.h"

/* Sets output_tokens and seconds from the sample; the counts are there. */
void preflight_fill_time(struct preflight *is, const struct node_options *node);
/* Sets the job, its costs, and the three figures with one price; seconds are there, or unknown. */
void preflight_fill_costs(struct preflight *is, const struct prices *prices);
