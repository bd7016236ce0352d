/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/retry.h"

#include "base/no_memory.h"
#include "batch/create.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "batch/state.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* --- the body --- */

static bool read_statuses(struct batch_retry *retry, const json_t *body, struct refusal *refusal) {
    const json_t *list = json_member(body, "statuses");
    size_t index;
    json_t *value;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > RETRY_CHOICES_MAX)
        return refuse(refusal, "invalid_value", "statuses",
                      "Invalid 'statuses': expected an array of at most %d HTTP statuses.",
                      RETRY_CHOICES_MAX);
    json_array_foreach(list, index, value) {
        int64_t status = json_integer_value(value);
        if (!json_is_integer(value) || status < 400 || status > 599)
            return refuse(refusal, "invalid_value", "statuses",
                          "Invalid 'statuses': element %zu is not an HTTP status from 400 to 599.",
                          index);
        retry->statuses[retry->status_count++] = (uint16_t)status;
    }
    return true;
}

static bool read_codes(struct batch_retry *retry, const json_t *body, struct refusal *refusal) {
    const json_t *list = json_member(body, "codes");
    size_t index;
    json_t *value;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > RETRY_CHOICES_MAX)
        return refuse(refusal, "invalid_value", "codes",
                      "Invalid 'codes': expected an array of at most %d error codes.",
                      RETRY_CHOICES_MAX);
    json_array_foreach(list, index, value) {
        struct str code = json_str(value);
        if (code.bytes == 0 || code.bytes >= sizeof *retry->codes ||
            memchr(code.at, '\0', code.bytes))
            return refuse(refusal, "invalid_value", "codes",
                          "Invalid 'codes': element %zu is not an error code such as "
                          "'batch_expired'.",
                          index);
        memcpy(retry->codes[retry->code_count++], code.at, code.bytes);
    }
    return true;
}

static void set_text(json_t *object, const char *key, const char *text) {
    if (text && *text) json_object_set_new(object, key, json_string(text));
}

static void set_json(json_t *object, const char *key, const char *text) {
    struct error error;
    json_t *value;
    if (text && json_read(&value, str_from(text), &error) == OK)
        json_object_set_new(object, key, value);
}

/* The create body that would make the original. */
static json_t *body_of(const struct store_batch *original) {
    json_t *body = json_object();
    if (!body) no_memory();
    struct error error;
    json_t *extras = NULL;
    if (original->extras && json_read(&extras, str_from(original->extras), &error) == OK)
        json_object_update(body, extras);
    json_decref(extras);
    set_text(body, "completion_window", original->completion_window);
    set_text(body, "webhook_url", original->webhook_url);
    set_text(body, "service_tier", original->service_tier);
    set_json(body, "metadata", original->metadata);
    json_object_set_new(body, "priority", json_integer(original->priority));
    if (original->output_expires_after_s)
        json_object_set_new(body, "output_expires_after",
                            json_pack("{s:s,s:I}", "anchor", "created_at", "seconds",
                                      (json_int_t)original->output_expires_after_s));
    return body;
}

bool batch_retry_read(struct batch_retry *ret_retry, const struct store_batch *original,
                      const json_t *body, const struct batch_rules *rules,
                      struct refusal *ret_refusal) {
    struct batch_retry retry = {0};
    if (!read_statuses(&retry, body, ret_refusal) || !read_codes(&retry, body, ret_refusal))
        return false;
    /* All other members are checked as those of a create call. The members that choose lines are
     * included, so that one idempotency key stands for one choice. */
    json_t *whole = body_of(original);
    if (body) json_object_update(whole, (json_t *)(uintptr_t)body);
    set_text(whole, "endpoint", original->endpoint);
    set_text(whole, "input_file_id", original->input_file_id);
    set_text(whole, "retry_of", original->id);
    bool good = batch_parameters_read(&retry.parameters, whole, rules, ret_refusal);
    json_decref(whole);
    if (!good) return false;
    memcpy(retry.parameters.retry_of, original->id, sizeof original->id);
    *ret_retry = retry;
    return true;
}

void batch_retry_release(struct batch_retry *retry) {
    batch_parameters_release(&retry->parameters);
}

/* --- the lines --- */

struct walk {
    const struct batch_retry *retry;
    const struct store_batch *original;
    struct jsonl_file input, errors;
    struct store_spool *spool;
    struct buf pending;
    uint64_t lines;
};

static bool code_is_chosen(const struct batch_retry *retry, struct str code) {
    for (size_t i = 0; i < retry->code_count; i++)
        if (code.at && json_span_string_is(code, retry->codes[i])) return true;
    return false;
}

static bool is_chosen(const struct batch_retry *retry, struct str record) {
    int64_t status = 0;
    if (retry->status_count + retry->code_count == 0) return true;
    struct str response = json_span_get(record, "response");
    if (json_span_is_object(response)) {
        struct str body = json_span_get(response, "body");
        if (!str_to_i64(json_span_get(response, "status_code"), &status)) status = 0;
        for (size_t i = 0; i < retry->status_count; i++)
            if (retry->statuses[i] == status) return true;
        struct str error = json_span_get(body, "error");
        return json_span_is_object(error) && code_is_chosen(retry, json_span_get(error, "code"));
    }
    struct str error = json_span_get(record, "error");
    return json_span_is_object(error) && code_is_chosen(retry, json_span_get(error, "code"));
}

static enum err add_line(struct walk *walk, struct store *store, struct str line,
                         struct error *error) {
    walk->lines++;
    buf_add_str(&walk->pending, line);
    buf_add_byte(&walk->pending, '\n');
    if (walk->pending.bytes < PIECE_BYTES) return OK;
    enum err err = walk->spool ? OK : store_spool_open(&walk->spool, store, error);
    if (err == OK)
        err = store_spool_write(walk->spool, walk->pending.at, walk->pending.bytes, error);
    buf_clear(&walk->pending);
    return err;
}

/* Copies the line of every chosen record. */
static enum err copy_lines(struct walk *walk, struct store *store, struct error *error) {
    struct str record, line;
    enum err err = OK;
    while (err == OK && jsonl_file_next(&walk->errors, &record)) {
        bool found = false;
        while (!found && jsonl_file_next(&walk->input, &line))
            found = batch_line_same_text(json_span_get(line, "custom_id"),
                                         json_span_get(record, "custom_id"));
        if (!found)
            return err_set(error, ERR_CORRUPT, "line %" PRIu64 " of %s answers no line of %s",
                           walk->errors.lines.number, walk->original->error_file_id,
                           walk->original->input_file_id);
        if (is_chosen(walk->retry, record)) err = add_line(walk, store, line, error);
    }
    if (err == OK && (walk->errors.failed || walk->input.failed))
        err = err_set(error, ERR_IO, "%s or its input cannot be read to the end: %s",
                      walk->original->error_file_id,
                      (walk->errors.failed ? &walk->errors : &walk->input)->why.text);
    if (err == OK && walk->lines == 0)
        err = err_set(error, ERR_INVALID,
                      "Nothing to retry: no failed request of this batch has one of the chosen "
                      "statuses or codes.");
    return err;
}

static enum err open_one(struct store *store, const char *id, const char *what, int64_t now_unix_s,
                         struct jsonl_file *file, struct error *error) {
    struct store_file row;
    int fd;
    enum err err = store_file_open(store, str_from(id), now_unix_s, &fd, &row, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, err,
                       "Cannot retry this batch: its %s file '%s' was deleted or has "
                       "expired.",
                       what, id);
    if (err == OK) jsonl_file_take(file, fd, row.bytes);
    return err;
}

/* Makes the new input file: a spool with all chosen lines. */
static enum err make_input(struct walk *walk, struct store *store, int64_t now_unix_s,
                           struct error *error) {
    const struct store_batch *original = walk->original;
    if (!*original->error_file_id)
        return err_set(error, ERR_INVALID, "Nothing to retry: %s",
                       original->total == 0 ? "no request of this batch was run."
                                            : "no request of this batch failed.");
    enum err err =
        open_one(store, original->error_file_id, "error", now_unix_s, &walk->errors, error);
    if (err == OK)
        err = open_one(store, original->input_file_id, "input", now_unix_s, &walk->input, error);
    if (err == OK) err = copy_lines(walk, store, error);
    if (err == OK && !walk->spool) err = store_spool_open(&walk->spool, store, error);
    if (err == OK && walk->pending.bytes > 0)
        err = store_spool_write(walk->spool, walk->pending.at, walk->pending.bytes, error);
    return err;
}

enum err batch_retry_create(struct store *store, const struct store_batch *original,
                            const struct batch_retry *retry, int64_t now_unix_s,
                            struct store_batch *ret_batch, bool *ret_existing,
                            struct error *error) {
    enum err err = batch_find_existing(store, &retry->parameters, ret_batch, error);
    *ret_existing = err == OK;
    if (err != ERR_NOT_FOUND) return err;
    if (!batch_status_is_terminal(original->status))
        return err_set(error, ERR_CONFLICT, "Cannot retry a batch with status '%s'.",
                       batch_status_name(original->status));
    struct walk walk = {.retry = retry, .original = original};
    jsonl_file_init(&walk.input);
    jsonl_file_init(&walk.errors);
    buf_init(&walk.pending, BUF_UNLIMITED);
    err = make_input(&walk, store, now_unix_s, error);
    jsonl_file_close(&walk.input);
    jsonl_file_close(&walk.errors);
    buf_release(&walk.pending);
    if (err != OK) {
        store_spool_abort(walk.spool);
        return err;
    }
    struct store_file file = {.purpose = "batch", .created_unix_s = now_unix_s};
    snprintf(file.filename, sizeof file.filename, "%s_retry.jsonl", original->id);
    return batch_create_with_input(store, &retry->parameters, walk.spool, &file, now_unix_s,
                                   ret_batch, ret_existing, error);
}
