/* SPDX-License-Identifier: Apache-2.0 */

/* Requests of lines, found by the offsets of some lines in the input, one per REQUESTS_STEP lines
 * and per REQUESTS_STEP_BYTES, so that a lookup reads little whatever the lines are. The offsets
 * are noted by readers on their way, or in one pass by the thread, which also compares the shapes
 * that the requests ask for. */

#include "answers/answers_internal.h"

#include "base/mem.h"
#include "batch/line.h"
#include "store/files.h"

#include <sodium/crypto_shorthash.h>
#include <string.h>

#define REQUESTS_STEP 256                       /* lines between two noted offsets, at most */
#define REQUESTS_STEP_BYTES ((uint64_t)1 << 20) /* bytes between them, but for one line */
#define PIECE_LINES 4096                        /* read in one look */

/* --- requests --- */

/* Notes where the line with this number begins, if it is far behind the last one noted. The lock of
 * the requests is held. */
static void note_offset(struct answers_index *index, uint64_t line, uint64_t offset) {
    const struct request_place *last =
        index->place_count ? &index->places[index->place_count - 1] : NULL;
    if (last && (line <= last->line || (line - last->line < REQUESTS_STEP &&
                                        offset - last->offset < REQUESTS_STEP_BYTES)))
        return;
    index->places =
        vec_grow(index->places, index->place_count, &index->place_capacity, sizeof *index->places);
    index->places[index->place_count++] = (struct request_place){line, offset};
}

/* The last place that is noted at or before the line. The lock is held. */
static struct request_place place_before(const struct answers_index *index, uint64_t line) {
    size_t first = 0, end = index->place_count;
    while (end - first > 1) {
        size_t middle = first + (end - first) / 2;
        if (index->places[middle].line <= line)
            first = middle;
        else
            end = middle;
    }
    return end > first ? index->places[first] : (struct request_place){0, 0};
}

/* The lock is held. */
static bool is_erased(const struct answers_index *index, uint32_t line) {
    uint64_t number = line;
    size_t at = 0;
    store_erased_skip(&index->erased, &at, &number);
    return number != line;
}

/* Reads on from the last known offset at or before the line. The lock is held. */
static enum err find_request(struct answers_index *index, struct jsonl_file *file, uint32_t line,
                             size_t bytes_max, struct buf *buf, struct error *error) {
    struct request_place place = place_before(index, line);
    uint64_t number = place.line;
    size_t erased_at = 0;
    jsonl_file_skip_to(file, place.offset);
    struct str text;
    if (is_erased(index, line))
        return err_set(error, ERR_NOT_FOUND, "Line %u was erased.", (unsigned)line + 1);
    for (; jsonl_file_next(file, &text); number++) {
        store_erased_skip(&index->erased, &erased_at, &number);
        note_offset(index, number, file->lines.offset);
        if (number < line) continue;
        if (text.bytes > bytes_max)
            return err_set(error, ERR_LIMIT, "The request of line %u has %zu bytes.",
                           (unsigned)line + 1, text.bytes);
        buf_add_str(buf, text);
        return OK;
    }
    if (file->failed) {
        *error = file->why;
        return error->code;
    }
    return err_set(error, ERR_NOT_FOUND, "The batch has no line %u.", (unsigned)line + 1);
}

/* The numbers of requests are those of one input, and its erased lines are known. */
static enum err note_input(struct answers_index *index, const char *input_id, struct error *error) {
    enum err err = OK;
    pthread_mutex_lock(&index->requests);
    if (!*index->input_id) {
        err = store_erased_lines(index->answers->store, index->batch_id, &index->erased, error);
        if (err == OK) memcpy(index->input_id, input_id, sizeof index->input_id);
    } else if (strcmp(index->input_id, input_id) != 0) {
        err = err_set(error, ERR_NOT_FOUND, "Lines of the batch were erased; ask again.");
    }
    pthread_mutex_unlock(&index->requests);
    return err;
}

/* Opens the input of the batch; the caller closes `file` in any case. */
static enum err open_input(struct answers_index *index, struct jsonl_file *file,
                           struct error *error) {
    struct store *store = index->answers->store;
    struct store_batch batch;
    struct store_file input;
    int fd;
    enum err err = store_batch_get(store, str_from(index->batch_id), &batch, error);
    if (err != OK) return err;
    err = note_input(index, batch.input_file_id, error);
    bool is_known = err == OK;
    if (is_known)
        err = store_input_open(store, str_from(batch.input_file_id), batch.created_unix_s, &fd,
                               &input, error);
    if (err == OK) {
        jsonl_file_take(file, fd, input.bytes);
    } else if (is_known && err == ERR_NOT_FOUND) {
        err_set(error, err, "The input file '%s' of this batch was deleted or has expired.",
                batch.input_file_id);
    }
    store_batch_release(&batch);
    return err;
}

enum err answers_read_request(struct answers_index *index, uint32_t line, size_t bytes_max,
                              struct buf *buf, struct error *error) {
    struct jsonl_file file;
    jsonl_file_init(&file);
    enum err err = open_input(index, &file, error);
    if (err == OK) {
        pthread_mutex_lock(&index->requests);
        err = find_request(index, &file, line, bytes_max, buf, error);
        pthread_mutex_unlock(&index->requests);
    }
    jsonl_file_close(&file);
    return err;
}

/* --- the pass of the thread --- */

/* The hash of the answer's shape that a request asks for; 0: it asks for none. */
static uint64_t hash_shape(const struct answers_index *index, struct str text, struct buf *room) {
    struct batch_line line;
    unsigned char sum[crypto_shorthash_BYTES];
    uint64_t hash;
    if (batch_line_read(text, &line) != BATCH_LINE_READ) return 0;
    buf_clear(room);
    struct str shape = batch_line_shape(&line, room);
    if (shape.bytes == 0) shape = line.questions;
    if (shape.bytes == 0) return 0;
    crypto_shorthash(sum, (const unsigned char *)shape.at, shape.bytes, index->answers->key);
    memcpy(&hash, sum, sizeof hash);
    return hash ? hash : 1;
}

static void read_request(struct answers_index *index, struct str text, struct buf *room) {
    /* Once two shapes differ, the rest of the input is read for its offsets alone. */
    if (!index->has_shape || index->has_one_shape) {
        uint64_t shape = hash_shape(index, text, room);
        if (!index->has_shape) index->shape = shape;
        index->has_shape = true;
        index->has_one_shape = shape != 0 && shape == index->shape;
    }
    pthread_mutex_lock(&index->requests);
    uint64_t number = index->input_lines;
    store_erased_skip(&index->erased, &index->erased_at, &number);
    note_offset(index, number, index->input.lines.offset);
    index->input_lines = (uint32_t)number + 1;
    pthread_mutex_unlock(&index->requests);
}

enum err index_read_requests(struct answers_index *index, bool *ret_more, struct error *error) {
    struct jsonl_file *input = &index->input;
    struct str text;
    struct buf room;
    size_t count = 0;
    enum err err = OK;
    *ret_more = false;
    if (input->lines.fd < 0) {
        index->input_lines = 0; /* a pass that failed begins again */
        index->erased_at = 0;
        index->has_shape = false;
        err = open_input(index, input, error);
    }
    if (err != OK) return err;
    buf_init(&room, BUF_UNLIMITED);
    for (; count < PIECE_LINES && jsonl_file_next(input, &text); count++)
        read_request(index, text, &room);
    buf_release(&room);
    *ret_more = count == PIECE_LINES;
    if (*ret_more) return OK;
    if (input->failed) err = err_set(error, input->why.code, "%s", input->why.text);
    jsonl_file_close(input);
    return err;
}
