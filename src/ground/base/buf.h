/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* buf: the one growing run of bytes, with a maximum that it never passes.
 *
 * An append returns no error. A piece that would pass the maximum is dropped as a whole and sets
 * `overflowed`; the owner checks that once, at the end. Out of memory aborts.
 *
 * Thread: one at a time.
 * Memory: owns `at`; buf_release frees it.
 * Invariant: at[bytes] is NUL if `at` is not NULL, so that C functions can read the text. */

#include "base/err.h"
#include "base/str.h"

struct buf {
    char *at;
    size_t bytes;
    size_t capacity;
    size_t bytes_max;
    bool overflowed;
};

/* The maximum of a buf whose content another limit bounds already. Half of the address space, so
 * that sums of sizes below it cannot wrap. */
#define BUF_UNLIMITED (SIZE_MAX / 2)

void buf_init(struct buf *buf, size_t bytes_max);
void buf_release(struct buf *buf);
void buf_clear(struct buf *buf); /* keeps the memory; forgets an overflow */
void buf_add(struct buf *buf, const void *bytes, size_t count);
void buf_add_str(struct buf *buf, struct str text);
void buf_add_text(struct buf *buf, const char *text);
void buf_add_byte(struct buf *buf, char byte);
void buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Room for a reader to write `count` more bytes; NULL if they would pass the maximum. buf_commit
 * makes the written bytes part of the buf. */
char *buf_reserve(struct buf *buf, size_t count);
void buf_commit(struct buf *buf, size_t count);
/* Drops the first `count` bytes. */
void buf_consume(struct buf *buf, size_t count);
void buf_truncate(struct buf *buf, size_t bytes);
struct str buf_str(const struct buf *buf);
