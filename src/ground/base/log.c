/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/log_line.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static atomic_int level_now = LOG_INFO;
static atomic_bool json_now;
static const char *process_name = "quern";

void log_set_level(enum log_level level) {
    atomic_store(&level_now, (int)level);
}

enum log_level log_level(void) {
    return (enum log_level)atomic_load(&level_now);
}

const char *log_level_name(enum log_level level) {
    return level_names[level];
}

bool log_set_level_by_name(const char *name) {
    for (int i = 0; i <= LOG_DEBUG; i++) {
        if (strcmp(level_names[i], name) != 0) continue;
        log_set_level((enum log_level)i);
        return true;
    }
    return false;
}

bool log_set_format_by_name(const char *name) {
    bool is_json = strcmp(name, "json") == 0;
    if (!is_json && strcmp(name, "text") != 0) return false;
    atomic_store(&json_now, is_json);
    return true;
}

bool log_is_json(void) {
    return atomic_load(&json_now);
}

const char *log_format_name(void) {
    return log_is_json() ? "json" : "text";
}

void log_set_process(const char *name) {
    process_name = name;
}

static void write_line(enum log_level level, const char *format, va_list args) PRINTF_LIKE(2, 0);

/* A line that standard error does not take is lost: no other place could tell of it. */
static void write_line(enum log_level level, const char *format, va_list args) {
    char line[LOG_LINE_BYTES], when[80];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    snprintf(when, sizeof when, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900,
             utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
             now.tv_nsec / 1000000);
    const struct log_head head = {when, process_name, level_names[level]};
    size_t bytes = log_line_write(line, &head, log_is_json(), format, args);
    ssize_t ignored = write(STDERR_FILENO, line, bytes);
    (void)ignored;
}

void log_write(enum log_level level, const char *format, ...) {
    if ((int)level > atomic_load(&level_now)) return;
    va_list args;
    va_start(args, format);
    write_line(level, format, args);
    va_end(args);
}

bool log_offer(enum log_level level, const char *format, ...) {
    if ((int)level > atomic_load(&level_now)) return true;
    /* A pipe can be written if it has room for PIPE_BUF bytes, the most of a line. */
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 0) return false;
    va_list args;
    va_start(args, format);
    write_line(level, format, args);
    va_end(args);
    return true;
}
