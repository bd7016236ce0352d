/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* log: one event a line on standard error, `key=value`, ids first. Never prompt or output text.
 *
 * Only thread mains, api/, runner/, server/, engine's loop and cli/ log; libraries return an error.
 * Levels: error = a person must act; warn = "…, retrying"; info = state changes; debug = off.
 *
 * Thread: any; a line is written with one call.  The level is the only global state of the program.
 */

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_level(void);
/* "error", "warn", "info" or "debug"; false, and nothing set, for another word. */
bool log_set_level_by_name(const char *name);
const char *log_level_name(enum log_level level);
/* A short name of this process for every line, such as "serve" or "engine". Borrowed for ever. */
void log_set_process(const char *name);
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
