/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* err: the closed set of operating errors, and the one sentence that goes with each.
 *
 * Three kinds of trouble are never mixed. A bug asserts, in release too: the process dies and
 * resumes from disk. An operating error is an `enum err` with a sentence in a `struct error`. A
 * line that fails is neither: it is a result, and travels as data.
 *
 * Thread: any.  Memory: the caller's struct error; nothing is allocated. */

#include <stdarg.h>
#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

/* What the caller can do about it, not what happened. */
enum err {
    OK = 0,
    ERR_INVALID,     /* the input is wrong; asking again gives the same answer */
    ERR_NOT_FOUND,   /* no such thing */
    ERR_CONFLICT,    /* the thing is in a state that does not allow this */
    ERR_LIMIT,       /* over a stated bound */
    ERR_CANCELLED,   /* somebody asked to stop */
    ERR_UNAVAILABLE, /* not now (disk full, engine loading, draining); try later */
    ERR_IO,          /* the machine failed */
    ERR_CORRUPT,     /* stored bytes are not what was written */
};

#define ERROR_TEXT_BYTES 512

/* Zero is a valid start: OK and an empty sentence. */
struct error {
    enum err code;
    char text[ERROR_TEXT_BYTES]; /* one sentence without a final full stop, printable UTF-8 on one
                                    line whatever it quotes; never a secret or a prompt */
};

/* For functions that return a code and never OK: tells the compiler and the analyzer so where they
 * are called, since then what only success writes is known not to be read. They assert it. */
static inline enum err err_not_ok(enum err code) {
    if (code == OK) __builtin_unreachable();
    return code;
}

/* Fills `error` (NULL allowed) and returns `code`, so that a failure is one line. */
enum err err_set(struct error *error, enum err code, const char *format, ...) PRINTF_LIKE(3, 4);
#define err_set(...) err_not_ok((err_set)(__VA_ARGS__))

/* As err_set, with ": <strerror>" added and the code chosen from `errno_value`:
 * ENOSPC, EDQUOT, EMFILE and ENFILE give ERR_UNAVAILABLE, ENOENT gives ERR_NOT_FOUND, the rest
 * ERR_IO. */
enum err err_from_errno(struct error *error, int errno_value, const char *format, ...)
    PRINTF_LIKE(3, 4);
#define err_from_errno(...) err_not_ok((err_from_errno)(__VA_ARGS__))

/* Puts "prefix: " before the sentence that is already there and returns its code. */
enum err err_prefix(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);
#define err_prefix(...) err_not_ok((err_prefix)(__VA_ARGS__))

/* "invalid", "not_found", …: for logs and tests. */
const char *err_name(enum err code);
