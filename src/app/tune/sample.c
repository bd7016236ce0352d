/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/sample.h"

#include "base/os.h"
#include "batch/jsonl_file.h"
#include "json/json.h"

static bool generates(const json_t *line) {
    struct str url = json_str(json_member(line, "url"));
    return str_is(url, "/v1/chat/completions") || str_is(url, "/v1/completions");
}

/* Appends the line, greedy if it generates text. */
static void add_line(struct buf *out, struct str line) {
    json_t *request = NULL;
    struct error ignored;
    json_t *body = NULL;
    if (json_read(&request, line, &ignored) == OK && generates(request))
        body = json_object_get(request, "body");
    if (json_is_object(body) && json_object_set_new(body, "temperature", json_integer(0)) == 0)
        json_write(out, request);
    else
        buf_add_str(out, line);
    buf_add_byte(out, '\n');
    json_decref(request);
}

static enum err copy(struct jsonl_file *file, uint32_t lines_max, int out_fd, uint32_t *ret_lines,
                     struct error *error) {
    struct buf out;
    struct str line;
    enum err err = OK;
    uint32_t count = 0;
    buf_init(&out, BUF_UNLIMITED);
    while (err == OK && count < lines_max && jsonl_file_next(file, &line)) {
        buf_clear(&out);
        add_line(&out, line);
        err = os_write_all(out_fd, out.at, out.bytes, error);
        count++;
    }
    buf_release(&out);
    if (err == OK && count == 0 && !file->failed)
        err = err_set(error, ERR_INVALID, "it has no requests");
    *ret_lines = count;
    return err;
}

enum err sample_write(const char *input, uint32_t lines_max, const char *path, uint32_t *ret_lines,
                      struct error *error) {
    struct jsonl_file file;
    int out_fd = -1;
    enum err err = jsonl_file_open(&file, input, error);
    if (err != OK) return jsonl_file_end(&file, input, err, error);
    err = os_create(&out_fd, path, 0600, error);
    if (err == OK) err = copy(&file, lines_max, out_fd, ret_lines, error);
    os_close(out_fd);
    if (err != OK) err = err_prefix(error, "%s", input);
    return jsonl_file_end(&file, input, err, error);
}
