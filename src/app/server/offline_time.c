/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_time.h"

#include "base/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EVERY_NS ((int64_t)1000000000)
#define NOTE_BYTES 17 /* "%16.3f\n" */

/* The calls are the system's own and not those of os.h: a plan of faults counts these, and notes
 * come by the clock. */
void offline_time_begin(struct offline_time *ret_time, const char *folder, bool is_resumed) {
    char path[PATH_MAX], text[NOTE_BYTES + 1] = "", *end;
    snprintf(path, sizeof path, "%.*s/seconds", PATH_MAX - 16, folder);
    *ret_time = (struct offline_time){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    ssize_t bytes = ret_time->fd >= 0 ? pread(ret_time->fd, text, NOTE_BYTES, 0) : -1;
    double seconds = strtod(text, &end);
    bool is_note = bytes == NOTE_BYTES && *end == '\n' && isfinite(seconds) && seconds >= 0;
    ret_time->before = !is_resumed ? 0 : is_note ? seconds : (double)NAN;
    offline_time_note(ret_time, 0, true);
}

void offline_time_note(struct offline_time *time, double seconds, bool is_last) {
    char text[32];
    int64_t now_ns = clock_monotonic_ns();
    if (time->fd < 0 || isnan(time->before) || (now_ns < time->due_ns && !is_last)) return;
    time->due_ns = now_ns + EVERY_NS;
    snprintf(text, sizeof text, "%16.3f\n", time->before + seconds);
    if (pwrite(time->fd, text, NOTE_BYTES, 0) != NOTE_BYTES) time->due_ns = now_ns;
}

void offline_time_end(struct offline_time *time) {
    if (time->fd >= 0) close(time->fd);
    time->fd = -1;
}
