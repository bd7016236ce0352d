/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/label_studio_input.h"

#include "base/os.h"
#include "cli/submit_input.h"
#include "client/remote_batches.h"
#include "client/results.h"

#include <fcntl.h>

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

/* Fetches the requests, or the results, of a batch. */
static enum err fetch(struct session *session, const struct batch_object *batch, bool is_input,
                      int *ret_fd, struct error *error) {
    const struct results_place start = {0};
    struct fetched file;
    enum err err = submit_input_scratch(&file.fd, error);
    if (err != OK) return err;
    *ret_fd = file.fd;
    buf_init(&file.pending, 2 * RESULTS_LINE_BYTES_MAX);
    if (is_input)
        err = results_read_file(session->remote, batch->input_file_id, 0, RESULTS_OUTPUT, take,
                                &file, error);
    else if (batch_object_is_over(batch))
        err = results_read(session->remote, batch, &start, take, &file, error);
    else
        err = results_read_live(session->remote, batch, take, &file, error);
    if (err == OK) err = flush(&file, 0, error);
    buf_release(&file.pending);
    return err == OK ? OK : err_prefix(error, is_input ? "the input file" : "the results");
}

static enum err open_pairs(struct label_studio_input *input, struct error *error) {
    return pairs_open(&input->pairs, input->requests, input->results, input->count, error);
}

enum err label_studio_input_files(struct label_studio_input *ret_input, const char *requests,
                                  const struct option_list *results, struct error *error) {
    *ret_input = (struct label_studio_input){.requests = -1};
    enum err err = os_open(&ret_input->requests, requests, O_RDONLY | O_CLOEXEC, 0, error);
    for (size_t i = 0; i < results->count && err == OK; i++) {
        err = os_open(&ret_input->results[i], results->values[i], O_RDONLY | O_CLOEXEC, 0, error);
        if (err == OK) ret_input->count++;
    }
    return err == OK ? open_pairs(ret_input, error) : err;
}

enum err label_studio_input_fetch(struct label_studio_input *ret_input, struct session *session,
                                  const char *batch_id, struct error *error) {
    struct batch_object batch;
    json_t *object;
    *ret_input = (struct label_studio_input){.requests = -1, .results = {-1}};
    enum err err = remote_batches_get(session->remote, batch_id, &object, error);
    if (err == OK) err = session_read_batch(object, &batch, error);
    if (err != OK) return err;
    json_decref(object);
    if (batch.state == STATE_FAILED)
        return err_set(error, ERR_INVALID, "%.100s has no results: its file was refused", batch.id);
    ret_input->count = 1;
    err = fetch(session, &batch, false, &ret_input->results[0], error);
    if (err == OK) err = fetch(session, &batch, true, &ret_input->requests, error);
    return err == OK ? open_pairs(ret_input, error) : err;
}

void label_studio_input_close(struct label_studio_input *input) {
    pairs_close(input->pairs);
    os_close(input->requests);
    for (size_t i = 0; i < input->count; i++) os_close(input->results[i]);
    *input = (struct label_studio_input){.requests = -1};
}
