/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static atomic_int level_now = LOG_INFO;
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

void log_set_process(const char *name) {
    process_name = name;
}

void log_write(enum log_level level, const char *format, ...) {
    if ((int)level > atomic_load(&level_now)) return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char line[1024];
    int used = snprintf(line, sizeof line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s ",
                        utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                        utc.tm_sec, now.tv_nsec / 1000000, process_name, level_names[level]);
    va_list args;
    va_start(args, format);
    int text = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    size_t total = (size_t)used + (text > 0 ? (size_t)text : 0);
    if (total > sizeof line - 2) total = sizeof line - 2;
    line[total++] = '\n';
    /* A line that standard error does not take is lost: no other place could tell of it. */
    ssize_t ignored = write(STDERR_FILENO, line, total);
    (void)ignored;
}
