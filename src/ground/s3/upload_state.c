/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/upload_state.h"

#include "base/file_lock.h"
#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)16 << 20) /* each part sent several times */
#define FIRST "quern-upload 1 "

/* The next word of a line; what follows it stays in *line. */
static struct str next_word(struct str *line) {
    size_t end = str_find_byte(*line, ' ', 0);
    struct str word = {line->at, end == SIZE_MAX ? line->bytes : end};
    *line = str_skip(*line, end == SIZE_MAX ? line->bytes : end + 1);
    return word;
}

static bool copy_word(struct str word, char *ret_text, size_t text_bytes) {
    if (word.bytes == 0 || word.bytes >= text_bytes || memchr(word.at, '\0', word.bytes))
        return false;
    memcpy(ret_text, word.at, word.bytes);
    ret_text[word.bytes] = '\0';
    return true;
}

static bool take_first(struct upload_state *state, struct str line) {
    uint64_t file_bytes;
    if (!str_starts_with(line, STR(FIRST))) return false;
    line = str_skip(line, strlen(FIRST));
    if (!str_to_u64(next_word(&line), &file_bytes) || file_bytes != state->file_bytes) return false;
    if (!str_is(next_word(&line), state->place)) return false;
    return copy_word(line, state->upload_id, sizeof state->upload_id);
}

bool upload_state_take(struct upload_state *state, struct str line) {
    uint64_t number;
    struct upload_part part = {0};
    if (!*state->upload_id) return take_first(state, line);
    if (!str_to_u64(next_word(&line), &number) || number < 1 || number > state->part_count)
        return false;
    if (!copy_word(next_word(&line), part.sum, sizeof part.sum) ||
        !copy_word(line, part.etag, sizeof part.etag))
        return false;
    state->parts[number - 1] = part;
    return true;
}

static void forget(struct upload_state *state) {
    state->upload_id[0] = '\0';
    memset(state->parts, 0, state->part_count * sizeof *state->parts);
}

/* Takes the whole lines, and returns how many bytes they have; 0 if one of them is none. */
static size_t take_lines(struct upload_state *state, struct str text) {
    size_t at = 0;
    for (;;) {
        size_t end = str_find_byte(text, '\n', at);
        if (end == SIZE_MAX) return at;
        if (!upload_state_take(state, (struct str){text.at + at, end - at})) return 0;
        at = end + 1;
    }
}

enum err upload_state_open(struct upload_state *state, struct error *error) {
    char *text;
    size_t bytes;
    state->parts = mem_new(state->part_count, sizeof *state->parts);
    enum err err =
        os_open(&state->fd, state->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_APPEND, 0600, error);
    if (err != OK) return err;
    err = file_lock(state->fd, state->path, false, error);
    if (err == ERR_CONFLICT)
        return err_set(error, err, "another quern sends by %.300s", state->path);
    if (err != OK) return err;
    err = os_read_opened(state->fd, state->path, FILE_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    size_t good = take_lines(state, (struct str){text, bytes});
    free(text);
    if (good == 0) forget(state);
    return os_ftruncate(state->fd, good, error);
}

/* Appends one line, which is durable enough: after a kill it is there, after a loss of power the
 * part is sent again. */
static enum err append(struct upload_state *state, const struct buf *line, struct error *error) {
    enum err err = os_write_all(state->fd, line->at, line->bytes, error);
    return err == OK ? OK : err_prefix(error, "%.200s", state->path);
}

enum err upload_state_begin(struct upload_state *state, const char *upload_id,
                            struct error *error) {
    struct buf line;
    forget(state);
    if (!*upload_id || strpbrk(upload_id, " \t\r\n") || strlen(upload_id) >= S3_UPLOAD_ID_BYTES)
        return err_set(error, ERR_CORRUPT, "S3 gives an upload an id that is none");
    memcpy(state->upload_id, upload_id, strlen(upload_id) + 1);
    enum err err = os_ftruncate(state->fd, 0, error);
    if (err != OK) return err;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line, FIRST "%" PRIu64 " %s %s\n", state->file_bytes, state->place, upload_id);
    err = append(state, &line, error);
    buf_release(&line);
    return err;
}

enum err upload_state_add(struct upload_state *state, uint32_t number, const char *sum,
                          const char *etag, struct error *error) {
    struct upload_part *part = &state->parts[number - 1];
    struct buf line;
    memcpy(part->sum, sum, strlen(sum) + 1);
    memcpy(part->etag, etag, strlen(etag) + 1);
    part->is_there = true;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line, "%" PRIu32 " %s %s\n", number, sum, etag);
    enum err err = append(state, &line, error);
    buf_release(&line);
    return err;
}

void upload_state_close(struct upload_state *state) {
    free(state->parts);
    os_close(state->fd);
    state->parts = NULL;
    state->fd = -1;
}
