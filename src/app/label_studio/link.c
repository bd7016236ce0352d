/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/link.h"

#include "base/file_lock.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/json.h"
#include "json/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 1
#define LINK_BYTES_MAX ((size_t)16 << 30)

static int64_t read_number(const json_t *object, const char *name) {
    const json_t *value = json_member(object, name);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
}

/* --- the meaning of a line --- */

static void forget_chunk(struct link *link) {
    json_decref(link->chunk.custom_ids);
    link->chunk = (struct link_chunk){0};
}

static void take_tasks(struct link *link, const json_t *tasks) {
    const char *key;
    json_t *task;
    size_t key_bytes;
    json_object_keylen_foreach((json_t *)(uintptr_t)tasks, key, key_bytes, task) {
        int64_t id = json_is_integer(task) ? (int64_t)json_integer_value(task) : 0;
        if (id <= 0) continue;
        map_put(&link->tasks, (struct str){key, key_bytes}, (uint64_t)id);
        if (id > link->newest_task) link->newest_task = id;
    }
}

static void take_chunk(struct link *link, const json_t *record) {
    forget_chunk(link);
    link->chunk = (struct link_chunk){
        .custom_ids = json_incref(json_object_get(record, "sending")),
        .at_ms = read_number(record, "at_ms"),
        .after = read_number(record, "after"),
    };
}

static enum err take_head(const struct link *link, const json_t *record, struct error *error) {
    if (read_number(record, "quern_label_studio") != VERSION)
        return err_set(error, ERR_CORRUPT, "%s is no file of quern label-studio of this version",
                       link->path);
    if (str_is(json_member_str(record, "batch"), link->batch) &&
        str_is(json_member_str(record, "studio"), link->studio))
        return OK;
    return err_set(error, ERR_CONFLICT,
                   "%s is of the batch %.100s and of %.150s: name another --state", link->path,
                   json_string_value(json_member(record, "batch")),
                   json_string_value(json_member(record, "studio")));
}

static void forget_project(struct link *link) {
    forget_chunk(link);
    form_release(&link->form);
    map_release(&link->tasks);
    map_release(&link->annotations);
    map_release(&link->sent);
    map_init(&link->tasks);
    map_init(&link->annotations);
    map_init(&link->sent);
    link->project = link->newest_task = 0;
    *link->marker = '\0';
}

static enum err take_record(struct link *link, const json_t *record, struct error *error) {
    struct str key = json_member_str(record, "annotation");
    struct str sent = json_member_str(record, "judgement_sent");
    if (json_member(record, "gone")) forget_project(link);
    if (json_member(record, "wanted"))
        snprintf(link->marker, sizeof link->marker, "%.*s",
                 STR_ARGS(json_member_str(record, "wanted")));
    if (json_member(record, "project")) {
        form_release(&link->form);
        link->project = read_number(record, "project");
        return form_from_json(&link->form, json_member(record, "form"), error);
    }
    if (json_is_array(json_member(record, "sending"))) take_chunk(link, record);
    if (json_member(record, "import")) link->chunk.import = read_number(record, "import");
    if (json_member(record, "tasks")) take_tasks(link, json_member(record, "tasks"));
    if (json_member(record, "sent")) forget_chunk(link);
    if (key.at) map_put(&link->annotations, key, 1);
    if (sent.at) map_put(&link->sent, sent, 1);
    return OK;
}

/* --- the file --- */

/* Appends the record as a line, applies it to the link, and releases it. */
static void add(struct link *link, json_t *record) {
    struct error ignored;
    json_write(&link->pending, record);
    buf_add_byte(&link->pending, '\n');
    (void)!take_record(link, record, &ignored);
    json_decref(record);
}

static enum err read_line(struct link *link, const struct lines *lines, struct error *error) {
    json_t *record = NULL;
    enum err err = json_read(&record, lines->line, error);
    if (err == OK && !json_is_object(record)) err = err_set(error, ERR_INVALID, "no object");
    if (err != OK)
        err = err_set(error, ERR_CORRUPT, "%s: line %" PRIu64 " is damaged", link->path,
                      lines->number);
    else
        err =
            lines->number == 1 ? take_head(link, record, error) : take_record(link, record, error);
    json_decref(record);
    return err;
}

/* Reads the lines. *ret_bytes is where the valid ones end. */
static enum err read_all(struct link *link, uint64_t file_bytes, uint64_t *ret_bytes,
                         struct error *error) {
    struct lines lines;
    enum err err;
    *ret_bytes = 0;
    lines_init(&lines, link->fd);
    while ((err = lines_next(&lines, error)) == OK && lines.line.at) {
        uint64_t end = lines.offset + lines.line.bytes;
        if (end == file_bytes) break; /* the last line has no LF */
        err = read_line(link, &lines, error);
        if (err == ERR_CORRUPT && end + 1 == file_bytes && lines.number > 1) {
            err = OK;
            break;
        }
        if (err != OK) break;
        *ret_bytes = end + 1;
    }
    lines_release(&lines);
    return err;
}

static void write_head(struct link *link) {
    json_t *head = json_object();
    json_object_set_new(head, "quern_label_studio", json_integer(VERSION));
    json_object_set_new(head, "batch", json_string(link->batch));
    json_object_set_new(head, "studio", json_string(link->studio));
    json_write(&link->pending, head);
    buf_add_byte(&link->pending, '\n');
    json_decref(head);
}

static enum err sync_folder(const char *path, struct error *error) {
    char *folder = mem_text(path), *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    enum err err = os_fsync_dir(slash ? folder : ".", error);
    free(folder);
    return err;
}

/* A command that was told to end may have a call under way. */
static enum err lock(const struct link *link, struct error *error) {
    enum err err = file_lock(link->fd, link->path, false, error);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, err, "another command works with %s", link->path);
}

static enum err begin(struct link *link, struct error *error) {
    uint64_t file_bytes, bytes;
    enum err err = lock(link, error);
    if (err == OK) err = os_file_bytes(link->fd, &file_bytes, error);
    if (err == OK) err = read_all(link, file_bytes, &bytes, error);
    if (err != OK) return err;
    if (bytes < file_bytes) err = os_ftruncate(link->fd, bytes, error);
    if (err == OK && lseek(link->fd, (off_t)bytes, SEEK_SET) < 0)
        err = err_from_errno(error, errno, "%s", link->path);
    if (err != OK || bytes > 0) return err;
    write_head(link);
    err = link_sync(link, error);
    return err == OK ? sync_folder(link->path, error) : err;
}

enum err link_open(struct link *ret_link, const char *path, const char *batch, const char *studio,
                   struct error *error) {
    struct link link = {
        .fd = -1, .path = mem_text(path), .batch = mem_text(batch), .studio = mem_text(studio)};
    map_init(&link.tasks);
    map_init(&link.annotations);
    map_init(&link.sent);
    buf_init(&link.pending, LINK_BYTES_MAX);
    enum err err = os_open(&link.fd, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600, error);
    if (err == OK) err = begin(&link, error);
    if (err == OK)
        *ret_link = link;
    else
        link_close(&link);
    return err;
}

void link_close(struct link *link) {
    if (!link->path) return;
    os_close(link->fd);
    free(link->path);
    free(link->batch);
    free(link->studio);
    form_release(&link->form);
    map_release(&link->tasks);
    map_release(&link->annotations);
    map_release(&link->sent);
    forget_chunk(link);
    buf_release(&link->pending);
    *link = (struct link){.fd = -1};
}

enum err link_sync(struct link *link, struct error *error) {
    if (link->pending.bytes == 0) return OK;
    enum err err = os_write_all(link->fd, link->pending.at, link->pending.bytes, error);
    if (err == OK) err = os_fdatasync(link->fd, error);
    buf_clear(&link->pending);
    return err == OK ? OK : err_prefix(error, "%s", link->path);
}

/* --- records --- */

void link_want_project(struct link *link, const char *marker) {
    json_t *record = json_object();
    json_object_set_new(record, "wanted", json_string(marker));
    add(link, record);
}

void link_set_project(struct link *link, int64_t project, const struct form *form) {
    json_t *record = json_object();
    json_object_set_new(record, "project", json_integer(project));
    json_object_set_new(record, "form", form_to_json(form));
    add(link, record);
}

void link_forget_project(struct link *link) {
    json_t *record = json_object();
    json_object_set_new(record, "gone", json_integer(link->project));
    add(link, record);
}

void link_send(struct link *link, json_t *custom_ids, int64_t at_ms) {
    json_t *record = json_object();
    json_object_set_new(record, "sending", custom_ids);
    json_object_set_new(record, "at_ms", json_integer(at_ms));
    json_object_set_new(record, "after", json_integer(link->newest_task));
    add(link, record);
}

void link_set_import(struct link *link, int64_t import) {
    json_t *record = json_object();
    json_object_set_new(record, "import", json_integer(import));
    add(link, record);
}

void link_end_chunk(struct link *link, bool has_arrived) {
    json_t *record = json_object();
    json_object_set_new(record, "sent", json_boolean(has_arrived));
    add(link, record);
}

void link_add_tasks(struct link *link, json_t *tasks) {
    json_t *record = json_object();
    json_object_set(record, "tasks", tasks);
    add(link, record);
}

void link_add_judgement(struct link *link, const char *key, json_t *judgement, bool is_held) {
    json_t *record = json_object();
    json_object_set_new(record, "annotation", json_string(key));
    json_object_set(record, "judgement", judgement);
    if (is_held) json_object_set_new(record, "held", json_true());
    add(link, record);
}

void link_add_sent(struct link *link, const char *id) {
    json_t *record = json_object();
    json_object_set_new(record, "judgement_sent", json_string(id));
    add(link, record);
}

enum err link_each_judgement(const struct link *link, link_judgement_fn take, void *context,
                             struct error *error) {
    struct lines lines;
    int fd;
    enum err err = os_open(&fd, link->path, O_RDONLY | O_CLOEXEC, 0, error);
    if (err != OK) return err;
    lines_init(&lines, fd);
    while ((err = lines_next(&lines, error)) == OK && lines.line.at) {
        json_t *record = NULL;
        err = json_read(&record, lines.line, error);
        if (err != OK) break;
        const json_t *judgement = json_member(record, "judgement");
        if (judgement && !json_is_true(json_member(record, "held"))) take(context, judgement);
        json_decref(record);
    }
    lines_release(&lines);
    os_close(fd);
    return err;
}
