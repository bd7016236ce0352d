/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* log_line: one line of the log, written from a printf format, as text or as a JSON object.
 *
 * The format alone decides what is a field: a word `key=` with the value after it, up to the next
 * space, comma or semicolon of the format, or between quotes of the format. The arguments only fill
 * values. So no byte of an argument, whoever sent it, ends a line, begins a field, or leaves its
 * quotes: the log can be read by programs, and by people on a terminal.
 *
 *   text    2026-11-22T18:00:00.000Z serve info batch=b1 event=fault error="it says \"no\"", again
 *   json    {"ts":"2026-11-22T18:00:00.000Z","level":"info","process":"serve","msg":"again",
 *            "batch":"b1","event":"fault","error":"it says \"no\""}
 *
 * In JSON, `msg` is the text outside of fields; without any it is the value of `event`. A value is
 * a number if it looks like one and no text was printed into it.
 *
 * Thread: any; pure.
 * Memory: none.
 * Invariant: a line ends with the only newline in it, is valid UTF-8 without control characters,
 * and has at most LOG_LINE_BYTES, so that the lines of processes that share a pipe never mix. */

#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_BYTES 4096 /* PIPE_BUF: a write of so many bytes to a pipe is not split */

struct log_head {
    const char *time, *process, *level;
};

/* Writes a line and returns its bytes. A value is cut after about 1,000 bytes, with "…". The
 * conversions are d, i, u, x, o, c, s, f and g, with a width, a precision and the lengths l, ll and
 * z. */
size_t log_line_write(char ret_line[LOG_LINE_BYTES], const struct log_head *head, bool is_json,
                      const char *format, va_list args) PRINTF_LIKE(4, 0);
