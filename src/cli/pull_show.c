/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pull_show.h"

#include <stdio.h>
#include <string.h>

#define LINE_EVERY_S 10.0
#define BAR_WIDTH 30
#define NAME_WIDTH 32

void pull_show_clock(char ret_text[16], double seconds) {
    long whole = seconds < 0 || seconds > 3e6 ? -1 : (long)seconds;
    if (whole < 0)
        snprintf(ret_text, 16, "-:--");
    else if (whole >= 3600)
        snprintf(ret_text, 16, "%ld:%02ld:%02ld", whole / 3600 % 1000, whole / 60 % 60, whole % 60);
    else
        snprintf(ret_text, 16, "%ld:%02ld", whole / 60, whole % 60);
}

struct shown_bytes pull_show_bytes(uint64_t bytes) {
    struct shown_bytes shown;
    if (bytes >= 1000000000)
        snprintf(shown.text, sizeof shown.text, "%.2f GB", (double)bytes / 1e9);
    else
        snprintf(shown.text, sizeof shown.text, "%.1f MB", (double)bytes / 1e6);
    return shown;
}

static void draw_bar(const struct pull_progress *progress) {
    int filled =
        progress->bytes
            ? (int)((double)BAR_WIDTH * (double)progress->bytes_done / (double)progress->bytes)
            : 0;
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] ", bar);
}

void pull_show_progress(void *context, const struct pull_progress *progress) {
    struct pull_show *show = context;
    char left[16];
    if (show->quiet) return;
    if (!show->terminal && progress->seconds - show->line_at_s < LINE_EVERY_S) return;
    show->line_at_s = progress->seconds;
    double rate = progress->seconds > 0 ? (double)progress->bytes_fetched / progress->seconds : 0;
    pull_show_clock(left, rate > 0 ? (double)(progress->bytes - progress->bytes_done) / rate : -1);
    if (show->terminal) draw_bar(progress);
    /* The end of a long name tells files apart better than its start. */
    const char *name = progress->file ? progress->file : "checking sums";
    size_t bytes = strlen(name);
    if (show->terminal && bytes > NAME_WIDTH) name += bytes - NAME_WIDTH;
    fprintf(stderr, "%s of %s, %.1f MB/s, ETA %s, %u of %u files, %s%s",
            pull_show_bytes(progress->bytes_done).text, pull_show_bytes(progress->bytes).text,
            rate / 1e6, left, progress->files_done, progress->files, name,
            show->terminal ? "" : "\n");
    show->drawn = show->terminal;
}

void pull_show_end(struct pull_show *show) {
    if (show->drawn) fputc('\n', stderr);
    show->drawn = false;
}

void pull_show_note(void *context, const char *sentence) {
    struct pull_show *show = context;
    pull_show_end(show);
    fprintf(stderr, "quern %s: %s\n", show->command, sentence);
}
