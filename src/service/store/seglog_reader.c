/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seglog_reader.h"

#include "base/crc.h"
#include "base/os.h"
#include "store/seglog_internal.h"

#include <assert.h>
#include <fcntl.h>

#define CHUNK_BYTES ((size_t)8192) /* one read; most records are smaller */

/* The line at a place of the order and its position; 0 for a forgotten line. False at the end. */
static bool line_at(struct seglog *log, size_t at, uint32_t *ret_line, uint64_t *ret_position) {
    pthread_mutex_lock(&log->lock);
    bool there = at < log->order_count;
    if (there) *ret_line = log->order[at];
    if (there)
        *ret_position = *ret_line == UINT32_MAX ? 0 : atomic_load(&log->positions[*ret_line]);
    pthread_mutex_unlock(&log->lock);
    return there;
}

static enum err open_segment(struct seglog_reader *reader, uint32_t segment, struct error *error) {
    if (reader->fd >= 0 && reader->segment == segment) return OK;
    char path[STORE_PATH_BYTES];
    os_close(reader->fd);
    reader->fd = -1;
    seglog_segment_path(reader->log, segment, path);
    enum err err = os_open(&reader->fd, path, O_RDONLY, 0, error);
    if (err == OK)
        reader->segment = segment;
    else
        reader->fd = -1;
    return err;
}

/* The sequence number at a place of the order; 0 when its record is forgotten or damaged. */
static enum err sequence_at(struct seglog_reader *reader, size_t at, uint64_t *ret_sequence,
                            struct error *error) {
    uint32_t line;
    uint64_t position = 0;
    unsigned char bytes[SEGLOG_RECORD_BYTES];
    struct record_header header;
    *ret_sequence = 0;
    if (!line_at(reader->log, at, &line, &position) || position == 0) return OK;
    enum err err = open_segment(reader, (uint32_t)(position >> 32), error);
    if (err == OK) err = os_pread_all(reader->fd, bytes, sizeof bytes, (uint32_t)position, error);
    if (err == ERR_CORRUPT) return OK;
    if (err == OK && record_header_read(bytes, &header)) *ret_sequence = header.sequence;
    return err;
}

/* Finds the first place whose record comes after `after`: the one that has it if no record before
 * is a double, else by halving. */
static enum err seek(struct seglog_reader *reader, uint64_t after, struct error *error) {
    pthread_mutex_lock(&reader->log->lock);
    size_t low = 0, high = reader->log->order_count;
    pthread_mutex_unlock(&reader->log->lock);
    if (high > after)
        high = (size_t)after; /* numbers start at 1, so that a later place is behind */
    uint64_t last = 0;
    enum err found = high > 0 ? sequence_at(reader, high - 1, &last, error) : OK;
    if (found != OK) return found;
    if (last > 0 && last <= after) low = high;
    while (low < high) {
        size_t middle = low + (high - low) / 2, at = middle;
        uint64_t sequence = 0;
        enum err err = OK;
        for (; at < high && sequence == 0 && err == OK; at++)
            err = sequence_at(reader, at, &sequence, error);
        if (err != OK) return err;
        if (sequence == 0 || sequence > after)
            high = middle;
        else
            low = at;
    }
    reader->at = low;
    return OK;
}

enum err seglog_reader_open(struct seglog_reader *ret_reader, struct seglog *log, uint64_t after,
                            struct error *error) {
    struct seglog_reader reader = {.log = log, .after = after, .fd = -1};
    enum err err = after > 0 ? seek(&reader, after, error) : OK;
    if (err != OK) {
        seglog_reader_close(&reader);
        return err;
    }
    *ret_reader = reader;
    return OK;
}

/* One record that is being read, in chunks, so that a long one takes no memory. */
struct reading {
    int fd;
    uint64_t offset; /* place of the record in its segment */
    uint64_t bytes;  /* bytes in the whole record */
    uint64_t at;     /* place of `chunk` in the record */
    size_t chunk_bytes;
    unsigned char chunk[CHUNK_BYTES];
};

static enum err read_chunk(struct reading *reading, uint64_t at, struct error *error) {
    uint64_t left = reading->bytes - at;
    reading->at = at;
    reading->chunk_bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    return os_pread_all(reading->fd, reading->chunk, reading->chunk_bytes, reading->offset + at,
                        error);
}

/* Reads a header. False when no record of the line can begin with it. */
static bool is_record_of(const struct seglog *log, uint32_t line,
                         const unsigned char bytes[SEGLOG_RECORD_BYTES],
                         struct record_header *ret_header) {
    return record_header_read(bytes, ret_header) && ret_header->line == line &&
           ret_header->batch_sequence == log->identity.batch_sequence;
}

/* Reads the first chunk and the header. ERR_CORRUPT when no record of the line can stand there. */
static enum err begin_record(struct reading *reading, const struct seglog *log, uint32_t line,
                             struct record_header *ret_header, struct error *error) {
    uint64_t file_bytes;
    enum err err = os_file_bytes(reading->fd, &file_bytes, error);
    if (err != OK) return err;
    if (reading->offset + SEGLOG_RECORD_BYTES > file_bytes) return ERR_CORRUPT;
    reading->bytes = file_bytes - reading->offset;
    err = read_chunk(reading, 0, error);
    if (err != OK) return err;
    if (!is_record_of(log, line, reading->chunk, ret_header) ||
        ret_header->bytes > reading->bytes - SEGLOG_RECORD_BYTES)
        return ERR_CORRUPT;
    reading->bytes = SEGLOG_RECORD_BYTES + (uint64_t)ret_header->bytes;
    if (reading->chunk_bytes > reading->bytes) reading->chunk_bytes = (size_t)reading->bytes;
    return OK;
}

/* Appends the part of the chunk that lies between two places of the record. */
static void keep(const struct reading *reading, uint64_t from, uint64_t to, struct buf *buf) {
    uint64_t end = reading->at + reading->chunk_bytes;
    if (from < reading->at) from = reading->at;
    if (to > end) to = end;
    if (from < to) buf_add(buf, reading->chunk + (from - reading->at), (size_t)(to - from));
}

/* Appends the bytes of the record between two places, and sums the whole record. */
static enum err sum_record(struct reading *reading, const struct record_header *header,
                           uint64_t from, uint64_t to, struct buf *buf, struct error *error) {
    uint32_t crc = crc32c(0, reading->chunk + 8, reading->chunk_bytes - 8);
    keep(reading, from, to, buf);
    while (reading->at + reading->chunk_bytes < reading->bytes) {
        enum err err = read_chunk(reading, reading->at + reading->chunk_bytes, error);
        if (err != OK) return err;
        crc = crc32c(crc, reading->chunk, reading->chunk_bytes);
        keep(reading, from, to, buf);
    }
    return crc == header->crc ? OK : ERR_CORRUPT;
}

/* Appends the bytes of the record between two places, unsummed: its first part was. */
static enum err read_between(struct reading *reading, uint64_t from, uint64_t to, struct buf *buf,
                             struct error *error) {
    char *room = buf_reserve(buf, (size_t)(to - from));
    if (!room) return err_set(error, ERR_LIMIT, "no room for a part of a record");
    enum err err =
        os_pread_all(reading->fd, room, (size_t)(to - from), reading->offset + from, error);
    if (err == OK) buf_commit(buf, (size_t)(to - from));
    return err;
}

static void describe(struct seglog_part *part, const struct record_header *header) {
    part->line = header->line;
    part->sequence = header->sequence;
    part->text_bytes = header->bytes - (header->has_usage ? SEGLOG_USAGE_BYTES : 0);
}

/* Reads a record's header only. A page of a thousand records is measured so for each client that
 * asks for it, whether or not the client takes it. */
static enum err count_part(struct seglog_reader *reader, uint32_t line, uint32_t offset,
                           struct seglog_part *part, struct error *error) {
    unsigned char bytes[SEGLOG_RECORD_BYTES];
    struct record_header header;
    enum err err = os_pread_all(reader->fd, bytes, sizeof bytes, offset, error);
    if (err != OK) return err;
    if (!is_record_of(reader->log, line, bytes, &header)) return ERR_CORRUPT;
    describe(part, &header);
    return OK;
}

static enum err read_part(struct seglog_reader *reader, uint32_t line, uint32_t offset,
                          struct seglog_part *part, struct buf *buf, struct error *error) {
    struct reading reading = {.fd = reader->fd, .offset = offset};
    struct record_header header;
    size_t before = buf->bytes;
    if (part->skip == 0 && part->room == 0) return count_part(reader, line, offset, part, error);
    enum err err = begin_record(&reading, reader->log, line, &header, error);
    if (err != OK) return err;
    describe(part, &header);
    if (part->skip > part->text_bytes) return ERR_CORRUPT;
    uint64_t left = part->text_bytes - part->skip;
    uint64_t from = SEGLOG_RECORD_BYTES + part->skip;
    uint64_t to = from + (left < part->room ? left : part->room);
    err = part->skip == 0 ? sum_record(&reading, &header, from, to, buf, error)
                          : read_between(&reading, from, to, buf, error);
    if (err != OK) buf_truncate(buf, before);
    return err;
}

enum err seglog_reader_next(struct seglog_reader *reader, struct seglog_part *part, struct buf *buf,
                            bool *ret_more, struct error *error) {
    uint32_t line;
    uint64_t position = 0;
    *ret_more = false;
    while (line_at(reader->log, reader->at, &line, &position)) {
        enum err err = ERR_CORRUPT;
        if (position != 0) err = open_segment(reader, (uint32_t)(position >> 32), error);
        if (position != 0 && err == OK)
            err = read_part(reader, line, (uint32_t)position, part, buf, error);
        if (err != OK && err != ERR_CORRUPT) return err;
        reader->at++;
        if (err == ERR_CORRUPT) {
            if (position != 0) seglog_forget(reader->log, line); /* and no page counts it again */
            continue;
        }
        assert(part->sequence > reader->after);
        reader->after = part->sequence;
        *ret_more = true;
        return OK;
    }
    return OK;
}

void seglog_reader_close(struct seglog_reader *reader) {
    os_close(reader->fd);
    reader->fd = -1;
}
