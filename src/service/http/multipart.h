/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* multipart: reads a multipart/form-data body (RFC 7578, RFC 2046 §5.1) in pieces of any size and
 * hands on part headers and part bytes as they come; a part is never held whole.
 *
 * It is strict where two readers could differ: delimiter lines end in CRLF (with blanks allowed
 * before it), a part has exactly one Content-Disposition with a name, header blocks are small, and
 * the body ends with the closing delimiter. It skips a preamble and an epilogue, as RFC 2046
 * demands.
 *
 * Thread: one per struct.
 * Memory: fixed; no allocation.
 * Invariant: the data calls of a part, joined, are exactly its bytes. */

#include "base/err.h"
#include "base/str.h"

#define MULTIPART_BOUNDARY_BYTES_MAX 70 /* RFC 2046 §5.1.1 */
#define MULTIPART_HEAD_BYTES_MAX 4096   /* bytes of one part's headers */
#define MULTIPART_TEXT_BYTES 1024       /* room for a name, a file name or a type */
#define MULTIPART_PARTS_MAX 64

/* The headers of a part; the texts end with a NUL and hold no other. */
struct multipart_part {
    char name[MULTIPART_TEXT_BYTES];
    char filename[MULTIPART_TEXT_BYTES];
    char content_type[MULTIPART_TEXT_BYTES]; /* empty: absent */
    bool has_filename;
};

/* Each may return false to stop the reading: multipart_feed then returns ERR_CANCELLED. */
struct multipart_events {
    void *context;
    bool (*begin)(void *context, const struct multipart_part *part);
    bool (*data)(void *context, struct str bytes);
    bool (*end)(void *context);
};

enum multipart_state {
    MULTIPART_PREAMBLE,
    MULTIPART_AFTER_DELIMITER,
    MULTIPART_HEAD,
    MULTIPART_DATA,
    MULTIPART_EPILOGUE,
    MULTIPART_FAILED,
};

struct multipart {
    struct multipart_events events;
    enum multipart_state state;
    /* CR LF "--" boundary; the preamble starts as if its CR LF had been read. */
    char delimiter[4 + MULTIPART_BOUNDARY_BYTES_MAX + 1];
    size_t delimiter_bytes;
    size_t matched; /* bytes of the delimiter that the latest bytes match */
    size_t granted; /* those of them that the part's headers supplied and that are no data */
    char head[MULTIPART_HEAD_BYTES_MAX];
    size_t head_bytes; /* in `head`, which also holds the rest of a delimiter line */
    size_t parts;
    struct multipart_part part;
};

/* Starts a reader; `content_type` is the request's header. ERR_INVALID unless it is
 * multipart/form-data with a usable boundary. */
enum err multipart_init(struct multipart *multipart, struct str content_type,
                        const struct multipart_events *events, struct error *error) MUST_CHECK;
/* Reads the next bytes. ERR_INVALID for a malformed body, ERR_LIMIT over a bound, ERR_CANCELLED if
 * an event returned false; after an error nothing more may be fed. */
enum err multipart_feed(struct multipart *multipart, struct str bytes,
                        struct error *error) MUST_CHECK;
/* Ends the body. ERR_INVALID if it has no closing delimiter. */
enum err multipart_end(struct multipart *multipart, struct error *error) MUST_CHECK;

/* Reads one parameter of a header value such as `form-data; name="a"; filename="b"`: unquoted, with
 * \" and \\ undone, and with the %22, %0D and %0A of browsers undone. False if it is absent, given
 * twice, malformed, too long, or holds a NUL. */
bool multipart_parameter(struct str value, const char *key, char *ret_text, size_t text_bytes);
