/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/wire.h"

#include "base/crc.h"
#include "protocol/wire_messages.h"

#include <assert.h>

#define MAGIC 0x31465751u /* the bytes "QWF1" */
#define BYTES_AT 16
#define CRC_AT 20
#define KEPT_BYTES_MAX ((size_t)1 << 20) /* a larger buffer is given back after its frame */

void wire_reader_init(struct wire_reader *reader) {
    *reader = (struct wire_reader){.consumed = 0};
    buf_init(&reader->bytes, WIRE_HEADER_BYTES + WIRE_PAYLOAD_BYTES_MAX + WIRE_ROOM_BYTES);
}

void wire_reader_release(struct wire_reader *reader) {
    buf_release(&reader->bytes);
    reader->consumed = 0;
}

char *wire_reader_room(struct wire_reader *reader, size_t *ret_room_bytes) {
    buf_consume(&reader->bytes, reader->consumed);
    reader->consumed = 0;
    if (reader->bytes.bytes == 0 && reader->bytes.capacity > KEPT_BYTES_MAX)
        buf_release(&reader->bytes);
    /* The rest is less than one frame, so there is always room. */
    char *room = buf_reserve(&reader->bytes, WIRE_ROOM_BYTES);
    assert(room);
    *ret_room_bytes = WIRE_ROOM_BYTES;
    return room;
}

void wire_reader_filled(struct wire_reader *reader, size_t count) {
    if (count > 0) buf_commit(&reader->bytes, count);
}

const char *wire_kind_name(unsigned kind) {
    switch (kind) {
    case WIRE_HELLO: return "hello";
    case WIRE_JOB: return "job";
    case WIRE_CANCEL: return "cancel";
    case WIRE_PING: return "ping";
    case WIRE_DRAIN: return "drain";
    case WIRE_READY: return "ready";
    case WIRE_DELTA: return "delta";
    case WIRE_RESULT: return "result";
    case WIRE_STATS: return "stats";
    case WIRE_FATAL: return "fatal";
    default: return NULL;
    }
}

enum err wire_reader_next(struct wire_reader *reader, struct wire_frame *ret_frame, bool *ret_found,
                          struct error *error) {
    struct str rest = str_skip(buf_str(&reader->bytes), reader->consumed);
    *ret_found = false;
    if (rest.bytes < WIRE_HEADER_BYTES) return OK;

    struct wire_cursor header = {.bytes = {rest.at, WIRE_HEADER_BYTES}};
    uint32_t magic = wire_get_u32(&header);
    uint8_t kind = wire_get_u8(&header);
    uint8_t flags = wire_get_u8(&header);
    uint16_t reserved = wire_get_u16(&header);
    uint64_t id = wire_get_u64(&header);
    uint32_t payload_bytes = wire_get_u32(&header);
    uint32_t crc = wire_get_u32(&header);
    assert(!header.bad);
    if (magic != MAGIC) return err_set(error, ERR_CORRUPT, "wire: bad magic 0x%08x", magic);
    if (!wire_kind_name(kind))
        return err_set(error, ERR_CORRUPT, "wire: unknown frame kind %u", kind);
    if (reserved != 0)
        return err_set(error, ERR_CORRUPT, "wire: reserved bits 0x%04x are set", reserved);
    if (payload_bytes > WIRE_PAYLOAD_BYTES_MAX)
        return err_set(error, ERR_CORRUPT, "wire: a payload of %u bytes is over the limit of %zu",
                       payload_bytes, WIRE_PAYLOAD_BYTES_MAX);
    if (rest.bytes - WIRE_HEADER_BYTES < payload_bytes) return OK;

    struct str payload = {rest.at + WIRE_HEADER_BYTES, payload_bytes};
    uint32_t computed = crc32c(crc32c(0, rest.at, CRC_AT), payload.at, payload.bytes);
    if (computed != crc)
        return err_set(error, ERR_CORRUPT, "wire: CRC 0x%08x of a %s frame, computed 0x%08x", crc,
                       wire_kind_name(kind), computed);
    reader->consumed += WIRE_HEADER_BYTES + payload_bytes;
    *ret_frame = (struct wire_frame){(enum wire_kind)kind, flags, id, payload};
    *ret_found = true;
    return OK;
}

void wire_write(struct buf *out, enum wire_kind kind, uint64_t id, uint8_t flags,
                struct str payload) {
    size_t at = wire_begin(out, kind, id, flags);
    buf_add_str(out, payload);
    wire_end(out, at);
}

size_t wire_begin(struct buf *out, enum wire_kind kind, uint64_t id, uint8_t flags) {
    size_t at = out->bytes;
    wire_put_u32(out, MAGIC);
    wire_put_u8(out, (uint8_t)kind);
    wire_put_u8(out, flags);
    wire_put_u16(out, 0);
    wire_put_u64(out, id);
    wire_put_u32(out, 0);
    wire_put_u32(out, 0);
    return at;
}

static void store_u32(char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (char)(value >> 8 * i);
}

void wire_end(struct buf *out, size_t at) {
    if (out->overflowed) return;
    char *header = out->at + at, *payload = header + WIRE_HEADER_BYTES;
    size_t bytes = out->bytes - at - WIRE_HEADER_BYTES;
    assert(bytes <= WIRE_PAYLOAD_BYTES_MAX);
    store_u32(header + BYTES_AT, (uint32_t)bytes);
    store_u32(header + CRC_AT, crc32c(crc32c(0, header, CRC_AT), payload, bytes));
}
