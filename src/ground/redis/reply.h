/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reply: reads the replies of a Redis server (RESP2) from a stream of bytes that may hold anything.
 *
 * A reply is a tree, kept as a list of values in the order in which they came. A number in the
 * stream that announces bytes or items is believed only up to the limits below, and no memory is
 * taken for it before its bytes have come. Each byte is looked at once, whatever pieces it came in;
 * only a line, at most REPLY_LINE_BYTES long, is searched again for its end.
 *
 * Thread: a reader belongs to one thread.
 * Memory: the bytes of one reply and of what came behind it, up to the reader's limit, and 32 bytes
 *     per value.
 * Invariant: a reply that was handed out lies whole in the buffer until the next reply_next. */

#include "base/buf.h"

#define REPLY_LINE_BYTES 1024    /* the longest status, error or number */
#define REPLY_VALUES_MAX 1048576 /* values of one reply */
#define REPLY_DEPTH_MAX 8        /* lists in lists */

enum reply_kind { REPLY_STATUS, REPLY_ERROR, REPLY_NUMBER, REPLY_TEXT, REPLY_LIST, REPLY_NONE };

struct reply_value {
    enum reply_kind kind;
    uint32_t count;  /* REPLY_LIST: items that follow */
    int64_t number;  /* REPLY_NUMBER */
    struct str text; /* REPLY_STATUS, REPLY_ERROR, REPLY_TEXT */
};

struct reply_reader {
    struct buf bytes;
    size_t consumed; /* bytes of the reply that was handed out */
    size_t at;       /* read up to here */
    struct reply_value *values;
    size_t value_count, value_capacity;
    uint32_t open[REPLY_DEPTH_MAX]; /* items that the open lists still want */
    size_t depth;
    bool is_bad;
};

void reply_reader_init(struct reply_reader *reader, size_t bytes_max);
void reply_reader_release(struct reply_reader *reader);
/* Forgets all bytes, as for a new connection. */
void reply_reader_clear(struct reply_reader *reader);
/* The next whole reply: *ret_values are its values, the root first. *ret_found is false if more
 * bytes are needed, to be added to `reader->bytes`. ERR_CORRUPT for bytes that are no reply or pass
 * a limit, at this call and at every later one. */
enum err reply_next(struct reply_reader *reader, const struct reply_value **ret_values,
                    size_t *ret_count, bool *ret_found, struct error *error) MUST_CHECK;
/* Room to read the next bytes into; NULL if the reply passes the reader's limit. */
char *reply_room(struct reply_reader *reader, size_t count);
/* The value behind `value` and all that is in it. */
const struct reply_value *reply_behind(const struct reply_value *value);
