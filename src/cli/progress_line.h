/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* progress_line: one line that tells how far a run is, cut to the width of a terminal.
 *
 * A line that is wider than the terminal would wrap and flood it at each redraw. So the parts that
 * tell least go first: tokens, running requests, the bar, the rate. It knows no terminal.
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include <stddef.h>
#include <stdint.h>

#define PROGRESS_LINE_BYTES 256

struct progress_facts {
    uint64_t total, done, failed;
    uint64_t running;
    uint64_t prompt_tokens, generated_tokens;
    double requests_per_s, tokens_per_s;
    double seconds_left; /* below 0: not known */
};

/* Writes the line for `width` columns, at least the first part. */
void progress_line(char ret_line[PROGRESS_LINE_BYTES], const struct progress_facts *facts,
                   size_t width);
