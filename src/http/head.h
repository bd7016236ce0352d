/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* head: the strict reading of HTTP/1.x framing: where a request's header block ends, how long its
 * body is, and every way in which that could be understood differently by somebody else.
 *
 * This is the check in front of libmicrohttpd, whose parser (0.9.75) forgives bare LF, folded
 * lines, repeated Content-Length and odd chunk sizes. It knows no routes and keeps no text: what it
 * accepts is passed on byte for byte. Rules: RFC 9112 §2.2, §3, §5, §6, §7.1, with everything
 * optional or obsolete refused.
 *
 * Thread: any; pure.  Memory: none.
 * Invariant: two readers of an accepted block agree on where the next request starts. */

#include "base/str.h"

#define HEAD_BYTES_MAX 16384
#define HEAD_FIELDS_MAX 100
#define HEAD_TARGET_BYTES_MAX 8192

enum head_state {
    HEAD_INCOMPLETE, /* more bytes are needed */
    HEAD_COMPLETE,
    HEAD_REFUSED,
};

enum head_body {
    HEAD_BODY_NONE,
    HEAD_BODY_LENGTH,
    HEAD_BODY_CHUNKED,
};

struct head {
    size_t bytes; /* the whole block, with the empty line */
    enum head_body body;
    uint64_t body_bytes; /* with HEAD_BODY_LENGTH */
    /* When refused: the status to answer and one sentence without a full stop. */
    int refusal_status;
    const char *refusal;
};

/* Looks at the bytes received so far, which start with the request line. `checked` is how many of
 * them an earlier call has seen, so that bytes that trickle in are not searched again. */
enum head_state head_read(struct head *ret_head, struct str bytes, size_t checked);

/* Follows a chunked body; zero is a valid start. */
struct chunk_scan {
    uint64_t left;  /* of the chunk being read */
    uint64_t size;  /* of the size line being read */
    uint8_t step;   /* what comes next; see head.c */
    uint8_t digits; /* of the size line */
    uint64_t seen;  /* decoded bytes so far */
};

/* Takes bytes of a chunked body. *ret_used is how many of them belong to it. HEAD_COMPLETE when the
 * last of them ends the body, HEAD_REFUSED for anything but plain chunks without extensions and
 * trailers. */
enum head_state chunk_scan_feed(struct chunk_scan *scan, struct str bytes, size_t *ret_used);
