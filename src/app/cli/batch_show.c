/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"

#include "base/printable.h"
#include "cli/progress_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_EVERY_NS INT64_C(10000000000) /* where no line is drawn again */
#define TIME_BYTES 32

static void write_time(int64_t unix_s, char ret_text[TIME_BYTES]) {
    struct tm parts;
    time_t when = (time_t)unix_s;
    if (!unix_s || !gmtime_r(&when, &parts) ||
        strftime(ret_text, TIME_BYTES, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        snprintf(ret_text, TIME_BYTES, "-");
}

/* --- lists and pages --- */

void batch_show_heads(void) {
    printf("%-38s  %-11s  %10s  %10s  %8s  %-19s  %-16s  %-24s  %s\n", "id", "status", "done",
           "total", "failed", "created (UTC)", "model", "name", "cost");
}

void batch_show_row(const struct batch_object *batch) {
    char created[TIME_BYTES];
    write_time(batch->created_unix_s, created);
    printf("%-38s  %-11s  %10" PRIu64 "  %10" PRIu64 "  %8" PRIu64 "  %-19s  %-16s  ",
           printable(batch->id).text, *batch->paused ? "paused" : printable(batch->status).text,
           batch->completed + batch->failed, batch->total, batch->failed, created,
           *batch->model ? printable(batch->model).text : "-");
    printf("%-24s  %s\n", *batch->name ? printable(batch->name).text : "-",
           *batch->cost ? printable(batch->cost).text : "-");
}

static void print_text(const char *label, const char *text) {
    if (*text) printf("%-12s%s\n", label, printable(text).text);
}

static void print_time(const char *label, int64_t unix_s) {
    char text[TIME_BYTES];
    if (!unix_s) return;
    write_time(unix_s, text);
    printf("%-12s%s UTC\n", label, text);
}

/* From the first line to the end of an ended batch. */
static void print_duration(const struct batch_object *batch) {
    char clock[16];
    if (!batch->begun_unix_s || batch->ended_unix_s < batch->begun_unix_s) return;
    progress_clock(clock, (double)(batch->ended_unix_s - batch->begun_unix_s));
    printf("%-12s%s\n", "took", clock);
}

static void print_errors(const struct batch_object *batch, FILE *to) {
    for (size_t i = 0; i < batch->error_count && i < OBJECT_ERRORS_SHOWN; i++) {
        if (batch->errors[i].line > 0)
            fprintf(to, "  line %" PRIu64 ": %s\n", batch->errors[i].line,
                    printable(batch->errors[i].text).text);
        else
            fprintf(to, "  %s\n", printable(batch->errors[i].text).text);
    }
    if (batch->error_count > OBJECT_ERRORS_SHOWN)
        fprintf(to, "  and %zu more\n", batch->error_count - OBJECT_ERRORS_SHOWN);
}

void batch_show_page(const struct batch_object *batch) {
    printf("%-12s%s\n%-12s%s\n", "batch", printable(batch->id).text, "status",
           printable(batch->status).text);
    print_text("name", batch->name);
    if (*batch->paused) printf("%-12sby %s\n", "paused", printable(batch->paused).text);
    print_text("waits for", batch->waiting_for);
    print_text("endpoint", batch->endpoint);
    print_text("model", batch->model);
    printf("%-12s%" PRIu64 " of %" PRIu64 " completed, %" PRIu64 " failed\n", "requests",
           batch->completed, batch->total, batch->failed);
    if (batch->input_tokens + batch->output_tokens > 0)
        printf("%-12s%" PRIu64 " in, %" PRIu64 " out\n", "tokens", batch->input_tokens,
               batch->output_tokens);
    print_time("created", batch->created_unix_s);
    print_time("begun", batch->begun_unix_s);
    print_time(batch_object_is_over(batch) ? "ended" : "expires",
               batch_object_is_over(batch) ? batch->ended_unix_s : batch->expires_unix_s);
    print_duration(batch);
    print_text("cost", batch->cost);
    print_time("deleted on", batch->delete_unix_s);
    print_text("input", batch->input_file_id);
    print_text("output", batch->output_file_id);
    print_text("errors", batch->error_file_id);
    print_errors(batch, stdout);
}

/* --- progress --- */

enum { BAR, DONE, FAILED, RATE, LEFT, WAITS, PARTS };

/* Notes a sample and returns the lines per second since the oldest one that is kept. */
static double take_sample(struct batch_progress *progress, uint64_t done, int64_t now_ns) {
    size_t count = progress->sample_count++;
    size_t oldest = count < BATCH_SAMPLES ? 0 : (count + 1) % BATCH_SAMPLES;
    progress->samples[count % BATCH_SAMPLES].at_ns = now_ns;
    progress->samples[count % BATCH_SAMPLES].done = done;
    double seconds = (double)(now_ns - progress->samples[oldest].at_ns) / 1e9;
    uint64_t before = progress->samples[oldest].done;
    return seconds > 0 && done > before ? (double)(done - before) / seconds : 0;
}

static void write_line(char ret_line[PROGRESS_LINE_BYTES], const struct batch_object *batch,
                       double rate, size_t width) {
    struct progress_part parts[PARTS] = {[DONE].rank = 0,  [LEFT].rank = 1, [FAILED].rank = 2,
                                         [WAITS].rank = 3, [RATE].rank = 4, [BAR].rank = 5};
    uint64_t done = batch->completed + batch->failed;
    uint64_t left = batch->total > done ? batch->total - done : 0;
    char clock[16];
    progress_clock(clock, rate > 0 ? (double)left / rate : -1);
    progress_bar(parts[BAR].text, done < batch->total ? done : batch->total, batch->total);
    snprintf(parts[DONE].text, PROGRESS_PART_BYTES, "%s %" PRIu64 "/%" PRIu64,
             *batch->paused ? "paused" : batch->status, done, batch->total);
    if (batch->failed > 0)
        snprintf(parts[FAILED].text, PROGRESS_PART_BYTES, ", %" PRIu64 " failed", batch->failed);
    if (batch->state == STATE_IN_PROGRESS) {
        snprintf(parts[RATE].text, PROGRESS_PART_BYTES, ", %.2f req/s", rate);
        snprintf(parts[LEFT].text, PROGRESS_PART_BYTES, ", ETA %s", clock);
    }
    if (*batch->waiting_for)
        snprintf(parts[WAITS].text, PROGRESS_PART_BYTES, ", waits for %.230s", batch->waiting_for);
    progress_line(ret_line, parts, PARTS, width);
}

void batch_show_progress(struct session *session, struct batch_progress *progress,
                         const struct batch_object *batch, int64_t now_ns) {
    char line[PROGRESS_LINE_BYTES];
    double rate = take_sample(progress, batch->completed + batch->failed, now_ns);
    write_line(line, batch, rate, terminal_width(&session->terminal));
    if (session->terminal.can_redraw) {
        terminal_draw(&session->terminal, line);
        return;
    }
    bool is_news = strcmp(progress->status, batch->status) != 0 ||
                   strcmp(progress->waiting_for, batch->waiting_for) != 0;
    if (!is_news && now_ns - progress->line_at_ns < LINE_EVERY_NS) return;
    progress->line_at_ns = now_ns;
    memcpy(progress->status, batch->status, sizeof progress->status);
    memcpy(progress->waiting_for, batch->waiting_for, sizeof progress->waiting_for);
    fprintf(stderr, "%s\n", printable(line).text);
}

/* --- the end --- */

enum exit_status batch_show_status(const struct batch_object *batch) {
    if (batch->state == STATE_FAILED) return EXIT_UNUSABLE;
    if (batch->state != STATE_COMPLETED || batch->failed > 0) return EXIT_FAILED;
    return EXIT_GOOD;
}

void batch_show_end(struct session *session, const struct batch_object *batch) {
    bool has_results = *batch->output_file_id || *batch->error_file_id;
    terminal_clear(&session->terminal);
    if (batch->state == STATE_FAILED) {
        fprintf(stderr, "%s failed: its file was refused and nothing was run\n",
                printable(batch->id).text);
        print_errors(batch, stderr);
        return;
    }
    fprintf(stderr, "%s %s: %" PRIu64 " of %" PRIu64 " requests completed, %" PRIu64 " failed\n",
            printable(batch->id).text, printable(batch->status).text, batch->completed,
            batch->total, batch->failed);
    if (has_results)
        fprintf(stderr, "its results: quern results %s -o results.jsonl\n",
                printable(batch->id).text);
    if (*batch->error_file_id)
        fprintf(stderr, "its failed lines once more: quern retry %s\n", printable(batch->id).text);
}
