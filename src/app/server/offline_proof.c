/* SPDX-License-Identifier: Apache-2.0 */
#include "server/offline_proof.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/whole_file.h"
#include "batch/jsonl_file.h"
#include "batch/request_key.h"
#include "proof/file_sum.h"
#include "proof/manifest.h"
#include "proof/signing_key.h"
#include "server/run_record.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    if (jsonl_file_open(&file, path, &ignored) != OK) file.bytes = 0;
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
    file.fd = dup(made->requests_fd);
    file.bytes = made->requests->bytes;
    while (jsonl_file_next(&file, &text)) {
        bool is_determined = batch_request_is_determined(text);
        determined += is_determined;
        sampled += !is_determined;
    }
    jsonl_file_close(&file);
    return json_pack("{s:I,s:I}", "greedy_or_seeded", determined, "sampled", sampled);
}

static json_t *file_of(const char *name, const char *path, const char *sum) {
    struct file_facts facts;
    char hex[DIGEST_HEX_BYTES];
    struct error ignored;
    json_t *file = json_object();
    if (!sum && file_sum(path, hex, NULL, &ignored) == OK) sum = hex;
    json_object_set_new(file, "name", run_record_text(name));
    json_object_set_new(file, "bytes",
                        sum && file_facts_read(path, &facts) ? json_integer((json_int_t)facts.bytes)
                                                             : json_null());
    json_object_set_new(file, "sha256", sum ? json_string(sum) : json_null());
    return file;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The sum of a table counts if its rows are still those of the requests. */
static json_t *input_of(const struct offline_proof *proof, const struct offline_made *made,
                        const char *requests_sum) {
    unsigned char now[SHA256_BYTES];
    struct error ignored;
    if (!made->input->table && made->input->limit == 0) {
        json_t *file = file_of(proof->input, made->input->path, requests_sum);
        json_object_set_new(file, "bytes", json_integer((json_int_t)made->requests->bytes));
        return file;
    }
    bool is_same = offline_input_sha256(made->input, now, &ignored) == OK &&
                   memcmp(now, made->requests->sha256, sizeof now) == 0;
    json_t *file = file_of(proof->input, made->input->path, NULL);
    if (!is_same) json_object_set_new(file, "sha256", json_null());
    return file;
}

static json_t *content_of(const struct offline_proof *proof, const struct offline_made *made) {
    char hex[SHA256_HEX_BYTES];
    sha256_hex(made->requests->sha256, hex);
    json_t *content = json_pack("{s:s,s:i,s:I}", "object", MANIFEST_OBJECT, "version",
                                MANIFEST_VERSION, "created_at", (json_int_t)clock_unix_s());
    json_object_set_new(content, "input", input_of(proof, made, hex));
    json_t *requests =
        json_pack("{s:I,s:s}", "bytes", (json_int_t)made->requests->bytes, "sha256", hex);
    json_object_set_new(requests, "seeds", seeds_of(made));
    json_object_set_new(content, "requests", requests);
    json_object_set_new(content, "computed_by", read_notes(made->folder));
    json_object_set_new(content, "results",
                        json_pack("{s:I,s:I}", "completed", (json_int_t)made->completed, "failed",
                                  (json_int_t)made->failed));
    json_object_set_new(content, "output", file_of(base_of(made->output), made->output, NULL));
    if (made->rest)
        json_object_set_new(content, "rest", file_of(base_of(made->rest), made->rest, NULL));
    return content;
}

/* Whether the path is free, or has the manifest of an earlier run. */
static bool may_take(const char *path) {
    char begin[BEGIN_BYTES];
    size_t count = 0;
    int fd;
    struct error ignored;
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, &ignored);
    if (err != OK) return err == ERR_NOT_FOUND;
    err = os_read(fd, begin, sizeof begin, &count, &ignored);
    os_close(fd);
    return err == OK && manifest_is_one((struct str){begin, count});
}

void offline_proof_write(const struct offline_proof *proof, const struct offline_made *made) {
    struct ssh_key key;
    struct error error;
    struct buf text;
    if (!proof->path) return;
    enum err err = *proof->key ? signing_key_get(&key, proof->key, &error)
                               : err_set(&error, ERR_NOT_FOUND, "no place for a key is known");
    bool has_key = err == OK;
    if (!has_key)
        log_warn("event=manifest_not_signed path=\"%s\" error=\"%s\"", proof->path, error.text);
    json_t *content = content_of(proof, made);
    buf_init(&text, MANIFEST_BYTES_MAX);
    manifest_write(&text, content, has_key ? &key : NULL);
    if (has_key) ssh_key_wipe(&key);
    json_decref(content);
    if (!may_take(proof->path))
        err = err_set(&error, ERR_CONFLICT, "a file of that name exists and is no manifest");
    else if (text.overflowed)
        err = err_set(&error, ERR_LIMIT, "it would be too large");
    else
        err = whole_file_write(proof->path, buf_str(&text), true, &error);
    if (err != OK) warn(proof, &error);
    buf_release(&text);
}
