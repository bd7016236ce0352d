/* SPDX-License-Identifier: Apache-2.0 */
#include "store/segment_reader.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint64_t segment_search_budget(uint64_t bytes) {
    return 4 * bytes + (1 << 20);
}

const unsigned char *segment_peek(struct segment_reader *reader, uint64_t at, size_t count) {
    assert(count <= SEGMENT_WINDOW_BYTES);
    if (at > reader->bytes || count > reader->bytes - at) return NULL;
    if (at < reader->window_at || at + count > reader->window_at + reader->window_bytes) {
        uint64_t left = reader->bytes - at;
        reader->window_at = at;
        reader->window_bytes = left < SEGMENT_WINDOW_BYTES ? (size_t)left : SEGMENT_WINDOW_BYTES;
        if (os_pread_all(reader->fd, reader->window, reader->window_bytes, at, &reader->failure) !=
            OK) {
            reader->window_bytes = 0;
            return NULL;
        }
    }
    return reader->window + (at - reader->window_at);
}

void segment_look_again(struct segment_reader *reader) {
    reader->window_bytes = 0;
}

/* Sums a record's bytes from offset 8 on. */
static bool sum_record(struct segment_reader *reader, uint64_t at, uint64_t bytes,
                       uint32_t *ret_crc) {
    uint32_t crc = 0;
    for (uint64_t done = 8; done < bytes;) {
        size_t count =
            bytes - done < SEGMENT_WINDOW_BYTES ? (size_t)(bytes - done) : SEGMENT_WINDOW_BYTES;
        const unsigned char *part = segment_peek(reader, at + done, count);
        if (!part) return false;
        crc = crc32c(crc, part, count);
        done += count;
    }
    *ret_crc = crc;
    return true;
}

bool segment_record_at(struct segment_reader *reader, uint64_t at,
                       struct record_header *ret_header) {
    struct record_header header;
    uint32_t crc;
    const unsigned char *bytes = segment_peek(reader, at, SEGLOG_RECORD_BYTES);
    if (!bytes || !record_header_read(bytes, &header)) return false;
    if (header.bytes > reader->bytes - at - SEGLOG_RECORD_BYTES) return false;
    if (header.batch_sequence != reader->batch_sequence || header.line >= reader->line_count ||
        header.sequence < reader->next_sequence || header.sequence == UINT64_MAX)
        return false;
    if (!sum_record(reader, at, SEGLOG_RECORD_BYTES + (uint64_t)header.bytes, &crc)) return false;
    if (crc != header.crc) return false;
    *ret_header = header;
    return true;
}

uint64_t segment_find_record(struct segment_reader *reader, uint64_t at) {
    struct record_header header;
    while (at + SEGLOG_RECORD_BYTES <= reader->data_bytes && reader->search_budget > 0) {
        uint64_t left = reader->data_bytes - at;
        size_t count = left < SEGMENT_WINDOW_BYTES ? (size_t)left : SEGMENT_WINDOW_BYTES;
        const unsigned char *window = segment_peek(reader, at, count);
        if (!window) break;
        const unsigned char *found = memmem(window, count, "QREC", 4);
        if (!found) {
            at += count - 3;
            continue;
        }
        at += (uint64_t)(found - window);
        const unsigned char *bytes = segment_peek(reader, at, SEGLOG_RECORD_BYTES);
        uint64_t cost = SEGLOG_RECORD_BYTES;
        if (bytes && record_header_read(bytes, &header)) cost += header.bytes;
        if (segment_record_at(reader, at, &header)) return at;
        reader->search_budget -= cost < reader->search_budget ? cost : reader->search_budget;
        at++;
    }
    return UINT64_MAX;
}

/* --- a segment that grows --- */

/* The end of the last valid record. */
static uint64_t walk(struct segment_reader *reader) {
    uint64_t at = SEGLOG_HEADER_BYTES, end = at, looked_again_at = 0;
    for (;;) {
        struct record_header header;
        if (segment_record_at(reader, at, &header)) {
            reader->next_sequence = header.sequence + 1;
            at += SEGLOG_RECORD_BYTES + (uint64_t)header.bytes;
            end = at;
            continue;
        }
        uint64_t next = segment_find_record(reader, at + 1);
        if (next == UINT64_MAX) return end;
        if (looked_again_at != at) {
            looked_again_at = at;
            segment_look_again(reader);
        } else {
            at = next; /* the bytes before it are damage, which a copy keeps */
        }
    }
}

enum err segment_measure(int fd, uint64_t *ret_bytes, struct error *error) {
    struct segment_reader reader = {.fd = fd, .line_count = UINT64_MAX, .next_sequence = 1};
    struct segment_header header;
    enum err err = os_file_bytes(fd, &reader.bytes, error);
    if (err != OK) return err;
    reader.data_bytes = reader.bytes; /* it grows meanwhile */
    reader.window = mem_alloc(SEGMENT_WINDOW_BYTES);
    reader.search_budget = segment_search_budget(reader.bytes);
    const unsigned char *bytes = segment_peek(&reader, 0, SEGLOG_HEADER_BYTES);
    *ret_bytes = 0;
    if (bytes && segment_header_read(bytes, &header)) {
        reader.batch_sequence = header.batch_sequence;
        *ret_bytes = walk(&reader);
    }
    free(reader.window);
    /* A segment that the server sealed meanwhile is shorter, and ends behind its last record. */
    if (reader.failure.code == OK || reader.failure.code == ERR_CORRUPT) return OK;
    *error = reader.failure;
    return reader.failure.code;
}
