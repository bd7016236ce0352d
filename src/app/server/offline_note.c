/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_note.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOTE_BYTES 28
#define WINDOW_AT 17

static bool read_note(int fd, struct offline_note *ret_note) {
    char text[NOTE_BYTES + 1] = "", *end, *end_of_window;
    if (fd < 0 || pread(fd, text, NOTE_BYTES, 0) != NOTE_BYTES) return false;
    double seconds = strtod(text, &end);
    long long window = strtoll(text + WINDOW_AT, &end_of_window, 10);
    if (*end != '\n' || !isfinite(seconds) || seconds < 0) return false;
    if (*end_of_window != '\n' || window < 0 || window > UINT32_MAX) return false;
    ret_note->seconds_before = seconds;
    ret_note->window = (uint32_t)window;
    return true;
}

/* The calls are the system's own and not those of os.h: a plan of faults counts these, and notes
 * come by the clock. */
void offline_note_begin(struct offline_note *ret_note, const char *folder, bool is_resumed) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/seconds", PATH_MAX - 16, folder);
    *ret_note = (struct offline_note){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    if (is_resumed && !read_note(ret_note->fd, ret_note)) ret_note->seconds_before = (double)NAN;
    offline_note_write(ret_note, 0);
}

void offline_note_write(const struct offline_note *note, double seconds) {
    char text[64];
    if (note->fd < 0 || isnan(note->seconds_before)) return;
    snprintf(text, sizeof text, "%16.3f\n%10" PRIu32 "\n", note->seconds_before + seconds,
             note->window);
    ssize_t put = pwrite(note->fd, text, NOTE_BYTES, 0);
    (void)put; /* the next one may find space */
}

void offline_note_end(struct offline_note *note) {
    if (note->fd >= 0) close(note->fd);
    note->fd = -1;
}
