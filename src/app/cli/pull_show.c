/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pull_show.h"

#include "base/log.h"

#include "base/printable.h"
#include "cli/progress_line.h"

#include <stdio.h>
#include <string.h>

#define LINE_EVERY_S 10.0
#define NAME_WIDTH 32

enum { BAR, BYTES, RATE, LEFT, FILES, NAME, PARTS };

struct shown_bytes pull_show_bytes(uint64_t bytes) {
    struct shown_bytes shown;
    if (bytes >= 1000000000)
        snprintf(shown.text, sizeof shown.text, "%.2f GB", (double)bytes / 1e9);
    else
        snprintf(shown.text, sizeof shown.text, "%.1f MB", (double)bytes / 1e6);
    return shown;
}

/* The end of a long name, which tells files apart better than its start. */
static const char *short_name(const char *name) {
    size_t bytes = strlen(name);
    return bytes > NAME_WIDTH ? name + (bytes - NAME_WIDTH) : name;
}

static void write_parts(struct progress_part parts[PARTS], const struct pull_progress *progress) {
    double rate = progress->seconds > 0 ? (double)progress->bytes_fetched / progress->seconds : 0;
    char left[16];
    progress_clock(left, rate > 0 ? (double)(progress->bytes - progress->bytes_done) / rate : -1);
    snprintf(parts[BYTES].text, PROGRESS_PART_BYTES, "%s of %s",
             pull_show_bytes(progress->bytes_done).text, pull_show_bytes(progress->bytes).text);
    snprintf(parts[RATE].text, PROGRESS_PART_BYTES, ", %.1f MB/s", rate / 1e6);
    snprintf(parts[LEFT].text, PROGRESS_PART_BYTES, ", ETA %s", left);
    snprintf(parts[FILES].text, PROGRESS_PART_BYTES, ", %u of %u files", progress->files_done,
             progress->files);
}

void pull_show_progress(void *context, const struct pull_progress *progress) {
    struct progress_part parts[PARTS] = {[BYTES].rank = 0, [LEFT].rank = 1,  [RATE].rank = 2,
                                         [BAR].rank = 3,   [FILES].rank = 4, [NAME].rank = 5};
    struct pull_show *show = context;
    const char *name = progress->file ? progress->file : "checking sums";
    char line[PROGRESS_LINE_BYTES];
    if (show->quiet) return;
    if (!show->terminal.can_redraw && progress->seconds - show->line_at_s < LINE_EVERY_S) return;
    show->line_at_s = progress->seconds;
    write_parts(parts, progress);
    if (show->terminal.can_redraw) {
        progress_bar(parts[BAR].text, progress->bytes_done, progress->bytes);
        snprintf(parts[NAME].text, PROGRESS_PART_BYTES, ", %s", short_name(name));
    }
    progress_line(line, parts, PARTS, terminal_width(&show->terminal));
    if (show->terminal.can_redraw)
        terminal_draw(&show->terminal, line);
    else
        fprintf(stderr, "%s, %s\n", line, printable(name).text);
}

void pull_show_end(struct pull_show *show) {
    terminal_end(&show->terminal);
}

void pull_show_note(void *context, const char *sentence) {
    struct pull_show *show = context;
    pull_show_end(show);
    if (log_is_json())
        log_info("event=pull reason=\"%s\"", sentence);
    else
        fprintf(stderr, "quern %s: %s\n", show->command, printable(sentence).text);
}
