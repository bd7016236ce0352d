/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/jsonl_file.h"

#include "base/os.h"
#include "base/os_pipe.h"
#include "json/span.h"
#include "store/seglog.h"

#define PIECE_BYTES ((size_t)256 << 10)

void jsonl_file_init(struct jsonl_file *file) {
    *file = (struct jsonl_file){.fd = -1};
    buf_init(&file->buf, SEGLOG_TEXT_BYTES_MAX + 2 * PIECE_BYTES);
}

enum err jsonl_file_open(struct jsonl_file *ret_file, const char *path, struct error *error) {
    jsonl_file_init(ret_file);
    /* A pipe has no size: it would be an empty file. */
    enum err err = os_open_plain(&ret_file->fd, path, error);
    if (err != OK) return err;
    return os_file_bytes(ret_file->fd, &ret_file->bytes, error);
}

void jsonl_file_close(struct jsonl_file *file) {
    os_close(file->fd);
    file->fd = -1;
    buf_release(&file->buf);
}

enum err jsonl_file_end(struct jsonl_file *file, const char *name, enum err err,
                        struct error *error) {
    if (err == OK && file->failed)
        err = err_set(error, file->why.code, "%s: %s", name, file->why.text);
    jsonl_file_close(file);
    return err;
}

/* Reads the next piece of the file into the buf; false at its end. */
static bool fill(struct jsonl_file *file) {
    uint64_t left = file->bytes - file->offset;
    if (left == 0) return false;
    buf_consume(&file->buf, file->at);
    file->at = 0;
    size_t count = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    char *room = buf_reserve(&file->buf, count);
    enum err err = room ? os_pread_all(file->fd, room, count, file->offset, &file->why)
                        : err_set(&file->why, ERR_LIMIT, "line %llu has more than %zu bytes",
                                  (unsigned long long)file->number + 1, SEGLOG_TEXT_BYTES_MAX);
    if (err != OK) {
        file->failed = true;
        return false;
    }
    buf_commit(&file->buf, count);
    file->offset += count;
    return true;
}

/* The bytes from `at` up to and with the next LF, or up to the end of the file. A long line comes in
 * many pieces, of which each is searched once. */
static struct str find_line(struct jsonl_file *file) {
    size_t searched = 0;
    for (;;) {
        struct str rest = str_skip(buf_str(&file->buf), file->at);
        size_t end = str_find_byte(rest, '\n', searched);
        if (end != SIZE_MAX) return (struct str){rest.at, end + 1};
        searched = rest.bytes;
        if (!fill(file)) return rest;
    }
}

bool jsonl_file_next(struct jsonl_file *file, struct str *ret_line) {
    while (file->fd >= 0) {
        struct str line = find_line(file);
        if (file->failed || line.bytes == 0) return false;
        file->at += line.bytes;
        if (file->number == 0 && str_starts_with(line, STR("\xEF\xBB\xBF")))
            line = str_skip(line, 3);
        file->number++;
        line = json_span_trim(line);
        if (line.bytes == 0) continue;
        *ret_line = line;
        return true;
    }
    return false;
}

uint64_t jsonl_file_line_at(const struct jsonl_file *file, struct str line) {
    return file->offset - file->buf.bytes + (uint64_t)(line.at - file->buf.at);
}
