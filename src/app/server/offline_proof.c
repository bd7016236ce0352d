/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_proof.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/whole_file.h"
#include "batch/jsonl_file.h"
#include "batch/request_key.h"
#include "proof/run_salts.h"
#include "proof/signing_key.h"
#include "server/run_record.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NOTES "%.*s/computed_by.jsonl"
#define NOTES_BYTES_MAX ((size_t)8 << 20)
#define BEGIN_BYTES 256

static void warn(const struct offline_proof *proof, const struct error *error) {
    log_warn("event=no_manifest path=\"%s\" error=\"%s\"", proof->path, error->text);
}

/* --- notes --- */

/* True if the notes have this line. */
static bool has_line(const char *path, struct str line) {
    char *text;
    size_t bytes;
    struct error ignored;
    if (os_read_file(path, NOTES_BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    bool has = str_find((struct str){text, bytes}, line, 0) != SIZE_MAX;
    free(text);
    return has;
}

void offline_proof_note(const struct offline_proof *proof, struct node *node,
                        const struct node_options *options, const char *folder) {
    char path[PATH_MAX];
    struct buf line;
    struct error error;
    if (!proof->path) return;
    json_t *record = run_record_make(node, options, proof->settings);
    snprintf(path, sizeof path, NOTES, PATH_MAX - 32, folder);
    buf_init(&line, BUF_UNLIMITED);
    buf_add_byte(&line, '\n'); /* ends a part that a killed process left */
    json_write(&line, record);
    buf_add_byte(&line, '\n');
    if (!has_line(path, buf_str(&line)) && run_record_append(path, buf_str(&line), &error) != OK)
        warn(proof, &error);
    buf_release(&line);
    json_decref(record);
}

static json_t *read_notes(const char *folder) {
    char path[PATH_MAX];
    struct jsonl_file file;
    struct str line;
    struct error ignored;
    json_t *list = json_array(), *record;
    snprintf(path, sizeof path, NOTES, PATH_MAX - 32, folder);
    (void)jsonl_file_open(&file, path, &ignored);
    while (jsonl_file_next(&file, &line)) {
        if (json_read(&record, line, &ignored) != OK) continue;
        (void)run_record_add_sums(record, NULL);
        run_record_drop_facts(record);
        json_array_append_new(list, record);
    }
    jsonl_file_close(&file);
    return list;
}

/* --- the manifest --- */

/* Lines whose answers another run may give otherwise: sampled, without a seed. */
static json_t *seeds_of(const struct offline_made *made) {
    struct jsonl_file file;
    struct str text;
    json_int_t determined = 0, sampled = 0;
    jsonl_file_init(&file);
    jsonl_file_borrow(&file, made->requests_fd, made->requests->bytes);
    while (jsonl_file_next(&file, &text)) {
        bool is_determined = batch_request_is_determined(text);
        determined += is_determined;
        sampled += !is_determined;
    }
    jsonl_file_close(&file);
    return json_pack("{s:I,s:I}", "greedy_or_seeded", determined, "sampled", sampled);
}

/* The sum of an open file over its lines, with new salts; null for what cannot be read. */
static void add_sum(json_t *file, struct run_salts *salts, const char *what, int fd) {
    struct line_sum sum;
    struct error ignored;
    struct run_salts_file *with = run_salts_add(salts, what);
    bool has = line_sum_file(fd, &with->salts, NULL, 0, NULL, &sum, &ignored) == OK;
    json_object_set_new(file, "lines", has ? json_integer((json_int_t)sum.lines) : json_null());
    json_object_set_new(file, "lines_sha256", has ? json_string(sum.hex) : json_null());
}

static json_t *file_of(struct run_salts *salts, const char *what, const char *name,
                       const char *path) {
    int fd = -1;
    struct error ignored;
    json_t *file = json_object();
    json_object_set_new(file, "name", run_record_text(name));
    (void)(os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, &ignored) == OK);
    add_sum(file, salts, what, fd);
    os_close(fd);
    return file;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* How the rows of a table are read, so that one person's can be found later. */
static json_t *table_of(enum table_kind kind, char separator, const char *id_column) {
    const char text[2] = {separator, '\0'};
    return json_pack("{s:s,s:o,s:o}", "kind", table_kind_name(kind), "delimiter",
                     separator ? json_string(text) : json_null(), "id",
                     id_column ? run_record_text(id_column) : json_null());
}

/* Whether the input still makes the requests that ran. A pipe has been read. */
static bool is_unchanged(const struct offline_made *made) {
    unsigned char now[SHA256_BYTES];
    struct stat status;
    struct error ignored;
    if (stat(made->input->path, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    return offline_input_sha256(made->input, now, &ignored) == OK &&
           memcmp(now, made->requests->sha256, sizeof now) == 0;
}

/* The input, and whether it is the requests that ran; its sum is that of what ran. The sum of a
 * table counts if its rows are still those of the requests. */
static json_t *input_of(const struct offline_proof *proof, const struct offline_made *made,
                        struct run_salts *salts, bool *ret_is_requests) {
    *ret_is_requests = !made->input->table && made->input->limit == 0;
    if (*ret_is_requests) {
        json_t *file = json_object();
        json_object_set_new(file, "name", run_record_text(proof->input));
        add_sum(file, salts, "input", made->requests_fd);
        return file;
    }
    bool is_same = is_unchanged(made);
    json_t *file = file_of(salts, "input", proof->input, made->input->path);
    if (!is_same) json_object_set_new(file, "lines_sha256", json_null());
    if (made->input->table) {
        const struct table_options *table = table_plan_options(made->input->table);
        json_object_set_new(
            file, "table",
            table_of(table->kind, table->delimiter ? *table->delimiter : 0, table->id_column));
    }
    return file;
}

static json_t *content_of(const struct offline_proof *proof, const struct offline_made *made,
                          struct run_salts *salts) {
    bool is_requests;
    json_t *content = json_pack("{s:s,s:i,s:I}", "object", MANIFEST_OBJECT, "version",
                                MANIFEST_VERSION, "created_at", (json_int_t)clock_unix_s());
    json_object_set_new(content, "input", input_of(proof, made, salts, &is_requests));
    json_t *requests = json_pack("{s:b}", "are_input", is_requests);
    if (!is_requests) add_sum(requests, salts, "requests", made->requests_fd);
    json_object_set_new(requests, "seeds", seeds_of(made));
    json_object_set_new(content, "requests", requests);
    json_object_set_new(content, "computed_by", read_notes(made->folder));
    json_object_set_new(content, "results",
                        json_pack("{s:I,s:I}", "completed", (json_int_t)made->completed, "failed",
                                  (json_int_t)made->failed));
    json_t *output = file_of(salts, "output", base_of(made->output), made->output);
    const struct table_answers_form *form = &made->input->form;
    if (form->kind != TABLE_NONE)
        json_object_set_new(output, "table", table_of(form->kind, form->csv.separator, NULL));
    json_object_set_new(content, "output", output);
    if (made->rest)
        json_object_set_new(content, "rest",
                            file_of(salts, "rest", base_of(made->rest), made->rest));
    return content;
}

/* Whether the path is free, or has a file of an earlier run. */
static bool may_take(const char *path, bool (*is_one)(struct str text)) {
    char begin[BEGIN_BYTES];
    size_t count = 0;
    int fd;
    struct error ignored;
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, &ignored);
    if (err != OK) return err == ERR_NOT_FOUND;
    err = os_read(fd, begin, sizeof begin, &count, &ignored);
    os_close(fd);
    return err == OK && is_one((struct str){begin, count});
}

static enum err write_one(const char *path, bool (*is_one)(struct str text), const struct buf *text,
                          struct error *error) {
    if (!may_take(path, is_one))
        return err_set(error, ERR_CONFLICT, "%s exists and is of no run", path);
    if (text->overflowed) return err_set(error, ERR_LIMIT, "%s would be too large", path);
    return whole_file_write(path, buf_str(text), true, error);
}

/* Writes the salts, which name the manifest, and then the manifest. */
static enum err write_both(const struct offline_proof *proof, const json_t *content,
                           struct run_salts *salts, const struct ssh_key *key,
                           struct error *error) {
    struct buf text, salts_text;
    struct digest digest;
    char path[PATH_MAX];
    if (!run_salts_path(proof->path, path, sizeof path))
        return err_set(error, ERR_INVALID, "its name is too long");
    if (!may_take(proof->path, manifest_is_one))
        return err_set(error, ERR_CONFLICT, "a file of that name exists and is no manifest");
    buf_init(&text, MANIFEST_BYTES_MAX);
    buf_init(&salts_text, MANIFEST_BYTES_MAX);
    manifest_write(&text, content, key);
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, text.at, text.bytes);
    digest_end_hex(&digest, salts->manifest_sha256);
    run_salts_write(&salts_text, salts, key);
    enum err err = write_one(path, run_salts_is_one, &salts_text, error);
    if (err == OK) err = write_one(proof->path, manifest_is_one, &text, error);
    buf_release(&salts_text);
    buf_release(&text);
    return err;
}

void offline_proof_write(const struct offline_proof *proof, const struct offline_made *made) {
    struct ssh_key key;
    struct error error;
    struct run_salts salts;
    if (!proof->path) return;
    enum err err = *proof->key ? signing_key_get(&key, proof->key, &error)
                               : err_set(&error, ERR_NOT_FOUND, "no place for a key is known");
    bool has_key = err == OK;
    if (!has_key)
        log_warn("event=manifest_not_signed path=\"%s\" error=\"%s\"", proof->path, error.text);
    run_salts_init(&salts);
    json_t *content = content_of(proof, made, &salts);
    err = write_both(proof, content, &salts, has_key ? &key : NULL, &error);
    if (has_key) ssh_key_wipe(&key);
    json_decref(content);
    run_salts_release(&salts);
    if (err != OK) warn(proof, &error);
}
