/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* progress_line: one line that tells how far a work is, made of the parts that have room.
 *
 * Each part has a rank. On a narrow terminal the parts that tell least stay out. It knows neither
 * the terminal nor the work.
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include <stddef.h>
#include <stdint.h>

#define PROGRESS_PART_BYTES 256
#define PROGRESS_LINE_BYTES 1024

struct progress_part {
    uint32_t rank; /* 0 gets its room first; each rank from 0 to count-1 once */
    char text[PROGRESS_PART_BYTES];
};

/* Writes the parts that fit into `width` columns, in the order given; at least that of rank 0. */
void progress_line(char ret_line[PROGRESS_LINE_BYTES], const struct progress_part *parts,
                   size_t count, size_t width);
/* Writes "[####......] ", 33 columns wide. */
void progress_bar(char ret_text[PROGRESS_PART_BYTES], uint64_t done, uint64_t total);
/* Writes "0:07", "12:34" or "1:02:03"; "-:--" for a negative time or one over a month. */
void progress_clock(char ret_text[16], double seconds);
