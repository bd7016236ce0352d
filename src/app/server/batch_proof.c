/* SPDX-License-Identifier: Apache-2.0 */
#include "server/batch_proof.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "batch/proofs.h"
#include "batch/state.h"
#include "proof/manifest.h"
#include "proof/signing_key.h"
#include "server/run_record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES "%s/" STORE_NOTES_NAME

static void warn(const struct error *error) {
    log_warn("event=no_manifests error=\"%s\"", error->text);
}

/* --- notes --- */

/* The records as {"FROM": record}, in their order; an empty object if none can be read. */
static json_t *read_notes(const struct store *store) {
    char path[PATH_MAX], from[24];
    struct jsonl_file file;
    struct str line;
    struct error ignored;
    uint64_t bytes;
    int fd;
    json_t *notes = json_object(), *whole;
    snprintf(path, sizeof path, NOTES, store_dir(store));
    jsonl_file_init(&file);
    if (os_open(&fd, path, O_RDONLY | O_NOFOLLOW, 0, &ignored) == OK)
        jsonl_file_take(&file, fd, os_file_bytes(fd, &bytes, &ignored) == OK ? bytes : 0);
    while (jsonl_file_next(&file, &line)) {
        if (json_read(&whole, line, &ignored) != OK) continue;
        snprintf(from, sizeof from, "%lld",
                 (long long)json_integer_value(json_object_get(whole, "from")));
        json_object_set(notes, from, json_object_get(whole, "record"));
        json_decref(whole);
    }
    jsonl_file_close(&file);
    return notes;
}

static enum err append(const struct batch_proof *proof, struct error *error) {
    char path[PATH_MAX];
    struct buf line;
    snprintf(path, sizeof path, NOTES, store_dir(proof->store));
    buf_init(&line, BUF_UNLIMITED);
    /* The first line end ends a part that a killed process left. */
    buf_printf(&line, "\n{\"from\":%" PRId64 ",\"record\":", proof->from_unix_s);
    json_write(&line, proof->record);
    buf_add_text(&line, "}\n");
    enum err err = run_record_append(path, buf_str(&line), error);
    buf_release(&line);
    return err;
}

/* Takes up the latest note if it is of the same record. */
static bool take_up(struct batch_proof *proof) {
    json_t *notes = read_notes(proof->store), *record, *last = NULL;
    const char *from;
    json_object_foreach(notes, from, record) {
        last = record;
        proof->from_unix_s = strtoll(from, NULL, 10);
    }
    bool is_same = last && run_record_is_same(last, proof->record);
    if (is_same) {
        json_decref(proof->record);
        proof->record = json_incref(last);
    }
    json_decref(notes);
    return is_same;
}

static void *add_sums(void *context) {
    struct batch_proof *proof = context;
    struct error error;
    if (!run_record_add_sums(proof->record, &proof->stop)) return NULL;
    enum err err = append(proof, &error);
    if (err == OK)
        atomic_store(&proof->is_ready, true);
    else
        warn(&error);
    return NULL;
}

/* --- the life of the server --- */

static void read_key(struct batch_proof *proof, const char *key) {
    char path[PATH_MAX];
    struct error error;
    snprintf(path, sizeof path, "%s/" SIGNING_KEY_NAME, store_dir(proof->store));
    proof->has_key = signing_key_get(&proof->key, key ? key : path, &error) == OK;
    if (!proof->has_key) log_warn("event=manifests_not_signed error=\"%s\"", error.text);
}

void batch_proof_begin(struct batch_proof *proof, struct node *node,
                       const struct node_options *options, const json_t *settings,
                       const char *key) {
    struct error error;
    proof->store = node_store(node);
    proof->record = run_record_make(node, options, settings);
    read_key(proof, key);
    if (!take_up(proof)) {
        int64_t now_unix_s = clock_unix_s();
        /* A clock that was set back must not bring two records under one time. */
        if (now_unix_s <= proof->from_unix_s) now_unix_s = proof->from_unix_s + 1;
        proof->from_unix_s = now_unix_s;
        if (append(proof, &error) != OK) {
            warn(&error);
            return;
        }
    }
    if (run_record_has_sums(proof->record))
        atomic_store(&proof->is_ready, true);
    else
        proof->has_thread = pthread_create(&proof->thread, NULL, add_sums, proof) == 0;
}

void batch_proof_close(struct batch_proof *proof) {
    proof->stop = true;
    if (proof->has_thread) pthread_join(proof->thread, NULL);
    json_decref(proof->record);
    ssh_key_wipe(&proof->key);
    *proof = (struct batch_proof){.store = NULL};
}

/* --- a manifest --- */

/* The records that held at some moment between the two times. */
static json_t *computed_by(const struct batch_proof *proof, int64_t begin_unix_s,
                           int64_t end_unix_s) {
    json_t *notes = read_notes(proof->store), *list = json_array(), *record, *before = NULL;
    const char *from;
    json_object_foreach(notes, from, record) {
        int64_t from_unix_s = strtoll(from, NULL, 10);
        if (from_unix_s > end_unix_s) break;
        if (before && from_unix_s > begin_unix_s) json_array_append(list, before);
        before = record;
    }
    if (before) json_array_append(list, before);
    size_t i;
    json_array_foreach(list, i, record) run_record_drop_facts(record);
    json_decref(notes);
    return list;
}

/* A file by its row; NULL if it was deleted. */
static json_t *whole_file(const struct batch_proof *proof, const char *id, int64_t alive_unix_s) {
    struct store_file file;
    struct error ignored;
    char hex[SHA256_HEX_BYTES];
    if (!*id || store_file_get(proof->store, str_from(id), alive_unix_s, &file, &ignored) != OK)
        return NULL;
    sha256_hex(file.sha256, hex);
    return json_pack("{s:o,s:s,s:I,s:s}", "name", run_record_text(file.filename), "id", file.id,
                     "bytes", (json_int_t)file.bytes, "sha256", hex);
}

/* A file by its sum over lines; NULL if the batch has none. No id and no size: an erasure changes
 * both. */
static json_t *lines_of(struct batch_proofs *proofs, const char *what) {
    char hex[SHA256_HEX_BYTES];
    const struct store_proof *row = batch_proofs_row(proofs, what);
    if (!row) return NULL;
    sha256_hex(row->lines_sha256, hex);
    return json_pack("{s:o,s:I,s:s}", "name", run_record_text(row->name), "lines",
                     (json_int_t)row->lines, "lines_sha256", hex);
}

static void set(json_t *content, const char *name, json_t *file) {
    if (file) json_object_set_new(content, name, file);
}

static void set_input(const struct batch_proof *proof, const struct store_batch *batch,
                      struct batch_proofs *proofs, json_t *content) {
    if (proofs) {
        set(content, "input", lines_of(proofs, "input"));
        set(content, "requests", json_pack("{s:b}", "are_input", true));
        return;
    }
    json_t *input = whole_file(proof, batch->input_file_id, batch->created_unix_s);
    if (input) json_object_set(content, "requests", input);
    set(content, "input", input);
}

static void set_results(const struct batch_proof *proof, const struct store_batch *batch,
                        struct batch_proofs *proofs, json_t *content) {
    int64_t now_unix_s = clock_unix_s();
    set(content, "output",
        proofs ? lines_of(proofs, "output") : whole_file(proof, batch->output_file_id, now_unix_s));
    set(content, "errors",
        proofs ? lines_of(proofs, "errors") : whole_file(proof, batch->error_file_id, now_unix_s));
}

/* `proofs` NULL: the batch has no sums over lines. */
static json_t *content_of(const struct batch_proof *proof, const struct store_batch *batch,
                          struct batch_proofs *proofs) {
    int64_t end_unix_s = store_batch_end_unix_s(batch);
    int64_t begin_unix_s =
        batch->in_progress_unix_s ? batch->in_progress_unix_s : batch->created_unix_s;
    int version = proofs ? MANIFEST_VERSION : MANIFEST_VERSION_OF_FILES;
    json_t *content = json_pack("{s:s,s:i,s:I}", "object", MANIFEST_OBJECT, "version", version,
                                "created_at", (json_int_t)end_unix_s);
    json_object_set_new(content, "batch",
                        json_pack("{s:s,s:s,s:s,s:o}", "id", batch->id, "endpoint", batch->endpoint,
                                  "status", batch_status_name(batch->status), "model",
                                  *batch->model ? run_record_text(batch->model) : json_null()));
    set_input(proof, batch, proofs, content);
    json_object_set_new(content, "computed_by", computed_by(proof, begin_unix_s, end_unix_s));
    json_object_set_new(content, "results",
                        json_pack("{s:I,s:I}", "completed", (json_int_t)batch->completed, "failed",
                                  (json_int_t)batch->failed));
    set_results(proof, batch, proofs, content);
    return content;
}

static enum err check_ready(const struct batch_proof *proof, const struct store_batch *batch,
                            struct error *error) {
    if (!batch_status_is_terminal(batch->status))
        return err_set(error, ERR_CONFLICT, "The batch has not ended; its status is '%s'.",
                       batch_status_name(batch->status));
    if (!atomic_load(&proof->is_ready))
        return err_set(error, ERR_UNAVAILABLE,
                       "The server reads the files of its models for their sums; ask again soon.");
    return OK;
}

static void write_manifest(const struct batch_proof *proof, const struct store_batch *batch,
                           struct batch_proofs *proofs, struct buf *out) {
    json_t *content = content_of(proof, batch, proofs);
    manifest_write(out, content, proof->has_key ? &proof->key : NULL);
    json_decref(content);
}

enum err batch_proof_write(void *context, const struct store_batch *batch, struct buf *out,
                           struct error *error) {
    const struct batch_proof *proof = context;
    struct batch_proofs proofs;
    enum err err = check_ready(proof, batch, error);
    if (err != OK) return err;
    err = batch_proofs_read(proof->store, batch->id, &proofs, error);
    if (err != OK && err != ERR_NOT_FOUND) return err;
    write_manifest(proof, batch, err == OK ? &proofs : NULL, out);
    if (err == OK) batch_proofs_release(&proofs);
    return OK;
}

enum err batch_proof_write_salts(void *context, const struct store_batch *batch, struct buf *out,
                                 struct error *error) {
    const struct batch_proof *proof = context;
    struct batch_proofs proofs;
    struct digest digest;
    struct buf manifest;
    enum err err = check_ready(proof, batch, error);
    if (err == OK) err = batch_proofs_read(proof->store, batch->id, &proofs, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, err,
                       "The manifest of this batch has the sums of whole files (version 1), which "
                       "need no salts.");
    if (err != OK) return err;
    buf_init(&manifest, BUF_UNLIMITED);
    write_manifest(proof, batch, &proofs, &manifest);
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, manifest.at, manifest.bytes);
    digest_end_hex(&digest, proofs.salts.manifest_sha256);
    run_salts_write(out, &proofs.salts, proof->has_key ? &proof->key : NULL);
    buf_release(&manifest);
    batch_proofs_release(&proofs);
    return OK;
}
