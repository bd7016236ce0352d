/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* err: the closed set of operating errors, each with one sentence.
 *
 * Three kinds of trouble are never mixed. A bug asserts, in release too: the process ends and the
 * next one resumes from disk. An operating error is an `enum err` with a sentence in a `struct
 * error`. A line that fails is neither: it is a result, and travels as data.
 *
 * Thread: any.
 * Memory: the caller's struct error; nothing is allocated. */

#include <stdarg.h>
#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

/* Each value says how the caller can react; the sentence says what happened. */
enum err {
    OK = 0,
    ERR_INVALID,     /* the input is wrong; asking again gives the same answer */
    ERR_NOT_FOUND,   /* the named thing does not exist */
    ERR_CONFLICT,    /* the thing is in a state that does not allow the call */
    ERR_LIMIT,       /* a stated bound is passed */
    ERR_CANCELLED,   /* the caller or an operator asked to stop */
    ERR_UNAVAILABLE, /* full disk, loading engine, draining server: trying later may work */
    ERR_EXHAUSTED,   /* the process or the system has no descriptor or memory left: trying later may
                      * work, and no disk is full or broken */
    ERR_DENIED,      /* the credentials are missing, wrong or without access */
    ERR_IO,          /* a system call failed */
    ERR_CORRUPT,     /* bytes that were read are not the bytes that were written */
};

#define ERROR_TEXT_BYTES 512

/* Zero is a valid start: OK and an empty sentence. */
struct error {
    enum err code;
    bool is_system; /* err_from_errno made it: the sentence may name a path of the machine */
    /* One sentence without its full stop: printable UTF-8 on one line, also where it quotes foreign
     * bytes. It never holds a secret or a prompt. */
    char text[ERROR_TEXT_BYTES];
};

/* Tells compiler and analyzer that a function which returns a code never returns OK. They then know
 * that the caller does not read results that only success writes. */
static inline enum err err_not_ok(enum err code) {
    if (code == OK) __builtin_unreachable();
    return code;
}

/* Fills `error` (NULL allowed) and returns `code`, so that a failure is one line. */
enum err err_set(struct error *error, enum err code, const char *format, ...) PRINTF_LIKE(3, 4);
#define err_set(...) err_not_ok((err_set)(__VA_ARGS__))

/* As err_set, with ": <strerror>" behind the sentence. `errno_value` chooses the code:
 *   ENOSPC, EDQUOT                    ERR_UNAVAILABLE
 *   EMFILE, ENFILE, ENOMEM, ENOBUFS   ERR_EXHAUSTED
 *   ENOENT                            ERR_NOT_FOUND
 *   any other                         ERR_IO */
enum err err_from_errno(struct error *error, int errno_value, const char *format, ...)
    PRINTF_LIKE(3, 4);
#define err_from_errno(...) err_not_ok((err_from_errno)(__VA_ARGS__))

/* Puts "prefix: " before the sentence of `error` and returns its code. */
enum err err_prefix(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);
#define err_prefix(...) err_not_ok((err_prefix)(__VA_ARGS__))

/* "invalid", "not_found", …, for logs and tests. */
const char *err_name(enum err code);
