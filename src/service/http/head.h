/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* head: the strict reading of HTTP/1.x framing: where a request's header block ends and how long
 * its body is. It refuses every form that another reader could understand differently.
 *
 * It stands in front of libmicrohttpd, whose parser (0.9.75) forgives bare LF, folded lines,
 * repeated Content-Length and odd chunk sizes, and does not forgive a blank after a value. It knows
 * no routes and keeps no text: accepted bytes are passed on, unchanged but for the place of such
 * blanks. The rules are RFC 9112 §2.2, §3, §5, §6 and §7.1, with all optional and obsolete forms
 * refused. A target may have the absolute form, which servers must take. Extensions and trailers of
 * chunks are skipped.
 *
 * Thread: any; pure.
 * Memory: none.
 * Invariant: two readers of an accepted block agree on where the next request starts. */

#include "base/str.h"

#define HEAD_BYTES_MAX 16384
#define HEAD_FIELDS_MAX 100
#define HEAD_TARGET_BYTES_MAX 8192
#define CHUNK_NAME_BYTES 24
#define CHUNK_EXTRA_BYTES_MAX 16384 /* extensions and trailers of a body */

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
    /* With HEAD_REFUSED: the status to answer, and one sentence without a full stop. */
    int refusal_status;
    const char *refusal;
};

/* Reads the bytes received so far, which start with the request line. An earlier call has seen the
 * first `checked` of them: they are not searched again, so that a slow client costs no more. */
enum head_state head_read(struct head *ret_head, struct str bytes, size_t checked);

/* Moves the blanks after the value of each field before it. `block` is a complete block. */
void head_move_blanks(char *block, size_t bytes);
/* The bytes of scheme and authority in front of the path of a target in absolute form; 0 for a
 * plain path, SIZE_MAX for any other target. */
size_t head_origin_bytes(struct str target);

/* Follows a chunked body; zero is a valid start. */
struct chunk_scan {
    uint64_t left;  /* bytes left of the current chunk */
    uint64_t size;  /* the number in the current size line, so far */
    uint8_t step;   /* the part that comes next; see head.c */
    uint8_t digits; /* digits of the current size line, so far */
    uint16_t extra; /* bytes of extensions and trailers so far */
    uint8_t name_bytes;
    char name[CHUNK_NAME_BYTES]; /* name of the current trailer, in lower case */
    uint64_t seen;               /* decoded bytes so far */
};

/* Takes bytes of a chunked body; the first *ret_used of them belong to it. HEAD_COMPLETE if they
 * end the body, HEAD_REFUSED for any other text than chunks, and for a trailer that would change
 * the framing or the host. A blank before an extension becomes a ';', since libmicrohttpd knows
 * none. */
enum head_state chunk_scan_feed(struct chunk_scan *scan, char *bytes, size_t count,
                                size_t *ret_used);
