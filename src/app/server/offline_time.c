/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_time.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
    offline_time_note(ret_time, 0);
}

void offline_time_note(const struct offline_time *time, double seconds) {
    char text[32];
    if (time->fd < 0 || isnan(time->before)) return;
    snprintf(text, sizeof text, "%16.3f\n", time->before + seconds);
    ssize_t put = pwrite(time->fd, text, NOTE_BYTES, 0);
    (void)put; /* the next one may find space */
}

void offline_time_end(struct offline_time *time) {
    if (time->fd >= 0) close(time->fd);
    time->fd = -1;
}
