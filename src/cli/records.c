/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/records.h"

#include "base/os.h"
#include "cli/command.h"
#include "json/json.h"

#include <stdio.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 * 1024)
#define ANSWER_BYTES_MAX ((size_t)1 << 30)

enum err records_read_all(struct buf *ret_text, struct error *error) {
    for (;;) {
        size_t count;
        char *room = buf_reserve(ret_text, PIECE_BYTES);
        if (!room)
            return err_set(error, ERR_LIMIT, "standard input has more than %zu bytes",
                           ret_text->bytes_max);
        enum err err = os_read(STDIN_FILENO, room, PIECE_BYTES, &count, error);
        if (err != OK) return err;
        if (count == 0) return OK;
        buf_commit(ret_text, count);
    }
}

static bool print(const struct buf *answer) {
    return fwrite(answer->at, 1, answer->bytes, stdout) == answer->bytes;
}

static bool answer_line(record_fn answer, void *context, struct str line, struct buf *out) {
    struct error error = {0};
    buf_clear(out);
    if (answer(context, line, out, &error) != OK) {
        buf_clear(out);
        buf_add_text(out, "{\"error\": ");
        json_write_string(out, str_from(error.text));
        buf_add_byte(out, '}');
    }
    buf_add_byte(out, '\n');
    return print(out);
}

static bool answer_lines(record_fn answer, void *context, struct str text, struct buf *out) {
    while (text.bytes > 0) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str line = {text.at, end == SIZE_MAX ? text.bytes : end};
        if (!answer_line(answer, context, line, out)) return false;
        text = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
    }
    return true;
}

int records_answer(bool batch, record_fn answer, void *context) {
    struct error error = {0};
    struct buf text, out;
    int status = EXIT_GOOD;
    buf_init(&text, RECORDS_INPUT_BYTES_MAX);
    buf_init(&out, ANSWER_BYTES_MAX);
    if (records_read_all(&text, &error) != OK) {
        fprintf(stderr, "quern: %s\n", error.text);
        status = EXIT_WRONG_INPUT;
    } else if (batch) {
        if (!answer_lines(answer, context, buf_str(&text), &out)) status = EXIT_MACHINE;
    } else if (answer(context, buf_str(&text), &out, &error) != OK) {
        fprintf(stderr, "quern: %s\n", error.text);
        status = EXIT_WRONG_INPUT;
    } else if (!print(&out)) {
        status = EXIT_MACHINE;
    }
    if (fflush(stdout) != 0) status = EXIT_MACHINE;
    buf_release(&text);
    buf_release(&out);
    return status;
}
