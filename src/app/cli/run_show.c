/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_show.h"

#include "base/printable.h"
#include "cli/progress_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define LINE_EVERY_S 10.0
#define BAD_LINES_SHOWN 20

enum { BAR, DONE, FAILED, RATE, LEFT, RUNNING, TOKENS, PARTS };

/* An estimate of the remaining time, or -1 for a tenth of the lines: the first answers end
 * together, so their rate tells little about the others. */
static double seconds_left(const struct store_batch *batch, uint64_t done, uint64_t done_now,
                           double rate) {
    uint64_t enough = batch->total / 10 > 0 ? batch->total / 10 : 1;
    return done_now >= enough && rate > 0 ? (double)(batch->total - done) / rate : -1;
}

static void write_parts(struct progress_part parts[PARTS],
                        const struct offline_progress *progress) {
    const struct store_batch *batch = progress->batch;
    uint64_t done = batch->completed + batch->failed, done_now = done - progress->done_before;
    double seconds = progress->seconds > 0 ? progress->seconds : INFINITY;
    double rate = (double)done_now / seconds;
    char left[16];
    progress_clock(left, seconds_left(batch, done, done_now, rate));
    progress_bar(parts[BAR].text, done, batch->total);
    snprintf(parts[DONE].text, PROGRESS_PART_BYTES, "%" PRIu64 "/%" PRIu64 " done", done,
             batch->total);
    snprintf(parts[FAILED].text, PROGRESS_PART_BYTES, ", %" PRIu64 " failed", batch->failed);
    snprintf(parts[RATE].text, PROGRESS_PART_BYTES, ", %.2f req/s", rate);
    snprintf(parts[LEFT].text, PROGRESS_PART_BYTES, ", ETA %s", left);
    snprintf(parts[RUNNING].text, PROGRESS_PART_BYTES, ", %" PRIu64 " running", progress->running);
    snprintf(parts[TOKENS].text, PROGRESS_PART_BYTES,
             ", tokens in %" PRIu64 " out %" PRIu64 " (%.0f/s)", progress->prompt_tokens,
             progress->generated_tokens, (double)progress->generated_tokens / seconds);
}

void run_show_progress(void *context, const struct offline_progress *progress) {
    struct progress_part parts[PARTS] = {
        [DONE].rank = 0, [LEFT].rank = 1,    [FAILED].rank = 2, [RATE].rank = 3,
        [BAR].rank = 4,  [RUNNING].rank = 5, [TOKENS].rank = 6};
    struct run_show *show = context;
    char line[PROGRESS_LINE_BYTES];
    if (show->quiet) return;
    if (progress->engine || progress->batch->total == 0) {
        terminal_draw(&show->terminal,
                      progress->engine ? "loading the model" : "checking the requests");
        return;
    }
    if (!show->terminal.can_redraw && progress->seconds - show->line_at_s < LINE_EVERY_S) return;
    show->line_at_s = progress->seconds;
    write_parts(parts, progress);
    progress_line(line, parts, PARTS, terminal_width(&show->terminal));
    if (show->terminal.can_redraw)
        terminal_draw(&show->terminal, line);
    else
        fprintf(stderr, "%s\n", line);
}

void run_show_bad_line(void *context, uint64_t number, const char *code, const char *message) {
    struct run_show *show = context;
    if (show->bad_lines++ >= BAD_LINES_SHOWN) return;
    terminal_end(&show->terminal);
    if (number > 0)
        fprintf(stderr, "%s %" PRIu64 ": %s: %s\n", show->has_rows ? "row" : "line", number,
                printable(code).text, printable(message).text);
    else
        fprintf(stderr, "%s: %s\n", printable(code).text, printable(message).text);
}

void run_show_end(struct run_show *show) {
    terminal_end(&show->terminal);
    if (show->bad_lines > BAD_LINES_SHOWN)
        fprintf(stderr, "and %" PRIu64 " more\n", show->bad_lines - BAD_LINES_SHOWN);
}
