/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "batch/state.h"
#include "http_call.h"
#include "world.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDARY "a-part-of-the-rig"

/* --- answers --- */

/* OK for 2xx; ERR_CONFLICT, ERR_NOT_FOUND; ERR_UNAVAILABLE where the client may ask again. */
static enum err judge(const struct http_call *call, const struct http_told *told,
                      struct error *error) {
    if (!told->is_whole) return err_set(error, ERR_UNAVAILABLE, "no answer to %s", call->target);
    if (told->status >= 200 && told->status < 300) return OK;
    enum err err = told->status == 404   ? ERR_NOT_FOUND
                   : told->status == 409 ? ERR_CONFLICT
                                         : ERR_UNAVAILABLE;
    if (told->status < 500 && err == ERR_UNAVAILABLE)
        world_fail("%s %s is answered with %d: %.200s (HTTP)", call->method, call->target,
                   told->status, told->body.at);
    return err_set(error, err, "%d: %.200s", told->status, told->body.at);
}

static json_t *read_json(const struct http_call *call, const struct http_told *told) {
    json_t *value = json_loadb(told->body.at, told->body.bytes, 0, NULL);
    if (!value)
        world_fail("%s is answered with no JSON: %.200s (HTTP)", call->target, told->body.at);
    return value;
}

static void copy_id(char ret_id[STORE_ID_BYTES], const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    snprintf(ret_id, STORE_ID_BYTES, "%s", text ? text : "");
}

static enum batch_status read_status(const json_t *object) {
    const char *name = json_string_value(json_object_get(object, "status"));
    for (unsigned i = 0; name && i < BATCH_STATUS_COUNT; i++)
        if (strcmp(name, batch_status_name((enum batch_status)i)) == 0) return (enum batch_status)i;
    world_fail("a batch has the status %s (HTTP)", name ? name : "null");
}

/* Notes a batch object, as far as the ledger knows its members. */
static void show(uint32_t batch, const json_t *object) {
    const json_t *counts = json_object_get(object, "request_counts");
    struct store_batch row = {.status = read_status(object)};
    copy_id(row.id, object, "id");
    copy_id(row.output_file_id, object, "output_file_id");
    copy_id(row.error_file_id, object, "error_file_id");
    row.total = (uint64_t)json_integer_value(json_object_get(counts, "total"));
    row.completed = (uint64_t)json_integer_value(json_object_get(counts, "completed"));
    row.failed = (uint64_t)json_integer_value(json_object_get(counts, "failed"));
    if (strcmp(row.id, world->ledger.batches[batch].id) != 0)
        world_fail("%s is asked for and %s is told (HTTP)", world->ledger.batches[batch].id,
                   row.id);
    ledger_show(batch, &row);
}

/* --- the calls --- */

enum err client_upload(uint32_t batch, uint32_t lines, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    if (own->is_uploaded) return OK;
    own->lines = lines;
    struct buf body;
    size_t bytes;
    char *input = ledger_input(batch, lines, &bytes);
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                        "batch\r\n--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"file\"; "
                        "filename=\"in.jsonl\"\r\n\r\n");
    buf_add(&body, input, bytes);
    buf_add_text(&body, "\r\n--" BOUNDARY "--\r\n");
    free(input);
    const struct http_call call = {.method = "POST",
                                   .target = "/v1/files",
                                   .type = "multipart/form-data; boundary=" BOUNDARY,
                                   .body = buf_str(&body)};
    struct http_told told;
    http_call(&call, &told);
    buf_release(&body);
    enum err err = judge(&call, &told, error);
    if (err == OK) {
        json_t *file = read_json(&call, &told);
        copy_id(own->file_id, file, "id");
        if ((size_t)json_integer_value(json_object_get(file, "bytes")) != bytes)
            world_fail("%s has other bytes than were sent (I1)", own->file_id);
        own->is_uploaded = true;
        json_decref(file);
    }
    http_told_release(&told);
    return err;
}

enum err client_create(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    char body[400], key[32], id[STORE_ID_BYTES];
    if (!own->is_uploaded || own->may_be_deleted) return OK;
    snprintf(key, sizeof key, "key-%u", batch);
    snprintf(body, sizeof body,
             "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/chat/completions\","
             "\"completion_window\":\"24h\",\"metadata\":{\"batch\":\"%u\"}}",
             own->file_id, batch);
    const struct http_call call = {.method = "POST",
                                   .target = "/v1/batches",
                                   .type = "application/json",
                                   .key = key,
                                   .body = str_from(body)};
    struct http_told told;
    http_call(&call, &told);
    enum err err = judge(&call, &told, error);
    if (err == OK) {
        json_t *object = read_json(&call, &told);
        copy_id(id, object, "id");
        if (own->is_created && strcmp(own->id, id) != 0)
            world_fail("%s was created again as %s (I11)", own->id, id);
        memcpy(own->id, id, sizeof own->id);
        own->is_created = true;
        json_decref(object);
    }
    http_told_release(&told);
    return err;
}

/* Asks for something of a batch. *ret_told is filled if the answer is 2xx. */
static enum err ask(const char *method, uint32_t batch, const char *what,
                    struct http_told *ret_told, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    char target[160];
    snprintf(target, sizeof target, "/v1/batches/%s%s", own->id, what);
    const struct http_call call = {
        .method = method, .target = target, .type = "application/json", .body = STR("")};
    http_call(&call, ret_told);
    enum err err = judge(&call, ret_told, error);
    if (err == ERR_NOT_FOUND && !own->may_be_deleted && *what == '\0')
        world_fail("%s was acknowledged: %s (I5)", own->id, error->text);
    if (err != OK) http_told_release(ret_told);
    return err;
}

/* As ask, for a batch object. What others were shown meanwhile may be newer. */
static enum err ask_batch(const char *method, uint32_t batch, const char *what,
                          struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    uint32_t shows = own->shows;
    struct http_told told;
    enum err err = ask(method, batch, what, &told, error);
    if (err != OK) return err;
    json_t *object = json_loadb(told.body.at, told.body.bytes, 0, NULL);
    if (!object) world_fail("%s is told as no JSON (HTTP)", own->id);
    if (shows == own->shows) show(batch, object);
    json_decref(object);
    http_told_release(&told);
    return OK;
}

enum err client_look(uint32_t batch, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_created || own->is_deleted) return OK;
    enum err err = ask_batch("GET", batch, "", error);
    return err == ERR_NOT_FOUND ? OK : err;
}

enum err client_cancel(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    if (!own->is_created || own->may_be_deleted) return OK;
    own->may_be_cancelled = true;
    enum err err = ask_batch("POST", batch, "/cancel", error);
    if (err == OK) ledger_note_cancel(batch);
    return err == ERR_CONFLICT ? OK : err; /* it has ended */
}

enum err client_delete(uint32_t batch, struct error *error) {
    struct ledger_batch *own = &world->ledger.batches[batch];
    struct http_told told;
    if (!own->is_created) return OK;
    own->may_be_deleted = true;
    enum err err = ask("DELETE", batch, "", &told, error);
    if (err == OK) http_told_release(&told);
    if (err == OK || err == ERR_NOT_FOUND) own->is_deleted = true;
    return err == ERR_NOT_FOUND ? OK : err;
}

/* Reads results out of an answer, which has none twice. */
static void read_results(uint32_t batch, struct str lines) {
    bool is_read[LEDGER_LINES_MAX] = {false};
    uint32_t of, number;
    ledger_read(batch, lines);
    for (const char *at = lines.at, *end; lines.bytes > 0; at = end + 1) {
        end = memchr(at, '\n', (size_t)(lines.at + lines.bytes - at));
        if (!end) return;
        if (!ledger_custom_id((struct str){at, (size_t)(end - at)}, &of, &number)) continue;
        if (is_read[number])
            world_fail("an answer has line %u of %s twice (I2)", number + 1,
                       world->ledger.batches[batch].id);
        is_read[number] = true;
    }
}

enum err client_read(uint32_t batch, uint32_t lines, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    char what[48];
    struct http_told told;
    if (!own->is_created || own->may_be_deleted) return OK;
    snprintf(what, sizeof what, "/results?limit=%u", lines);
    enum err err = ask("GET", batch, what, &told, error);
    if (err == ERR_NOT_FOUND) return OK; /* it has not begun */
    if (err != OK) return err;
    read_results(batch, buf_str(&told.body));
    http_told_release(&told);
    return OK;
}

/* Reads a file; with `expected` at NULL its lines are results. */
static enum err download(uint32_t batch, const char *id, struct str expected, struct error *error) {
    char target[160];
    struct http_told told;
    if (!*id) return OK;
    snprintf(target, sizeof target, "/v1/files/%s/content", id);
    const struct http_call call = {.method = "GET", .target = target};
    http_call(&call, &told);
    enum err err = judge(&call, &told, error);
    if (err == ERR_NOT_FOUND) world_fail("%s was told and is not there (I1)", id);
    if (err == OK && !expected.at) read_results(batch, buf_str(&told.body));
    if (err == OK && expected.at && !str_equals(expected, buf_str(&told.body)))
        world_fail("%s is not what was uploaded (I1)", id);
    http_told_release(&told);
    return err;
}

enum err client_download(uint32_t batch, struct error *error) {
    const struct ledger_batch *own = &world->ledger.batches[batch];
    size_t bytes;
    if (!own->is_created || own->may_be_deleted || world->ledger.may_expire) return OK;
    char *input = ledger_input(batch, own->lines, &bytes);
    enum err err = download(batch, own->file_id, (struct str){input, bytes}, error);
    free(input);
    if (err == OK) err = download(batch, own->output_id, (struct str){0}, error);
    if (err == OK) err = download(batch, own->error_id, (struct str){0}, error);
    return err;
}

enum err client_list(struct error *error) {
    const struct http_call call = {.method = "GET", .target = "/v1/batches?limit=100"};
    unsigned found[PLAN_BATCHES_MAX] = {0};
    struct http_told told;
    http_call(&call, &told);
    enum err err = judge(&call, &told, error);
    json_t *list = err == OK ? read_json(&call, &told) : NULL, *object;
    size_t at;
    http_told_release(&told);
    if (err != OK) return err;
    json_array_foreach(json_object_get(list, "data"), at, object) {
        const char *name =
            json_string_value(json_object_get(json_object_get(object, "metadata"), "batch"));
        if (!name || *name < '0' || *name >= '0' + PLAN_BATCHES_MAX)
            world_fail("the list has a batch of nobody (I11)");
        found[*name - '0']++;
    }
    json_decref(list);
    for (uint32_t i = 0; i < PLAN_BATCHES_MAX; i++) {
        const struct ledger_batch *own = &world->ledger.batches[i];
        bool must_be_there = own->is_created && !own->may_be_deleted;
        if (found[i] > 1) world_fail("%u batches have the key of b%u (I11)", found[i], i);
        if (found[i] == 0 && must_be_there) world_fail("%s is in no list (I5)", own->id);
        if (found[i] > 0 && own->is_deleted)
            world_fail("%s was deleted and is listed (I15)", own->id);
    }
    return OK;
}
