/* SPDX-License-Identifier: Apache-2.0 */
#include "server/merge.h"

#include "base/os.h"
#include "json/json.h"
#include "json/lines.h"
#include "json/span.h"

#define PIECE_BYTES ((size_t)256 * 1024)

/* The lines of one file, each with its custom_id. */
struct named_lines {
    struct lines is;
    struct buf custom_id; /* the current line's, decoded */
};

static void open_lines(struct named_lines *lines, int fd) {
    lines_init(&lines->is, fd);
    buf_init(&lines->custom_id, LINES_BYTES_MAX);
}

static void close_lines(struct named_lines *lines) {
    lines_release(&lines->is);
    buf_release(&lines->custom_id);
}

static enum err next(struct named_lines *lines, struct error *error) {
    enum err err = lines_next(&lines->is, error);
    buf_clear(&lines->custom_id);
    if (err != OK || !lines->is.line.at) return err;
    struct str raw = json_span_get(lines->is.line, "custom_id");
    if (raw.at) json_span_decode(&lines->custom_id, raw);
    return OK;
}

static bool has_id_of(const struct named_lines *results, const struct named_lines *input) {
    return results->is.line.at &&
           str_equals(buf_str(&results->custom_id), buf_str(&input->custom_id));
}

static enum err write_line(const struct merge_form *form, struct str request, struct str result,
                           struct buf *out, struct error *error) {
    if (form) return form->write(form->context, request, result, out, error);
    buf_add_str(out, result);
    buf_add_byte(out, '\n');
    return OK;
}

static enum err merge(struct named_lines *input, struct named_lines *results[2],
                      const struct merge_form *form, struct buf *out, int out_fd,
                      struct error *error) {
    enum err err = next(input, error);
    for (int i = 0; i < 2 && err == OK; i++) err = next(results[i], error);
    while (err == OK && input->is.line.at) {
        struct named_lines *from = has_id_of(results[0], input) ? results[0] : results[1];
        if (!has_id_of(from, input))
            return err_set(error, ERR_CORRUPT, "no result for line %llu of the input",
                           (unsigned long long)input->is.number);
        err = write_line(form, input->is.line, from->is.line, out, error);
        if (err == OK && out->bytes >= PIECE_BYTES) {
            err = os_write_all(out_fd, out->at, out->bytes, error);
            buf_clear(out);
        }
        if (err == OK) err = next(from, error);
        if (err == OK) err = next(input, error);
    }
    if (err == OK) err = os_write_all(out_fd, out->at, out->bytes, error);
    return err;
}

enum err merge_results(int input_fd, int output_fd, int error_fd, int out_fd,
                       const struct merge_form *form, struct error *error) {
    struct named_lines input, output, errors;
    struct buf out;
    open_lines(&input, input_fd);
    open_lines(&output, output_fd);
    open_lines(&errors, error_fd);
    buf_init(&out, 4 * LINES_BYTES_MAX);
    enum err err =
        merge(&input, (struct named_lines *[]){&output, &errors}, form, &out, out_fd, error);
    close_lines(&input);
    close_lines(&output);
    close_lines(&errors);
    buf_release(&out);
    return err;
}
