/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* log: one event per line on standard error, as `key=value`, ids first, or as a JSON object
 * (log_line.h). A line never holds the text of a prompt or an answer.
 *
 *   error   a person must act
 *   warn    quern met trouble and goes on by itself
 *   info    a state has changed, or a client was answered
 *   debug   details, off by default
 *
 * Thread: any; a line is written with one call. Level, format and process name are global.
 * Memory: none. */

#include "base/err.h"

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_level(void);
/* "error", "warn", "info" or "debug"; false, and nothing set, for another word. */
bool log_set_level_by_name(const char *name);
const char *log_level_name(enum log_level level);
/* "text" or "json"; false, and nothing set, for another word. */
bool log_set_format_by_name(const char *name);
const char *log_format_name(void);
bool log_is_json(void);
/* A short name of this process for every line, such as "serve" or "engine". The text is borrowed
 * until the process ends. */
void log_set_process(const char *name);
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
/* As log_write, but does not wait for a reader of standard error that lags behind: false if the
 * line was given up. For lines that clients cause. */
bool log_offer(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
