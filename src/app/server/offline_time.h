/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_time: how long all calls of one `quern run` have taken so far, so that a run that was
 * interrupted knows its rate and its cost as a whole.
 *
 * The seconds are in OUT.quern/seconds, which is written once per second and not synced: a kill
 * loses one second, a power cut some. They count from the first request of a call to its last
 * result, without loading.
 *
 * Thread: main.
 * Memory: the caller's struct; offline_time_end closes the note. */

#include <stdbool.h>
#include <stdint.h>

struct offline_time {
    int fd;         /* the note; negative: there is none */
    double before;  /* seconds of earlier calls; NAN: not known */
    int64_t due_ns; /* when the next note is made */
};

/* Reads the seconds of earlier calls. `is_resumed`: there were some, and a folder without a note is
 * no new one. */
void offline_time_begin(struct offline_time *ret_time, const char *folder, bool is_resumed);
/* Notes the seconds of this call, if the last note is a second old or `is_last`. */
void offline_time_note(struct offline_time *time, double seconds, bool is_last);
void offline_time_end(struct offline_time *time);
