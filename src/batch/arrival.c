/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/arrival.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 64
#define MAGIC 0x44524F51u /* "QORD" */
#define VERSION 1u
#define NO_LINE UINT64_MAX
#define PLACES_AT_A_TIME 512
#define PIECE_BYTES ((size_t)4096)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little endian");

/* --- writing --- */

static void grow(struct arrival_builder *builder, size_t capacity) {
    builder->places = mem_resize(builder->places, capacity, sizeof *builder->places);
    builder->capacity = capacity;
}

void arrival_init(struct arrival_builder *builder, uint64_t last_sequence) {
    *builder = (struct arrival_builder){0};
    grow(builder, (size_t)last_sequence + 16);
    builder->count = (size_t)last_sequence;
    for (size_t i = 0; i < builder->count; i++) builder->places[i] = NO_LINE;
}

void arrival_release(struct arrival_builder *builder) {
    free(builder->places);
}

void arrival_add(struct arrival_builder *builder, uint64_t sequence, bool in_errors,
                 uint64_t offset) {
    assert(sequence <= builder->count && offset < (uint64_t)1 << 62);
    size_t place = sequence ? (size_t)sequence - 1 : builder->count++;
    if (place == builder->capacity) grow(builder, 2 * builder->capacity);
    builder->places[place] = offset << 1 | (in_errors ? 1 : 0);
}

uint64_t arrival_bytes(const struct arrival_builder *builder) {
    return HEADER_BYTES + (uint64_t)builder->count * sizeof *builder->places;
}

static void put_u32(unsigned char *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void write_header(unsigned char ret_bytes[HEADER_BYTES], uint64_t count, const char *id) {
    memset(ret_bytes, 0, HEADER_BYTES);
    put_u32(ret_bytes, MAGIC);
    put_u32(ret_bytes + 4, VERSION);
    memcpy(ret_bytes + 8, &count, sizeof count);
    memcpy(ret_bytes + 16, id, strnlen(id, 40));
    put_u32(ret_bytes + 60, crc32c(0, ret_bytes, 60));
}

static enum err write_file(const struct arrival_builder *builder, const char *path,
                           const char *batch_id, struct error *error) {
    unsigned char header[HEADER_BYTES];
    int fd;
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    write_header(header, builder->count, batch_id);
    err = os_write_all(fd, header, sizeof header, error);
    if (err == OK && builder->count > 0)
        err = os_write_all(fd, builder->places, builder->count * sizeof *builder->places, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err;
}

enum err arrival_write(const struct arrival_builder *builder, struct store *store,
                       const char *batch_id, struct error *error) {
    char dir[4096], path[4200], fresh[4200];
    enum err err = store_batch_dir(store, batch_id, dir, sizeof dir, error);
    if (err != OK) return err;
    snprintf(path, sizeof path, "%s/" STORE_ORDER_NAME, dir);
    snprintf(fresh, sizeof fresh, "%s/" STORE_ORDER_NAME ".new", dir);
    err = write_file(builder, fresh, batch_id, error);
    if (err == OK) err = os_rename(fresh, path, error);
    return err == OK ? os_fsync_dir(dir, error) : err;
}

/* --- reading --- */

/* One of the two result files, opened when a line of it is asked for. */
struct side {
    int fd; /* -1: not open */
    uint64_t bytes;
};

struct reading {
    struct store *store;
    const struct store_batch *batch;
    int64_t now_unix_s;
    struct side sides[2]; /* output, errors */
};

static enum err corrupt(const struct reading *reading, struct error *error) {
    return err_set(error, ERR_CORRUPT, "%s of batch %s is damaged", STORE_ORDER_NAME,
                   reading->batch->id);
}

static enum err gone(struct error *error) {
    return err_set(error, ERR_NOT_FOUND,
                   "The results of this batch are no longer available: a result file was deleted "
                   "or has expired.");
}

static enum err open_side(struct reading *reading, bool in_errors, struct error *error) {
    struct side *side = &reading->sides[in_errors];
    const char *id = in_errors ? reading->batch->error_file_id : reading->batch->output_file_id;
    struct store_file file;
    if (side->fd >= 0) return OK;
    if (!*id) return corrupt(reading, error);
    enum err err =
        store_file_open(reading->store, str_from(id), reading->now_unix_s, &side->fd, &file, error);
    if (err == ERR_NOT_FOUND) return gone(error);
    if (err == OK) side->bytes = file.bytes;
    return err;
}

/* Appends the line at `offset`, with its LF. */
static enum err read_line(struct reading *reading, const struct side *side, uint64_t offset,
                          struct buf *buf, struct error *error) {
    size_t from = buf->bytes;
    char before = '\n';
    if (offset >= side->bytes) return corrupt(reading, error);
    enum err err = offset > 0 ? os_pread_all(side->fd, &before, 1, offset - 1, error) : OK;
    if (err != OK) return err;
    if (before != '\n') return corrupt(reading, error);
    for (size_t piece = PIECE_BYTES;; piece = 2 * piece) {
        uint64_t left = side->bytes - offset;
        size_t count = left < piece ? (size_t)left : piece;
        char *room = count > 0 ? buf_reserve(buf, count) : NULL;
        if (!room) break;
        err = os_pread_all(side->fd, room, count, offset, error);
        if (err != OK) break;
        const char *end = memchr(room, '\n', count);
        if (end) {
            buf_commit(buf, (size_t)(end - room) + 1);
            return OK;
        }
        buf_commit(buf, count);
        offset += count;
    }
    buf_truncate(buf, from);
    return err == OK ? corrupt(reading, error) : err;
}

static enum err read_header(struct reading *reading, int fd, uint64_t *ret_count,
                            struct error *error) {
    unsigned char bytes[HEADER_BYTES], wanted[HEADER_BYTES];
    uint64_t count, file_bytes;
    enum err err = os_pread_all(fd, bytes, sizeof bytes, 0, error);
    if (err == OK) err = os_file_bytes(fd, &file_bytes, error);
    if (err != OK) return err;
    memcpy(&count, bytes + 8, sizeof count);
    write_header(wanted, count, reading->batch->id);
    if (memcmp(bytes, wanted, sizeof bytes) != 0 || count > file_bytes / sizeof count ||
        file_bytes != HEADER_BYTES + count * sizeof count)
        return corrupt(reading, error);
    *ret_count = count;
    return OK;
}

static enum err read_page(struct reading *reading, int fd, const struct arrival_page *page,
                          struct buf *buf, uint64_t *ret_last, bool *ret_more,
                          struct error *error) {
    uint64_t places[PLACES_AT_A_TIME], count = 0, lines = 0, at = page->after;
    size_t from = buf->bytes;
    enum err err = read_header(reading, fd, &count, error);
    if (at > count) at = count;
    for (uint64_t left = 0, have = 0; err == OK && at < count; at++, left--) {
        if (lines == page->lines_max || buf->bytes - from >= page->bytes_max) break;
        if (left == 0) {
            have = count - at < PLACES_AT_A_TIME ? count - at : PLACES_AT_A_TIME;
            left = have;
            err = os_pread_all(fd, places, have * sizeof *places,
                               HEADER_BYTES + at * sizeof *places, error);
            if (err != OK) break;
        }
        uint64_t place = places[have - left];
        if (place == NO_LINE) continue;
        err = open_side(reading, place & 1, error);
        if (err == OK) err = read_line(reading, &reading->sides[place & 1], place >> 1, buf, error);
        if (err != OK) break;
        lines++;
    }
    *ret_last = at;
    *ret_more = at < count;
    return err;
}

enum err arrival_read(struct store *store, const struct store_batch *batch,
                      const struct arrival_page *page, struct buf *buf, uint64_t *ret_last,
                      bool *ret_more, struct error *error) {
    struct reading reading = {.store = store,
                              .batch = batch,
                              .now_unix_s = page->now_unix_s,
                              .sides = {{-1, 0}, {-1, 0}}};
    char path[4200];
    int fd;
    *ret_last = page->after;
    *ret_more = false;
    if (!*batch->output_file_id && !*batch->error_file_id) return OK;
    snprintf(path, sizeof path, "%s/batches/%s/" STORE_ORDER_NAME, store_dir(store), batch->id);
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err == ERR_NOT_FOUND) return gone(error);
    if (err != OK) return err;
    err = read_page(&reading, fd, page, buf, ret_last, ret_more, error);
    os_close(fd);
    os_close(reading.sides[0].fd);
    os_close(reading.sides[1].fd);
    return err;
}
