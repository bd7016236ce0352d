/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tune_show: the figures of `quern tune` as a table, or as one JSON object.
 *
 * A setting is called faster or slower if each of three or more rounds says so, and its mean ratio
 * is further from 1 than neighbouring runs of today's options differ by themselves. Else it is
 * within the noise.
 *
 * Thread: main.
 * Memory: none. */

#include "tune/tune.h"

struct tune_shown {
    const char *path; /* the owner's file */
    uint32_t lines;   /* lines in its sample */
    double seconds;   /* duration of all trials */
    const struct tune_baseline *baseline;
    const struct tune_setting *settings; /* (count) */
    size_t count;
};

void tune_show_table(const struct tune_shown *shown);
void tune_show_json(const struct tune_shown *shown);
