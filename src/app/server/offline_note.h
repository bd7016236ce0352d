/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_note: what the summary of one `quern run` needs of its earlier calls, which were
 * interrupted: how long they have taken, so that rate and cost are those of the whole, and the
 * window of the models, which a call that finds all requests done never loads.
 *
 * The note is OUT.quern/seconds, which is written at each look at the batch and not synced: a kill
 * loses the time since the last look, a power cut some seconds. The seconds count from the first
 * request of a call to its last result, without loading.
 *
 *     0   16  seconds, with three decimals
 *     16  1   line feed
 *     17  10  tokens of the window; 0: not known
 *     27  1   line feed
 *
 * A note is valid if (1) it has these 28 bytes and (2) both numbers are not negative.
 *
 * Thread: main.
 * Memory: the caller's struct; offline_note_end closes the note. */

#include <stdbool.h>
#include <stdint.h>

struct offline_note {
    int fd;                /* negative: there is none */
    double seconds_before; /* those of earlier calls; NAN: not known */
    uint32_t window;       /* the smallest of the models; 0: not known */
};

/* Reads the note of earlier calls. `is_resumed`: there were some, and a folder without a note is no
 * new one. */
void offline_note_begin(struct offline_note *ret_note, const char *folder, bool is_resumed);
/* Notes the seconds of this call, and the window. */
void offline_note_write(const struct offline_note *note, double seconds);
void offline_note_end(struct offline_note *note);
