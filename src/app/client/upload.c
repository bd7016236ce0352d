/* SPDX-License-Identifier: Apache-2.0 */
#include "client/upload.h"

#include "base/id.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 200
#define BOUNDARY_BYTES 48
#define FRAME_BYTES 1024
#define PATH_BYTES (64 + 3 * OBJECT_FILE_ID_BYTES) /* each byte of an id may be %XX */
#define COMPLETE_MS 900000 /* the server may read 8 GB again before it answers */

/* The name without its folder and without what would end a quoted string. */
static void write_name(const char *path, char ret_name[NAME_BYTES]) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct str text = str_from(name);
    if (text.bytes > NAME_BYTES - 8) text = str_skip(text, text.bytes - (NAME_BYTES - 8));
    object_copy_text(text, ret_name, NAME_BYTES - 6);
    for (char *at = ret_name; *at; at++)
        if (*at == '"' || *at == '\\') *at = '_';
    if (!str_ends_with(str_from(ret_name), STR(".jsonl")))
        memcpy(ret_name + strlen(ret_name), ".jsonl", 7);
}

/* The multipart form around the bytes of a file. */
struct form {
    char type[BOUNDARY_BYTES + 64], before[FRAME_BYTES], after[BOUNDARY_BYTES + 16];
    struct net_file file;
};

static void form_make(struct form *form, const struct upload_source *source, const char *fields,
                      const char *part, const char *name) {
    char boundary[BOUNDARY_BYTES];
    id_hex(boundary, sizeof boundary, "quern-", 32);
    snprintf(form->type, sizeof form->type, "multipart/form-data; boundary=%s", boundary);
    int bytes = 0;
    if (fields)
        bytes = snprintf(form->before, sizeof form->before,
                         "--%s\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n%s\r\n",
                         boundary, fields);
    snprintf(form->before + bytes, sizeof form->before - (size_t)bytes,
             "--%s\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n"
             "Content-Type: application/octet-stream\r\n\r\n",
             boundary, part, name);
    snprintf(form->after, sizeof form->after, "\r\n--%s--\r\n", boundary);
    form->file = (struct net_file){.fd = source->fd,
                                   .before = str_from(form->before),
                                   .after = str_from(form->after),
                                   .post_type = form->type};
}

static void tell(const struct upload_source *source, uint64_t bytes) {
    if (source->progress) source->progress(source->context, bytes);
}

/* The id of the file that the JSON object `answer` is; releases the object. */
static enum err take_file(json_t *answer, char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) {
    struct file_object file;
    enum err err = file_object_read(&file, answer, error);
    if (err == OK) memcpy(ret_id, file.id, OBJECT_FILE_ID_BYTES);
    json_decref(answer);
    return err;
}

static enum err send_whole(struct remote *remote, const struct upload_source *source,
                           char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) {
    struct form form;
    char name[NAME_BYTES];
    json_t *answer;
    write_name(source->name, name);
    form_make(&form, source, "batch", "file", name);
    form.file.bytes = source->bytes;
    const struct remote_call call = {.path = "/files", .file = &form.file};
    enum err err = remote_get_json(remote, &call, &answer, error);
    if (err != OK) return err;
    tell(source, source->bytes);
    return take_file(answer, ret_id, error);
}

/* --- in parts --- */

static void add_path(struct buf *path, const char *upload_id, const char *rest) {
    buf_clear(path);
    buf_add_text(path, "/uploads/");
    object_add_id(path, upload_id);
    buf_add_text(path, rest);
}

/* Announces the file. ERR_NOT_FOUND from a server without the Uploads API. */
static enum err announce(struct remote *remote, const struct upload_source *source,
                         char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) {
    struct buf body;
    struct remote_answer answer;
    char name[NAME_BYTES];
    write_name(source->name, name);
    buf_init(&body, FRAME_BYTES * 4);
    buf_printf(&body, "{\"bytes\":%" PRIu64 ",\"purpose\":\"batch\",\"mime_type\":", source->bytes);
    buf_add_text(&body, "\"application/jsonl\",\"filename\":");
    json_write_string(&body, str_from(name));
    buf_add_byte(&body, '}');
    const struct remote_call call = {.path = "/uploads", .body = buf_str(&body)};
    enum err err = remote_get(remote, &call, &answer, error);
    bool is_missing =
        err == OK && (answer.status == 404 || answer.status == 405 || answer.status == 501);
    if (is_missing)
        err = err_set(error, ERR_NOT_FOUND, "the server takes no uploads in parts");
    else if (err == OK)
        err = remote_judge(remote, &answer, error);
    json_t *object;
    if (err == OK) err = object_read(answer.body, &object, error);
    if (err == OK) err = take_file(object, ret_id, error);
    buf_release(&body);
    return err;
}

/* Sends the bytes at `from` as one part, whose quoted id is appended to `ids`. */
static enum err send_part(struct remote *remote, const struct upload_source *source,
                          const char *path, uint64_t from, struct buf *ids, struct error *error) {
    struct form form;
    char part_id[OBJECT_FILE_ID_BYTES];
    json_t *answer;
    uint64_t left = source->bytes - from;
    form_make(&form, source, NULL, "data", "upload");
    form.file.from = from;
    form.file.bytes = left < UPLOAD_PART_BYTES ? left : UPLOAD_PART_BYTES;
    const struct remote_call call = {.path = path, .file = &form.file};
    enum err err = remote_get_json(remote, &call, &answer, error);
    if (err == OK) err = take_file(answer, part_id, error);
    if (err != OK) return err;
    if (ids->bytes > 0) buf_add_byte(ids, ',');
    json_write_string(ids, str_from(part_id));
    tell(source, from + form.file.bytes);
    return OK;
}

/* Reads the file that a completed upload has become. False if it is not completed. */
static bool read_completed(const json_t *upload, char ret_id[OBJECT_FILE_ID_BYTES]) {
    struct file_object file;
    struct error ignored;
    if (file_object_read(&file, json_member(upload, "file"), &ignored) != OK) return false;
    memcpy(ret_id, file.id, OBJECT_FILE_ID_BYTES);
    return true;
}

/* Looks whether a completion whose answer was lost has been done. */
static bool was_completed(struct remote *remote, const char *upload_id,
                          char ret_id[OBJECT_FILE_ID_BYTES]) {
    struct buf path;
    struct remote_answer answer;
    struct error ignored;
    json_t *object;
    buf_init(&path, PATH_BYTES);
    add_path(&path, upload_id, "");
    const struct remote_call call = {.path = path.at};
    bool is_done = remote_try(remote, &call, &answer, &ignored) == OK &&
                   remote_judge(remote, &answer, &ignored) == OK &&
                   object_read(answer.body, &object, &ignored) == OK;
    if (is_done) {
        is_done = read_completed(object, ret_id);
        json_decref(object);
    }
    buf_release(&path);
    return is_done;
}

static enum err complete(struct remote *remote, const char *upload_id, const struct buf *ids,
                         char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) {
    struct buf path, body;
    struct remote_answer answer;
    enum err err = OK;
    buf_init(&path, PATH_BYTES);
    buf_init(&body, BUF_UNLIMITED);
    add_path(&path, upload_id, "/complete");
    buf_printf(&body, "{\"part_ids\":[%s]}", ids->at);
    const struct remote_call call = {
        .path = path.at, .body = buf_str(&body), .answer_ms = COMPLETE_MS};
    bool is_done = false;
    while (err == OK && !is_done) {
        err = remote_try(remote, &call, &answer, error);
        if (err != OK || answer.end == REMOTE_REFUSED ||
            (answer.end == REMOTE_ANSWERED && !remote_may_pass(&answer)))
            break;
        err = remote_wait(remote, &answer, error);
        is_done = err == OK && was_completed(remote, upload_id, ret_id);
    }
    json_t *object;
    if (err == OK && !is_done) {
        err = remote_judge(remote, &answer, error);
        if (err == OK) err = object_read(answer.body, &object, error);
        if (err == OK) {
            if (!read_completed(object, ret_id))
                err = err_set(error, ERR_CORRUPT, "the server's answer is no completed upload");
            json_decref(object);
        }
    }
    buf_release(&body);
    buf_release(&path);
    return err;
}

static enum err send_parts(struct remote *remote, const struct upload_source *source,
                           const char *upload_id, char ret_id[OBJECT_FILE_ID_BYTES],
                           struct error *error) {
    struct buf path, ids;
    enum err err = OK;
    buf_init(&path, PATH_BYTES);
    buf_init(&ids, BUF_UNLIMITED);
    add_path(&path, upload_id, "/parts");
    for (uint64_t from = 0; err == OK && from < source->bytes; from += UPLOAD_PART_BYTES)
        err = send_part(remote, source, path.at, from, &ids, error);
    if (err == OK) err = complete(remote, upload_id, &ids, ret_id, error);
    buf_release(&ids);
    buf_release(&path);
    return err;
}

enum err upload_file(struct remote *remote, const struct upload_source *source,
                     char ret_id[OBJECT_FILE_ID_BYTES], struct error *error) {
    char upload_id[OBJECT_FILE_ID_BYTES];
    if (source->bytes == 0) return err_set(error, ERR_INVALID, "the file is empty");
    if (source->bytes <= UPLOAD_PART_BYTES) return send_whole(remote, source, ret_id, error);
    enum err err = announce(remote, source, upload_id, error);
    if (err == ERR_NOT_FOUND) return send_whole(remote, source, ret_id, error);
    return err == OK ? send_parts(remote, source, upload_id, ret_id, error) : err;
}
