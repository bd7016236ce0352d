/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/input.h"

#include "base/os.h"
#include "base/os_pipe.h"
#include "client/fetched_lines.h"
#include "client/remote_batches.h"
#include "client/requests_file.h"

/* Fetches the requests, or the results, of a batch into a file without a name. */
static enum err fetch(struct remote *remote, const struct batch_object *batch,
                      enum fetched_part part, int *ret_fd, struct error *error) {
    enum err err = requests_file_scratch(ret_fd, error);
    if (err != OK) return err;
    err = fetched_lines(remote, batch, part, *ret_fd, error);
    return err == OK
               ? OK
               : err_prefix(error, part == FETCHED_REQUESTS ? "the input file" : "the results");
}

static enum err open_pairs(struct label_studio_input *input, struct error *error) {
    return pairs_open(&input->pairs, input->requests, input->results, input->count, error);
}

enum err label_studio_input_files(struct label_studio_input *ret_input, const char *requests,
                                  const char *const *results, size_t result_count,
                                  struct error *error) {
    *ret_input = (struct label_studio_input){.requests = -1};
    enum err err = os_open_plain(&ret_input->requests, requests, error);
    for (size_t i = 0; i < result_count && err == OK; i++) {
        err = os_open_plain(&ret_input->results[i], results[i], error);
        if (err == OK) ret_input->count++;
    }
    return err == OK ? open_pairs(ret_input, error) : err;
}

enum err label_studio_input_fetch(struct label_studio_input *ret_input, struct remote *remote,
                                  const char *batch_id, struct error *error) {
    struct batch_object batch;
    json_t *object = NULL;
    *ret_input = (struct label_studio_input){.requests = -1, .results = {-1}};
    enum err err = remote_batches_get(remote, batch_id, &object, error);
    if (err == OK) err = batch_object_read(&batch, object, error);
    json_decref(object);
    if (err != OK) return err;
    if (batch.state == STATE_FAILED)
        return err_set(error, ERR_INVALID, "%.100s has no results: its file was refused", batch.id);
    ret_input->count = 1;
    err = fetch(remote, &batch, FETCHED_RESULTS, &ret_input->results[0], error);
    if (err == OK) err = fetch(remote, &batch, FETCHED_REQUESTS, &ret_input->requests, error);
    return err == OK ? open_pairs(ret_input, error) : err;
}

void label_studio_input_close(struct label_studio_input *input) {
    pairs_close(input->pairs);
    os_close(input->requests);
    for (size_t i = 0; i < input->count; i++) os_close(input->results[i]);
    *input = (struct label_studio_input){.requests = -1};
}
