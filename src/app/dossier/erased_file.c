/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erased_file.h"

#include "base/mem.h"
#include "base/os.h"
#include "json/lines.h"
#include "json/span.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* A copy on its way. */
struct copying {
    const char *path;
    struct erased_file *file;
    const struct erased_choice *choice;
    struct run_salts_file *salts;
    int from, to;
    struct lines lines;
    struct buf out;
    size_t span; /* the first that does not end before the current line */
};

/* Notes a line of the ids. */
static void note(struct copying *copying, struct str line) {
    unsigned char salt[SHA256_BYTES];
    struct erased_file *file = copying->file;
    file->lines = vec_grow(file->lines, file->count, &file->capacity, sizeof *file->lines);
    struct line_erased *erased = &file->lines[file->count++];
    *erased = (struct line_erased){.line = copying->lines.number};
    if (copying->salts && line_salts_get(&copying->salts->salts, copying->lines.number - 1, salt))
        line_sum_leaf(salt, line, erased->leaf);
}

static bool is_object(struct str line) {
    struct str value;
    if (str_starts_with(line, STR("\xEF\xBB\xBF"))) line = str_skip(line, 3);
    return json_span_read(line, &value) && json_span_is_object(value);
}

/* Whether a line of JSONL has one of the ids. */
static enum err look_at_object(struct copying *copying, struct str line, bool *ret_goes,
                               struct error *error) {
    const struct erased_choice *choice = copying->choice;
    *ret_goes = false;
    if (json_span_trim(line).bytes == 0) return OK;
    if (!is_object(line))
        return err_set(error, ERR_INVALID,
                       "%s, line %" PRIu64
                       ": it is no JSON object, so it is no line of requests, results or "
                       "judgements",
                       copying->path, copying->lines.number);
    *ret_goes = line_ids_have(choice->ids, line, choice->notes);
    return OK;
}

/* Whether a line lies in one of the rows. */
static enum err look_at_row(struct copying *copying, struct str line, bool *ret_goes,
                            struct error *error) {
    const struct erased_rows *rows = copying->choice->rows;
    uint64_t from = copying->lines.offset, end = from + line.bytes;
    while (copying->span < rows->count && rows->spans[copying->span].end <= from) copying->span++;
    *ret_goes = copying->span < rows->count && rows->spans[copying->span].from < end;
    if (!*ret_goes) return OK;
    const struct erased_span *span = &rows->spans[copying->span];
    struct str before = {line.at, span->from > from ? span->from - from : 0};
    struct str behind = str_skip(line, span->end < end ? span->end - from : line.bytes);
    if (str_is(before, "\xEF\xBB\xBF")) before.bytes = 0;
    if (before.bytes == 0 && json_span_trim(behind).bytes == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "%s, line %" PRIu64
                   ": it has parts of two rows, since the rows end in CR alone, so one cannot be "
                   "erased without the other; save the table with LF or CRLF, and run it again",
                   copying->path, copying->lines.number);
}

/* Takes the current line, with its LF. */
static enum err take_line(struct copying *copying, struct error *error) {
    bool goes;
    struct str line = copying->lines.line;
    enum err err = copying->choice->rows ? look_at_row(copying, line, &goes, error)
                                         : look_at_object(copying, line, &goes, error);
    if (err != OK) return err;
    if (goes) {
        note(copying, line);
        buf_add_byte(&copying->out, '\n');
    } else {
        buf_add_str(&copying->out, line);
    }
    if (copying->out.bytes >= PIECE_BYTES) {
        err = os_write_all(copying->to, copying->out.at, copying->out.bytes, error);
        buf_clear(&copying->out);
    }
    return err;
}

static enum err copy_lines(struct copying *copying, struct error *error) {
    struct lines *lines = &copying->lines;
    enum err err;
    while ((err = lines_next_whole(lines, error)) == OK && lines->line.at) {
        err = take_line(copying, error);
        if (err != OK) return err;
    }
    if (err != OK) return err_prefix(error, "%s", copying->path);
    err = os_write_all(copying->to, copying->out.at, copying->out.bytes, error);
    return err == OK ? os_fsync(copying->to, error) : err;
}

static enum err open_both(struct copying *copying, struct error *error) {
    char made[PATH_MAX];
    struct stat status;
    const char *path = copying->path;
    if (snprintf(made, sizeof made, ERASED_FILE_NAME, path) >= (int)sizeof made)
        return err_set(error, ERR_INVALID, "the name %s is too long", path);
    enum err err = os_open(&copying->from, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err == OK) err = os_create(&copying->to, made, 0600, error);
    if (err == OK &&
        (fstat(copying->from, &status) != 0 || fchmod(copying->to, status.st_mode & 07777) != 0))
        err = err_from_errno(error, errno, "cannot set the mode of %s", made);
    return err;
}

enum err erased_file_write(struct erased_file *ret_file, const char *path,
                           const struct erased_choice *choice, struct run_salts_file *salts,
                           struct error *error) {
    *ret_file = (struct erased_file){.lines = NULL};
    struct copying copying = {
        .path = path, .file = ret_file, .choice = choice, .salts = salts, .from = -1, .to = -1};
    buf_init(&copying.out, BUF_UNLIMITED);
    enum err err = open_both(&copying, error);
    lines_init(&copying.lines, copying.from);
    if (err == OK) err = copy_lines(&copying, error);
    os_close(copying.from);
    os_close(copying.to);
    lines_release(&copying.lines);
    buf_release(&copying.out);
    if (err != OK) erased_file_release(ret_file);
    return err;
}

void erased_file_release(struct erased_file *file) {
    free(file->lines);
    file->lines = NULL;
    file->count = 0;
}
