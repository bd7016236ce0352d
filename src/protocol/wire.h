/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wire: framed messages between the server and an engine process, over a stream socket.
 *
 * A frame is a 24-byte little-endian header and a payload:
 *
 *   u32 magic "QWF1" | u8 kind | u8 flags | u16 reserved, 0 | u64 id | u32 payload bytes | u32 CRC
 *
 * The CRC is CRC-32C over the first 20 bytes of the header and then the payload. Payload layouts
 * are in wire_messages.h. Knows no JSON and no meaning of the ids. Both sides treat a bad frame as
 * the death of the other side, for after one the stream has no frame borders any more.
 *
 * Thread: a reader belongs to one thread; writing takes the caller's lock.
 * Memory: a reader owns one buf, of at most one frame and one read. */

#include "base/buf.h"

#define WIRE_HEADER_BYTES 24
#define WIRE_PAYLOAD_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define WIRE_ROOM_BYTES ((size_t)64 * 1024)
#define WIRE_VERSION 2

enum wire_kind {
    /* server → engine */
    WIRE_HELLO = 1,  /* the first frame: version, options */
    WIRE_JOB = 2,    /* id: the job's */
    WIRE_CANCEL = 3, /* id: the job's */
    WIRE_PING = 4,   /* id: any number, which the answering STATS repeats */
    WIRE_DRAIN = 5,  /* finish what runs, take nothing new, then exit */
    /* engine → server */
    WIRE_READY = 16,  /* version, model names, context, limits */
    WIRE_DELTA = 17,  /* id: the job's */
    WIRE_RESULT = 18, /* id: the job's; nothing of that job follows */
    WIRE_STATS = 19,  /* about once a second, and as the answer to a ping */
    WIRE_FATAL = 20,  /* one sentence; the engine exits after it */
};

struct wire_frame {
    enum wire_kind kind;
    uint8_t flags;
    uint64_t id;
    struct str payload; /* borrowed from the reader until its next call of wire_reader_room */
};

struct wire_reader {
    struct buf bytes;
    size_t consumed; /* of bytes, by the frames handed out */
};

void wire_reader_init(struct wire_reader *reader);
void wire_reader_release(struct wire_reader *reader);
/* Room of WIRE_ROOM_BYTES or more for what recv() brings; `wire_reader_filled` says how much came.
 * Every whole frame must have been taken with wire_reader_next before. */
char *wire_reader_room(struct wire_reader *reader, size_t *ret_room_bytes);
void wire_reader_filled(struct wire_reader *reader, size_t count);
/* The next whole frame; *ret_found false when more bytes are needed. ERR_CORRUPT for a bad magic,
 * CRC, kind or size, then and at every later call. */
enum err wire_reader_next(struct wire_reader *reader, struct wire_frame *ret_frame, bool *ret_found,
                          struct error *error) MUST_CHECK;

/* Appends one frame. The payload is at most WIRE_PAYLOAD_BYTES_MAX. */
void wire_write(struct buf *out, enum wire_kind kind, uint64_t id, uint8_t flags,
                struct str payload);
/* "hello", "job", …; NULL for a number that is no kind. */
const char *wire_kind_name(unsigned kind);
