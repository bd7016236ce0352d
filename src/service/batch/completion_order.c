/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/completion_order.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/mirror.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 64
#define MAGIC 0x44524F51u /* "QORD" */
#define VERSION 3u        /* version 1 has no sizes, version 2 no sums */
#define VERSION_OF_SIZES 2u
#define NO_LINE UINT64_MAX
#define PLACES_AT_A_TIME 512
#define PIECE_BYTES ((size_t)4096)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little endian");

/* --- writing --- */

static void grow(struct order_builder *builder, size_t capacity) {
    builder->places = mem_resize(builder->places, capacity, sizeof *builder->places);
    builder->sizes = mem_resize(builder->sizes, capacity, sizeof *builder->sizes);
    builder->sums = mem_resize(builder->sums, capacity, sizeof *builder->sums);
    builder->capacity = capacity;
}

void completion_order_init(struct order_builder *builder, uint64_t last_sequence) {
    *builder = (struct order_builder){0};
    grow(builder, (size_t)last_sequence + 16);
    builder->count = (size_t)last_sequence;
    for (size_t i = 0; i < builder->count; i++) {
        builder->places[i] = NO_LINE;
        builder->sizes[i] = builder->sums[i] = 0;
    }
}

void completion_order_release(struct order_builder *builder) {
    free(builder->places);
    free(builder->sizes);
    free(builder->sums);
}

void completion_order_add(struct order_builder *builder, uint64_t sequence, bool in_errors,
                          uint64_t offset, struct str line) {
    assert(sequence <= builder->count && offset < (uint64_t)1 << 62 && line.bytes <= UINT32_MAX);
    size_t place = sequence ? (size_t)sequence - 1 : builder->count++;
    if (place == builder->capacity) grow(builder, 2 * builder->capacity);
    builder->places[place] = offset << 1 | (in_errors ? 1 : 0);
    builder->sizes[place] = (uint32_t)line.bytes;
    builder->sums[place] = crc32c(0, line.at, line.bytes);
}

uint64_t completion_order_bytes(const struct order_builder *builder) {
    return HEADER_BYTES +
           (uint64_t)builder->count *
               (sizeof *builder->places + sizeof *builder->sizes + sizeof *builder->sums);
}

static void put_u32(unsigned char *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void write_header(unsigned char ret_bytes[HEADER_BYTES], uint32_t version, uint64_t count,
                         const char *id) {
    memset(ret_bytes, 0, HEADER_BYTES);
    put_u32(ret_bytes, MAGIC);
    put_u32(ret_bytes + 4, version);
    memcpy(ret_bytes + 8, &count, sizeof count);
    memcpy(ret_bytes + 16, id, strnlen(id, 40));
    put_u32(ret_bytes + 60, crc32c(0, ret_bytes, 60));
}

static enum err write_file(const struct order_builder *builder, const char *path,
                           const char *batch_id, struct error *error) {
    unsigned char header[HEADER_BYTES];
    int fd;
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    write_header(header, VERSION, builder->count, batch_id);
    err = os_write_all(fd, header, sizeof header, error);
    if (err == OK && builder->count > 0)
        err = os_write_all(fd, builder->places, builder->count * sizeof *builder->places, error);
    if (err == OK && builder->count > 0)
        err = os_write_all(fd, builder->sizes, builder->count * sizeof *builder->sizes, error);
    if (err == OK && builder->count > 0)
        err = os_write_all(fd, builder->sums, builder->count * sizeof *builder->sums, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err;
}

static enum err write_named(const struct order_builder *builder, struct store *store,
                            const char *batch_id, const char *name, struct error *error) {
    char dir[4096], path[4200], fresh[4200];
    enum err err = store_batch_dir(store, batch_id, dir, sizeof dir, error);
    if (err != OK) return err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(fresh, sizeof fresh, "%s/%s.new", dir, name);
    err = write_file(builder, fresh, batch_id, error);
    if (err == OK) err = os_rename(fresh, path, error);
    if (err == OK) err = os_fsync_dir(dir, error);
    return err == OK ? store_mirror_placed(store, path, error) : err;
}

enum err completion_order_write(const struct order_builder *builder, struct store *store,
                                const char *batch_id, struct error *error) {
    return write_named(builder, store, batch_id, STORE_ORDER_NAME, error);
}

/* --- reading --- */

static enum err corrupt(const struct order_reader *reader, struct error *error) {
    return err_set(error, ERR_CORRUPT, "%s of batch %s is damaged", STORE_ORDER_NAME,
                   reader->batch_id);
}

static enum err gone(struct error *error) {
    return err_set(error, ERR_NOT_FOUND,
                   "The results of this batch are no longer available: a result file was deleted "
                   "or has expired.");
}

static enum err open_side(struct order_reader *reader, bool in_errors, int64_t now_unix_s,
                          struct error *error) {
    struct order_side *side = &reader->sides[in_errors];
    struct store_file file;
    if (side->fd >= 0) return OK;
    if (!*side->id) return corrupt(reader, error);
    enum err err =
        store_file_open(reader->store, str_from(side->id), now_unix_s, &side->fd, &file, error);
    if (err != OK) side->fd = -1;
    if (err == ERR_NOT_FOUND) return gone(error);
    if (err == OK) side->bytes = file.bytes;
    return err;
}

/* Checks that a line begins at `offset`. */
static enum err check_start(const struct order_reader *reader, const struct order_side *side,
                            uint64_t offset, struct error *error) {
    char before = '\n';
    if (offset >= side->bytes) return corrupt(reader, error);
    enum err err = offset > 0 ? os_pread_all(side->fd, &before, 1, offset - 1, error) : OK;
    if (err == OK && before != '\n') return corrupt(reader, error);
    return err;
}

/* Appends at most `room` bytes of the line at `offset` from byte `skip` of it on, with its LF.
 * *ret_line_bytes: the size of the whole line; 0 if its end lies behind `room`, unless `counts`. */
static enum err read_line(const struct order_reader *reader, const struct order_side *side,
                          uint64_t offset, uint64_t skip, size_t room, bool counts, struct buf *buf,
                          uint64_t *ret_line_bytes, struct error *error) {
    char piece[PIECE_BYTES];
    enum err err = check_start(reader, side, offset, error);
    uint64_t at = offset + skip;
    *ret_line_bytes = 0;
    if (err == OK && at >= side->bytes) err = corrupt(reader, error);
    while (err == OK && (room > 0 || counts)) {
        uint64_t left = side->bytes - at;
        size_t count = left < sizeof piece ? (size_t)left : sizeof piece;
        if (!counts && count > room) count = room;
        if (count == 0) return corrupt(reader, error);
        err = os_pread_all(side->fd, piece, count, at, error);
        if (err != OK) return err;
        const char *end = memchr(piece, '\n', count);
        if (end) count = (size_t)(end - piece) + 1;
        size_t kept = count < room ? count : room;
        buf_add(buf, piece, kept);
        room -= kept;
        at += count;
        if (!end) continue;
        *ret_line_bytes = at - offset;
        break;
    }
    return err;
}

/* Compares a whole line, before the first byte of it is given away. */
static enum err check_sum(const struct order_reader *reader, const struct order_side *side,
                          uint64_t offset, uint64_t bytes, uint32_t sum, struct error *error) {
    char piece[PIECE_BYTES];
    uint32_t found = 0;
    for (uint64_t done = 0; done < bytes;) {
        size_t count = bytes - done < sizeof piece ? (size_t)(bytes - done) : sizeof piece;
        enum err err = os_pread_all(side->fd, piece, count, offset + done, error);
        if (err != OK) return err;
        found = crc32c(found, piece, count);
        done += count;
    }
    if (found == sum) return OK;
    return err_set(error, ERR_CORRUPT, "a result of batch %s is damaged in %s", reader->batch_id,
                   side->id);
}

static enum err read_header(struct order_reader *reader, struct error *error) {
    unsigned char bytes[HEADER_BYTES], wanted[HEADER_BYTES];
    uint64_t count, file_bytes;
    uint32_t version;
    enum err err = os_pread_all(reader->fd, bytes, sizeof bytes, 0, error);
    if (err == OK) err = os_file_bytes(reader->fd, &file_bytes, error);
    if (err != OK) return err;
    memcpy(&version, bytes + 4, sizeof version);
    memcpy(&count, bytes + 8, sizeof count);
    if (version < 1 || version > VERSION) return corrupt(reader, error);
    reader->has_sizes = version >= VERSION_OF_SIZES;
    reader->has_sums = version >= VERSION;
    uint64_t each = sizeof(uint64_t) + (version - 1) * sizeof(uint32_t);
    write_header(wanted, version, count, reader->batch_id);
    if (memcmp(bytes, wanted, sizeof bytes) != 0 || count > file_bytes / each ||
        file_bytes != HEADER_BYTES + count * each)
        return corrupt(reader, error);
    reader->count = count;
    return OK;
}

/* Some of the file's places in a row. */
struct places {
    uint64_t first, end; /* their numbers; the end is the first that is not among them */
    uint64_t at[PLACES_AT_A_TIME];
    uint32_t sizes[PLACES_AT_A_TIME]; /* sizes of the lines; 0: not known */
    uint32_t sums[PLACES_AT_A_TIME];  /* sums of the lines, if the file has them */
};

/* Reads the places from `first` on, of which there is at least one. */
static enum err read_places(const struct order_reader *reader, uint64_t first,
                            struct places *places, struct error *error) {
    uint64_t left = reader->count - first;
    size_t count = left < PLACES_AT_A_TIME ? (size_t)left : PLACES_AT_A_TIME;
    uint64_t sizes_at = HEADER_BYTES + reader->count * sizeof *places->at;
    enum err err = os_pread_all(reader->fd, places->at, count * sizeof *places->at,
                                HEADER_BYTES + first * sizeof *places->at, error);
    if (err == OK && reader->has_sizes)
        err = os_pread_all(reader->fd, places->sizes, count * sizeof *places->sizes,
                           sizes_at + first * sizeof *places->sizes, error);
    else
        memset(places->sizes, 0, count * sizeof *places->sizes);
    uint64_t sums_at = sizes_at + reader->count * sizeof *places->sizes;
    if (err == OK && reader->has_sums)
        err = os_pread_all(reader->fd, places->sums, count * sizeof *places->sums,
                           sums_at + first * sizeof *places->sums, error);
    places->first = first;
    places->end = first + count;
    return err;
}

/* Reads the line of a place, or only counts it once the page has no room. A line whose size is
 * known is counted without a look at it: a page of a thousand lines would take thousands of reads.
 */
static enum err read_place(struct order_reader *reader, const struct places *places,
                           uint64_t number, const struct page *page, struct page_read *read,
                           struct buf *buf, struct error *error) {
    uint64_t place = places->at[number - places->first], line_bytes = 0;
    uint64_t known_bytes = places->sizes[number - places->first];
    const struct order_side *side = &reader->sides[place & 1];
    size_t before = buf->bytes;
    if ((place >> 1) + known_bytes > side->bytes) return corrupt(reader, error);
    enum err err = OK;
    if (reader->has_sums && !read->is_full && page_skip(page, read) == 0)
        err = check_sum(reader, side, place >> 1, known_bytes, places->sums[number - places->first],
                        error);
    if (err == OK && (!read->is_full || known_bytes == 0))
        err = read_line(reader, side, place >> 1, page_skip(page, read),
                        read->is_full ? 0 : read->room, page->counts && known_bytes == 0, buf,
                        &line_bytes, error);
    if (err == OK && known_bytes > 0 && line_bytes > 0 && line_bytes != known_bytes)
        err = corrupt(reader, error);
    if (page->counts && known_bytes > 0) line_bytes = known_bytes;
    if (err == OK) err = page_note(page, read, number + 1, line_bytes, buf->bytes - before, error);
    if (err != OK) buf_truncate(buf, before);
    return err;
}

enum err completion_order_read(struct order_reader *reader, const struct page *page,
                               int64_t now_unix_s, struct buf *buf, struct page_read *ret_read,
                               struct error *error) {
    struct places places = {.end = 0};
    uint64_t at = page->from.after;
    *ret_read = page_begin(page);
    if (reader->fd >= 0 && at > reader->count) at = reader->count;
    for (; at < reader->count && page_wants(page, ret_read); at++) {
        enum err err = OK;
        if (at >= places.end) err = read_places(reader, at, &places, error);
        if (err != OK) return err;
        uint64_t place = places.at[at - places.first];
        if (place == NO_LINE) continue;
        err = open_side(reader, place & 1, now_unix_s, error);
        if (err == OK) err = read_place(reader, &places, at, page, ret_read, buf, error);
        if (err != OK) return err;
    }
    if (!ret_read->is_full) ret_read->next.after = at; /* behind places without a line, too */
    ret_read->last = page->counts ? at : ret_read->next.after;
    ret_read->more = ret_read->last < reader->count;
    return OK;
}

enum err completion_order_open(struct order_reader *ret_reader, struct store *store,
                               const struct store_batch *batch, struct error *error) {
    struct order_reader reader = {.store = store, .fd = -1, .sides = {{.fd = -1}, {.fd = -1}}};
    char path[4200], name[STORE_ORDER_NAME_BYTES];
    memcpy(reader.batch_id, batch->id, sizeof reader.batch_id);
    memcpy(reader.sides[0].id, batch->output_file_id, sizeof reader.sides[0].id);
    memcpy(reader.sides[1].id, batch->error_file_id, sizeof reader.sides[1].id);
    *ret_reader = reader;
    if (!*batch->output_file_id && !*batch->error_file_id) return OK;
    if (!store_order_find(store, batch, name)) return gone(error);
    snprintf(path, sizeof path, "%s/batches/%s/%s", store_dir(store), batch->id, name);
    enum err err = os_open(&reader.fd, path, O_RDONLY, 0, error);
    if (err == ERR_NOT_FOUND) return gone(error);
    if (err != OK) return err;
    err = read_header(&reader, error);
    if (err == OK)
        *ret_reader = reader;
    else
        os_close(reader.fd);
    return err;
}

void completion_order_close(struct order_reader *reader) {
    os_close(reader->fd);
    os_close(reader->sides[0].fd);
    os_close(reader->sides[1].fd);
}

/* --- erasing --- */

/* The erased line at this offset, or how many lie before it. */
static bool find_erased(const struct order_erased *erased, uint64_t offset, size_t *ret_before) {
    size_t first = 0, end = erased->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (erased->lines[middle].offset < offset)
            first = middle + 1;
        else
            end = middle;
    }
    *ret_before = first;
    return first < erased->count && erased->lines[first].offset == offset;
}

/* The place in the new file; NO_LINE for a line that is empty there. */
static uint64_t moved(const struct order_erased erased[2], uint64_t place) {
    const struct order_erased *side = &erased[place & 1];
    size_t before;
    if (place == NO_LINE || find_erased(side, place >> 1, &before)) return NO_LINE;
    return before ? place - (side->lines[before - 1].gone << 1) : place;
}

static enum err move_places(struct order_reader *reader, const struct order_erased erased[2],
                            struct order_builder *builder, struct error *error) {
    struct places places;
    for (uint64_t at = 0; at < reader->count;) {
        enum err err = read_places(reader, at, &places, error);
        if (err != OK) return err;
        for (; at < places.end; at++) {
            uint64_t place = moved(erased, places.at[at - places.first]);
            bool has_line = place != NO_LINE;
            builder->places[at] = place;
            builder->sizes[at] = has_line ? places.sizes[at - places.first] : 0;
            builder->sums[at] = has_line ? places.sums[at - places.first] : 0;
        }
    }
    return OK;
}

enum err completion_order_erase(struct store *store, const struct store_batch *batch,
                                const struct store_batch *fresh,
                                const struct order_erased erased[2], struct error *error) {
    struct order_reader reader;
    struct order_builder builder;
    char name[STORE_ORDER_NAME_BYTES];
    enum err err = completion_order_open(&reader, store, batch, error);
    if (err != OK) return err;
    if (reader.fd < 0) return OK;
    completion_order_init(&builder, reader.count);
    if (!reader.has_sums) err = corrupt(&reader, error);
    if (err == OK) err = move_places(&reader, erased, &builder, error);
    store_order_name(name, fresh);
    if (err == OK) err = write_named(&builder, store, batch->id, name, error);
    completion_order_release(&builder);
    completion_order_close(&reader);
    return err;
}
