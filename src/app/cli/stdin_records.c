/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stdin_records.h"

#include "base/os.h"
#include "base/os_pipe.h"
#include "json/json.h"

#include <stdio.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 * 1024)
#define ANSWER_BYTES_MAX ((size_t)1 << 30)

/* Reads all of standard input. */
static enum err read_all(struct buf *ret_text, struct error *error) {
    for (;;) {
        size_t count;
        char *room = buf_reserve(ret_text, PIECE_BYTES);
        if (!room)
            return err_set(error, ERR_LIMIT, "standard input has more than %zu bytes",
                           ret_text->bytes_max);
        enum err err = os_pipe_wait(STDIN_FILENO, error);
        if (err == OK) err = os_read(STDIN_FILENO, room, PIECE_BYTES, &count, error);
        if (err != OK) return err;
        if (count == 0) return OK;
        buf_commit(ret_text, count);
    }
}

static enum err print(const struct buf *answer, struct error *error) {
    if (fwrite(answer->at, 1, answer->bytes, stdout) == answer->bytes) return OK;
    return err_set(error, ERR_IO, "cannot write to standard output");
}

static enum err answer_line(record_fn answer, void *context, struct str line, struct buf *out,
                            struct error *error) {
    struct error own = {0};
    buf_clear(out);
    if (answer(context, line, out, &own) != OK) {
        buf_clear(out);
        buf_add_text(out, "{\"error\": ");
        json_write_string(out, str_from(own.text));
        buf_add_byte(out, '}');
    }
    buf_add_byte(out, '\n');
    return print(out, error);
}

static enum err answer_lines(record_fn answer, void *context, struct str text, struct buf *out,
                             struct error *error) {
    enum err err = OK;
    while (text.bytes > 0 && err == OK) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str line = {text.at, end == SIZE_MAX ? text.bytes : end};
        err = answer_line(answer, context, line, out, error);
        text = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
    }
    return err;
}

enum err stdin_records_answer(bool batch, record_fn answer, void *context, struct error *error) {
    struct buf text, out;
    buf_init(&text, RECORDS_INPUT_BYTES_MAX);
    buf_init(&out, ANSWER_BYTES_MAX);
    enum err err = read_all(&text, error);
    if (err == OK && batch) {
        err = answer_lines(answer, context, buf_str(&text), &out, error);
    } else if (err == OK) {
        err = answer(context, buf_str(&text), &out, error);
        if (err == OK) err = print(&out, error);
    }
    if (fflush(stdout) != 0 && err == OK)
        err = err_set(error, ERR_IO, "cannot write to standard output");
    buf_release(&text);
    buf_release(&out);
    return err;
}
