/* SPDX-License-Identifier: Apache-2.0 */
#include "client/retry_lines.h"

#include "base/map.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "client/results.h"
#include "json/span.h"

#include <inttypes.h>
#include <string.h>

struct gathering {
    struct map failed; /* custom_ids, each 1 once its line is written */
    uint64_t found;
    int fd;
    uint64_t bytes;
    struct buf scratch;
    struct buf line;
};

/* The custom_id of a line; at is NULL if it has none. */
static struct str read_id(struct gathering *gathering, struct str line) {
    struct str value, whole = str_trim(line);
    if (!json_span_read(whole, &value) || !json_span_is_object(value)) return (struct str){NULL, 0};
    struct str id = json_span_get(value, "custom_id");
    buf_clear(&gathering->scratch);
    if (!id.at || !json_span_is_string(id)) return (struct str){NULL, 0};
    return json_span_text(id, &gathering->scratch);
}

static enum err take_failed(void *context, struct str line, enum results_kind kind,
                            struct error *error) {
    struct gathering *gathering = context;
    struct str id = read_id(gathering, line);
    (void)kind;
    (void)error;
    if (id.at) map_put(&gathering->failed, id, 0);
    return OK;
}

static enum err take_input(void *context, struct str line, enum results_kind kind,
                           struct error *error) {
    struct gathering *gathering = context;
    uint64_t is_written;
    (void)kind;
    if (str_starts_with(line, STR("\xEF\xBB\xBF"))) line = str_skip(line, 3);
    struct str id = read_id(gathering, line);
    if (!id.at || !map_get(&gathering->failed, id, &is_written) || is_written) return OK;
    map_put(&gathering->failed, id, 1);
    gathering->found++;
    buf_clear(&gathering->line);
    buf_add_str(&gathering->line, str_trim(line));
    buf_add_byte(&gathering->line, '\n');
    gathering->bytes += gathering->line.bytes;
    return os_write_all(gathering->fd, gathering->line.at, gathering->line.bytes, error);
}

static enum err read_path(struct gathering *gathering, const char *path, struct error *error) {
    struct jsonl_file file;
    struct str line;
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && jsonl_file_next(&file, &line))
        err = take_input(gathering, line, RESULTS_OUTPUT, error);
    return jsonl_file_end(&file, path, err, error);
}

/* Reads both files. */
static enum err gather(struct remote *remote, struct gathering *gathering,
                       const struct batch_object *batch, const char *path, struct error *error) {
    enum err err = results_read_file(remote, batch->error_file_id, 0, RESULTS_ERROR, take_failed,
                                     gathering, error);
    if (err != OK) return err_prefix(error, "the error file of %.80s", batch->id);
    if (path)
        err = read_path(gathering, path, error);
    else
        err = results_read_file(remote, batch->input_file_id, 0, RESULTS_OUTPUT, take_input,
                                gathering, error);
    if (err == ERR_NOT_FOUND && !path)
        return err_set(error, err,
                       "the server no longer has the input of %.80s: name your own file with -i",
                       batch->id);
    if (err != OK) return err;
    if (gathering->found == gathering->failed.count && gathering->found > 0) return OK;
    return err_set(error, ERR_NOT_FOUND,
                   "%" PRIu64
                   " of the %zu failed lines of %.80s are in %s: is it the input of that "
                   "batch?",
                   gathering->found, gathering->failed.count, batch->id,
                   path ? path : "the input file that the server gives");
}

enum err retry_lines_make(struct remote *remote, const struct batch_object *batch, const char *path,
                          struct requests_file *ret_input, struct error *error) {
    struct gathering gathering = {0};
    enum err err = batch_object_check_files(batch, error);
    if (err == OK && !*batch->error_file_id)
        err = err_set(error, ERR_INVALID, "%.80s has no failed lines", batch->id);
    if (err == OK) err = requests_file_scratch(&gathering.fd, error);
    if (err != OK) return err;
    map_init(&gathering.failed);
    buf_init(&gathering.scratch, BUF_UNLIMITED);
    buf_init(&gathering.line, BUF_UNLIMITED);
    err = gather(remote, &gathering, batch, path, error);
    struct requests_file input = {.fd = gathering.fd,
                                  .bytes = gathering.bytes,
                                  .lines = gathering.found,
                                  .name = "retry.jsonl"};
    memcpy(input.endpoint, batch->endpoint, sizeof input.endpoint);
    buf_release(&gathering.line);
    buf_release(&gathering.scratch);
    map_release(&gathering.failed);
    if (err != OK)
        requests_file_close(&input);
    else
        *ret_input = input;
    return err;
}
