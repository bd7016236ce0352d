/* SPDX-License-Identifier: Apache-2.0 */
#include "client/fetched_lines.h"

#include "base/os.h"
#include "client/results.h"

#define FLUSH_BYTES ((size_t)256 << 10)

struct fetched {
    int fd;
    struct buf pending;
};

static enum err flush(struct fetched *file, size_t least, struct error *error) {
    if (file->pending.bytes < least || file->pending.bytes == 0) return OK;
    enum err err = os_write_all(file->fd, file->pending.at, file->pending.bytes, error);
    buf_clear(&file->pending);
    return err;
}

static enum err take(void *context, struct str line, enum results_kind kind, struct error *error) {
    struct fetched *file = context;
    (void)kind;
    buf_add_str(&file->pending, line);
    buf_add_byte(&file->pending, '\n');
    return flush(file, FLUSH_BYTES, error);
}

static enum err read_requests(struct remote *remote, const struct batch_object *batch,
                              struct fetched *file, struct error *error) {
    if (!*batch->input_file_id)
        return err_set(error, ERR_NOT_FOUND, "the server names no input file of %.100s", batch->id);
    return results_read_file(remote, batch->input_file_id, 0, RESULTS_OUTPUT, take, file, error);
}

enum err fetched_lines(struct remote *remote, const struct batch_object *batch,
                       enum fetched_part part, int fd, struct error *error) {
    const struct results_place start = {0};
    struct fetched file = {.fd = fd};
    buf_init(&file.pending, 2 * RESULTS_LINE_BYTES_MAX);
    enum err err = batch_object_check_files(batch, error);
    if (err == OK && part == FETCHED_REQUESTS)
        err = read_requests(remote, batch, &file, error);
    else if (err == OK && batch_object_is_over(batch))
        err = results_read(remote, batch, &start, take, &file, error);
    else if (err == OK)
        err = results_read_live(remote, batch, take, &file, error);
    if (err == OK) err = flush(&file, 0, error);
    buf_release(&file.pending);
    return err;
}
