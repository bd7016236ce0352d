/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wire: framed messages between the server and an engine process, over a stream socket.
 *
 * A frame is a header of 24 bytes, little-endian, and a payload:
 *
 *   offset  type  field
 *        0  u32   magic "QWF1"
 *        4  u8    kind
 *        5  u8    flags of FATAL: bit 0 WIRE_FLAG_NO_CARD, bit 1 WIRE_FLAG_CARD_FAILED; else 0
 *        6  u16   reserved, 0
 *        8  u64   id
 *       16  u32   payload bytes
 *       20  u32   CRC-32C over bytes 0 to 19 and the payload
 *       24        the payload (wire_messages.h)
 *
 * A frame is valid if (1) its magic is right, (2) its kind is known, (3) its reserved bytes are 0,
 * (4) its payload is at most WIRE_PAYLOAD_BYTES_MAX, and (5) its CRC is right. Both sides treat any
 * other frame as the death of the other side, because the stream has no frame borders after it.
 * Knows no JSON and no meaning of the ids.
 *
 * Thread: a reader belongs to one thread; writing needs the lock of the buffer's owner.
 * Memory: a reader owns one buffer, of at most one frame and one read. */

#include "base/buf.h"

#define WIRE_HEADER_BYTES 24
#define WIRE_PAYLOAD_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define WIRE_ROOM_BYTES ((size_t)64 * 1024)
#define WIRE_VERSION 16

enum wire_kind {
    /* server → engine */
    WIRE_HELLO = 1,  /* the first frame: version, options */
    WIRE_JOB = 2,    /* id: the job */
    WIRE_CANCEL = 3, /* id: the job */
    WIRE_PING = 4,   /* id: any number, which the STATS that answers repeats */
    WIRE_DRAIN = 5,  /* finish running jobs, refuse new ones, then exit */
    /* engine → server */
    WIRE_READY = 16,  /* version, model names, context, limits */
    WIRE_DELTA = 17,  /* id: the job */
    WIRE_RESULT = 18, /* id: the job; no other frame of it follows */
    WIRE_STATS = 19,  /* about once per second, and as the answer to a ping */
    WIRE_FATAL = 20,  /* one sentence; the engine exits after it */
};

/* The sentence of this FATAL is about the GPU and not about the model: the GPU is lost, or others
 * hold its memory. A later start may find it again. */
#define WIRE_FLAG_NO_CARD 1u
/* The sentence of this FATAL is an error of the GPU in a step. */
#define WIRE_FLAG_CARD_FAILED 2u

struct wire_frame {
    enum wire_kind kind;
    uint8_t flags;
    uint64_t id;
    struct str payload; /* borrowed from the reader until its next call of wire_reader_room */
};

struct wire_reader {
    struct buf bytes;
    size_t consumed; /* bytes of the frames handed out */
};

void wire_reader_init(struct wire_reader *reader);
void wire_reader_release(struct wire_reader *reader);
/* Room of WIRE_ROOM_BYTES for recv(); `wire_reader_filled` then tells the bytes that came. Every
 * whole frame must have been taken with wire_reader_next before. */
char *wire_reader_room(struct wire_reader *reader, size_t *ret_room_bytes);
void wire_reader_filled(struct wire_reader *reader, size_t count);
/* The next whole frame; *ret_found is false if more bytes are needed. ERR_CORRUPT for a frame that
 * is not valid, at this call and at every later one. */
enum err wire_reader_next(struct wire_reader *reader, struct wire_frame *ret_frame, bool *ret_found,
                          struct error *error) MUST_CHECK;

/* Appends one frame. The payload is at most WIRE_PAYLOAD_BYTES_MAX. */
void wire_write(struct buf *out, enum wire_kind kind, uint64_t id, uint8_t flags,
                struct str payload);
/* The same for a payload that is written in between: the place that wire_begin returns is that of
 * the frame. */
size_t wire_begin(struct buf *out, enum wire_kind kind, uint64_t id, uint8_t flags);
void wire_end(struct buf *out, size_t at);
/* "hello", "job", …; NULL for any other number. */
const char *wire_kind_name(unsigned kind);
