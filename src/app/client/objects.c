/* SPDX-License-Identifier: Apache-2.0 */
#include "client/objects.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

#define TREE_BYTES_MAX ((size_t)512 << 20)

enum err object_read(struct str text, json_t **ret_object, struct error *error) {
    struct error why = {0};
    size_t room = TREE_BYTES_MAX;
    json_t *value = NULL;
    enum err err = json_read_within(&value, text, &room, &why);
    if (err == OK && !json_is_object(value)) {
        err = err_set(&why, ERR_INVALID, "JSON, but no object");
        json_decref(value);
    }
    if (err != OK)
        return err_set(error, err == ERR_UNAVAILABLE ? err : ERR_CORRUPT,
                       "the server's answer is %s: is this the base URL of an OpenAI API?",
                       why.text);
    *ret_object = value;
    return OK;
}

static bool is_letter_or_digit(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9');
}

bool object_id_is_sane(struct str id) {
    if (id.bytes == 0 || id.bytes >= OBJECT_ID_BYTES || !is_letter_or_digit(id.at[0])) return false;
    for (size_t i = 0; i < id.bytes; i++)
        if (!is_letter_or_digit(id.at[i]) && (!id.at[i] || !strchr("-_.=:~", id.at[i])))
            return false;
    return true;
}

void object_add_id(struct buf *buf, const char *id) {
    for (; *id; id++) {
        if (is_letter_or_digit(*id) || strchr("-_.~", *id))
            buf_add_byte(buf, *id);
        else
            buf_printf(buf, "%%%02X", (unsigned)(unsigned char)*id);
    }
}

void object_copy_text(struct str text, char *ret_text, size_t bytes) {
    size_t count = text.bytes < bytes - 1 ? text.bytes : bytes - 1;
    if (count > 0) memcpy(ret_text, text.at, count);
    for (size_t i = 0; i < count; i++) {
        bool is_late = i + 1 < count && (unsigned char)ret_text[i] == 0xC2 &&
                       ((unsigned char)ret_text[i + 1] & 0xE0) == 0x80; /* U+0080 to U+009F */
        if ((unsigned char)ret_text[i] < ' ' || ret_text[i] == 0x7F) ret_text[i] = ' ';
        if (is_late) ret_text[i] = ret_text[i + 1] = '?';
    }
    count = utf8_valid_prefix((struct str){ret_text, count});
    ret_text[count] = '\0';
}

static void copy_member(const json_t *object, const char *name, char *ret_text, size_t bytes) {
    object_copy_text(json_member_str(object, name), ret_text, bytes);
}

/* An id that is not sane counts as absent. */
static void copy_id(const json_t *object, const char *name, char ret_id[OBJECT_ID_BYTES]) {
    struct str id = json_member_str(object, name);
    ret_id[0] = '\0';
    if (object_id_is_sane(id)) object_copy_text(id, ret_id, OBJECT_ID_BYTES);
}

static bool is_file_id(struct str id) {
    if (id.bytes >= OBJECT_FILE_ID_BYTES || str_is(id, ".") || str_is(id, "..")) return false;
    for (size_t i = 0; i < id.bytes; i++) {
        bool is_late = i + 1 < id.bytes && (unsigned char)id.at[i] == 0xC2 &&
                       ((unsigned char)id.at[i + 1] & 0xE0) == 0x80; /* U+0080 to U+009F */
        if ((unsigned char)id.at[i] < ' ' || id.at[i] == 0x7F || is_late) return false;
    }
    return true;
}

/* Reads the id of a file in any form. False for a value that is none: the id is empty then, as it
 * is if it is absent. */
static bool copy_file_id(const json_t *object, const char *name,
                         char ret_id[OBJECT_FILE_ID_BYTES]) {
    const json_t *value = json_member(object, name);
    ret_id[0] = '\0';
    if (json_is_integer(value))
        snprintf(ret_id, OBJECT_FILE_ID_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (!value || *ret_id) return true;
    if (!json_is_string(value) || !is_file_id(json_str(value))) return false;
    memcpy(ret_id, json_string_value(value), json_string_length(value) + 1);
    return true;
}

static void read_files(struct batch_object *batch, const json_t *object) {
    if (!copy_file_id(object, "input_file_id", batch->input_file_id))
        batch->bad_file = "input_file_id";
    if (!copy_file_id(object, "error_file_id", batch->error_file_id))
        batch->bad_file = "error_file_id";
    if (!copy_file_id(object, "output_file_id", batch->output_file_id))
        batch->bad_file = "output_file_id";
}

static uint64_t read_count(const json_t *object, const char *name) {
    const json_t *value = json_member(object, name);
    json_int_t count = json_is_integer(value) ? json_integer_value(value) : 0;
    return count > 0 ? (uint64_t)count : 0;
}

static int64_t read_time(const json_t *object, const char *name) {
    const json_t *value = json_member(object, name);
    if (json_is_real(value) && json_real_value(value) > 0 && json_real_value(value) < 1e12)
        return (int64_t)json_real_value(value);
    uint64_t unix_s = read_count(object, name);
    return unix_s < 1000000000000 ? (int64_t)unix_s : 0;
}

static enum object_state find_state(const char *status) {
    static const char *const words[] = {"validating", "in_progress", "finalizing", "completed",
                                        "failed",     "expired",     "cancelling", "cancelled"};
    for (int i = 0; i < STATE_OTHER; i++)
        if (strcmp(status, words[i]) == 0) return (enum object_state)i;
    return STATE_OTHER;
}

bool batch_object_is_over(const struct batch_object *batch) {
    switch (batch->state) {
    case STATE_COMPLETED:
    case STATE_FAILED:
    case STATE_EXPIRED:
    case STATE_CANCELLED: return true;
    case STATE_VALIDATING:
    case STATE_IN_PROGRESS:
    case STATE_FINALIZING:
    case STATE_CANCELLING:
    case STATE_OTHER: break;
    }
    return false;
}

static void read_errors(struct batch_object *batch, const json_t *object) {
    const json_t *list = json_member(json_member(object, "errors"), "data"), *item;
    size_t index;
    json_array_foreach(list, index, item) {
        if (index < OBJECT_ERRORS_SHOWN) {
            copy_member(item, "message", batch->errors[index].text,
                        sizeof batch->errors[index].text);
            batch->errors[index].line = read_count(item, "line");
        }
        batch->error_count++;
    }
}

static void read_times(struct batch_object *batch, const json_t *object) {
    static const char *const ends[] = {"completed_at", "failed_at", "expired_at", "cancelled_at"};
    batch->created_unix_s = read_time(object, "created_at");
    batch->begun_unix_s = read_time(object, "in_progress_at");
    batch->expires_unix_s = read_time(object, "expires_at");
    for (size_t i = 0; i < sizeof ends / sizeof *ends && batch->ended_unix_s == 0; i++)
        batch->ended_unix_s = read_time(object, ends[i]);
}

/* Appends a price, which may be a range. */
static void add_amount(struct buf *buf, const json_t *amount, const char *currency,
                       const char *words) {
    double low = json_number_value(json_is_object(amount) ? json_member(amount, "low") : amount);
    double high = json_is_object(amount) ? json_number_value(json_member(amount, "high")) : low;
    if (!json_is_object(amount) && !json_is_number(amount)) return;
    buf_printf(buf, "%s%.3g", buf->bytes > 0 ? ", " : "", low);
    if (high > low) buf_printf(buf, " to %.3g", high);
    buf_printf(buf, " %.8s %s", currency, words);
}

/* What one run costs, in the words of the pages. */
static void read_cost(struct batch_object *batch, const json_t *costs) {
    static const struct {
        const char *name, *words;
    } kinds[] = {{"electricity", "of electricity"},
                 {"rented_gpu", "on a rented machine"},
                 {"managed_api", "at a managed API"}};
    const json_t *once = json_member(costs, "once");
    char currency[16];
    struct buf text;
    copy_member(costs, "currency", currency, sizeof currency);
    buf_init(&text, BUF_UNLIMITED);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_amount(&text, json_member(once, kinds[i].name), currency, kinds[i].words);
    object_copy_text(buf_str(&text), batch->cost, sizeof batch->cost);
    buf_release(&text);
}

enum err batch_object_read(struct batch_object *ret_batch, const json_t *object,
                           struct error *error) {
    struct batch_object batch = {0};
    const json_t *counts = json_member(object, "request_counts");
    const json_t *usage = json_member(object, "usage"), *own = json_member(object, "quern");
    copy_id(object, "id", batch.id);
    copy_member(object, "status", batch.status, sizeof batch.status);
    if (!*batch.id || !*batch.status)
        return err_set(error, ERR_CORRUPT,
                       "the server's answer is no batch: is this the base URL of an OpenAI API?");
    batch.state = find_state(batch.status);
    copy_member(object, "endpoint", batch.endpoint, sizeof batch.endpoint);
    copy_member(object, "completion_window", batch.window, sizeof batch.window);
    copy_member(object, "model", batch.model, sizeof batch.model);
    read_files(&batch, object);
    batch.total = read_count(counts, "total");
    batch.completed = read_count(counts, "completed");
    batch.failed = read_count(counts, "failed");
    batch.input_tokens = read_count(usage, "input_tokens");
    batch.output_tokens = read_count(usage, "output_tokens");
    read_times(&batch, object);
    copy_member(object, "waiting_for", batch.waiting_for, sizeof batch.waiting_for);
    copy_id(json_member(object, "metadata"), OBJECT_SUBMISSION, batch.submission);
    copy_member(json_member(object, "metadata"), "name", batch.name, sizeof batch.name);
    read_cost(&batch, json_member(own, "costs"));
    batch.is_quern = json_is_object(own);
    batch.delete_unix_s = read_time(own, "delete_at");
    copy_member(own, "paused", batch.paused, sizeof batch.paused);
    read_errors(&batch, object);
    *ret_batch = batch;
    return OK;
}

enum err batch_object_check_files(const struct batch_object *batch, struct error *error) {
    if (!batch->bad_file) return OK;
    return err_set(error, ERR_CORRUPT,
                   "no file can be fetched by the %s of %.100s: an id is a text of less than %d "
                   "bytes without control characters",
                   batch->bad_file, batch->id, OBJECT_FILE_ID_BYTES);
}

enum err file_object_read(struct file_object *ret_file, const json_t *object, struct error *error) {
    struct file_object file = {.bytes = read_count(object, "bytes")};
    if (!copy_file_id(object, "id", file.id) || !*file.id)
        return err_set(error, ERR_CORRUPT,
                       "the server's answer is no file: is this the base URL of an OpenAI API?");
    copy_member(object, "filename", file.filename, sizeof file.filename);
    *ret_file = file;
    return OK;
}

void object_error_message(struct str body, char *ret_text, size_t bytes) {
    struct error ignored;
    json_t *object = NULL;
    ret_text[0] = '\0';
    if (object_read(body, &object, &ignored) != OK) return;
    const json_t *inner = json_member(object, "error");
    if (json_is_object(inner))
        copy_member(inner, "message", ret_text, bytes);
    else if (json_is_string(inner))
        object_copy_text(json_str(inner), ret_text, bytes);
    else if (json_is_string(json_member(object, "message")))
        copy_member(object, "message", ret_text, bytes);
    else
        copy_member(object, "detail", ret_text, bytes);
    json_decref(object);
}
