/* SPDX-License-Identifier: Apache-2.0 */
#include "server/service_status.h"

#include "base/clock.h"
#include "base/service.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S 1e9

/* A text that grows and is cut at its end. */
struct text {
    char *at;
    size_t bytes;
    size_t used;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text->at + text->used, text->bytes - text->used, format, arguments);
    va_end(arguments);
    if (bytes > 0) text->used += (size_t)bytes;
    if (text->used >= text->bytes) text->used = text->bytes - 1;
}

void service_status_write(char *ret_text, size_t text_bytes, const struct runner_status *status,
                          uint64_t lines, int64_t elapsed_ns) {
    struct text text = {.at = ret_text, .bytes = text_bytes};
    *ret_text = '\0';
    if (!status->ready) add(&text, "%s; ", status->text);
    if (status->batches_live == 0 && status->requests_in_flight == 0) add(&text, "idle");
    if (status->batches_live > 0)
        add(&text, "%" PRIu64 " %s, %" PRIu64 " %s in flight", status->batches_live,
            plural(status->batches_live, "batch", "batches"), status->lines_in_flight,
            plural(status->lines_in_flight, "line", "lines"));
    if (status->batches_live > 0 && elapsed_ns > 0)
        add(&text, ", %.3g lines/s", (double)lines * NS_PER_S / (double)elapsed_ns);
    if (status->batches_paused > 0) add(&text, ", %" PRIu64 " paused", status->batches_paused);
    if (status->requests_in_flight > 0)
        add(&text, "%s%" PRIu64 " %s", status->batches_live > 0 ? "; " : "",
            status->requests_in_flight, plural(status->requests_in_flight, "request", "requests"));
    add(&text, "; %" PRIu64 " %s done", status->lines_done,
        plural(status->lines_done, "line", "lines"));
    if (status->taken_up_lines > 0)
        add(&text, "; recovered %" PRIu64 " of %" PRIu64 " lines", status->recovered_lines,
            status->taken_up_lines);
}

void service_status_tell(struct service_status *told, struct runner *runner) {
    char text[sizeof told->text];
    struct runner_status status;
    if (!service_is_open()) return;
    int64_t now_ns = clock_monotonic_ns(), elapsed_ns = now_ns - told->told_ns;
    if (told->is_told && elapsed_ns < SERVICE_STATUS_MS * NS_PER_MS) return;
    runner_status(runner, &status);
    service_status_write(text, sizeof text, &status, status.lines_done - told->lines_done,
                         told->is_told ? elapsed_ns : 0);
    if (strcmp(text, told->text) != 0) service_tell("STATUS=%s", text);
    memcpy(told->text, text, sizeof text);
    told->is_told = true;
    told->told_ns = now_ns;
    told->lines_done = status.lines_done;
}

void service_status_tell_drain(struct runner *runner, int64_t timeout_ms) {
    struct runner_status status;
    if (!service_is_open()) return;
    runner_status(runner, &status);
    service_tell("STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRId64 "\nSTATUS=draining: %" PRIu64
                 " %s and %" PRIu64 " %s in flight",
                 timeout_ms * 1000, status.lines_in_flight,
                 plural(status.lines_in_flight, "line", "lines"), status.requests_in_flight,
                 plural(status.requests_in_flight, "request", "requests"));
}
