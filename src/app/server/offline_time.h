/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_time: how long all calls of one `quern run` have taken so far, so that a run that was
 * interrupted knows its rate and its cost as a whole.
 *
 * The seconds are in OUT.quern/seconds, which is written at each look at the batch and not synced:
 * a kill loses the time since the last look, a power cut some seconds. They count from the first
 * request of a call to its last result, without loading.
 *
 * Thread: main.
 * Memory: the caller's struct; offline_time_end closes the note. */

#include <stdbool.h>

struct offline_time {
    int fd;        /* the note; negative: there is none */
    double before; /* seconds of earlier calls; NAN: not known */
};

/* Reads the seconds of earlier calls. `is_resumed`: there were some, and a folder without a note is
 * no new one. */
void offline_time_begin(struct offline_time *ret_time, const char *folder, bool is_resumed);
/* Notes the seconds of this call. */
void offline_time_note(const struct offline_time *time, double seconds);
void offline_time_end(struct offline_time *time);
