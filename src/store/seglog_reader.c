/* SPDX-License-Identifier: Apache-2.0 */
#include "store/seglog_reader.h"

#include "base/os.h"
#include "store/seglog_internal.h"

#include <assert.h>
#include <fcntl.h>

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

/* Finds the first place whose record comes after `after`, by halving. */
static enum err seek(struct seglog_reader *reader, uint64_t after, struct error *error) {
    pthread_mutex_lock(&reader->log->lock);
    size_t low = 0, high = reader->log->order_count;
    pthread_mutex_unlock(&reader->log->lock);
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

enum err seglog_reader_next(struct seglog_reader *reader, struct buf *buf,
                            struct seglog_found *ret_found, bool *ret_more, struct error *error) {
    uint32_t line;
    uint64_t position = 0;
    *ret_more = false;
    while (line_at(reader->log, reader->at, &line, &position)) {
        enum err err = ERR_CORRUPT;
        if (position != 0) err = open_segment(reader, (uint32_t)(position >> 32), error);
        if (position != 0 && err == OK)
            err = seglog_read_at(reader->log, reader->fd, (uint32_t)position, line, buf, ret_found,
                                 error);
        if (err != OK && err != ERR_CORRUPT) return err;
        reader->at++;
        if (err == ERR_CORRUPT) continue;
        assert(ret_found->sequence > reader->after);
        reader->after = ret_found->sequence;
        *ret_more = true;
        return OK;
    }
    return OK;
}

void seglog_reader_close(struct seglog_reader *reader) {
    os_close(reader->fd);
    reader->fd = -1;
}
