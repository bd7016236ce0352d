/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/proofs.h"

#include "base/mem.h"
#include "base/os.h"
#include "batch/state.h"

#include <assert.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define SIGNATURE_ROOM_BYTES 4096

static char *text_of(const struct line_salts *salts) {
    struct buf text;
    json_t *list = line_salts_json(salts);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, list);
    json_decref(list);
    return text.at;
}

/* The digits of a sum as bytes. */
static void read_hex(const char *hex, unsigned char ret_sum[SHA256_BYTES]) {
    size_t bytes = 0;
    int code = sodium_hex2bin(ret_sum, SHA256_BYTES, hex, strlen(hex), NULL, &bytes, NULL);
    assert(code == 0 && bytes == SHA256_BYTES);
}

/* --- making --- */

void proof_maker_begin(struct proof_maker *maker) {
    line_salts_make(&maker->salts);
    line_summer_begin(&maker->summer, &maker->salts, NULL, 0);
}

/* A new tree has a salt for each line that a file can have, so that nothing can fail. */
void proof_maker_add(struct proof_maker *maker, struct str bytes) {
    struct error error;
    enum err err = line_summer_add(&maker->summer, bytes, &error);
    assert(err == OK);
}

void proof_maker_end(struct proof_maker *maker, const char *what, struct store_proof *ret_proof) {
    struct line_sum sum;
    struct error error;
    enum err err = line_summer_end(&maker->summer, &sum, &error);
    assert(err == OK);
    *ret_proof = (struct store_proof){.lines = sum.lines, .salts = text_of(&maker->salts)};
    snprintf(ret_proof->what, sizeof ret_proof->what, "%s", what);
    read_hex(sum.hex, ret_proof->lines_sha256);
    line_salts_release(&maker->salts);
}

void proof_maker_release(struct proof_maker *maker) {
    line_summer_release(&maker->summer);
    line_salts_release(&maker->salts);
}

struct input_reading {
    int fd;
    const struct store_file *file;
    bool (*stopped)(void *context);
    void *context;
    struct proof_maker maker;
    struct digest whole;
};

static enum err read_input(struct input_reading *reading, char *piece, struct error *error) {
    const uint64_t bytes = reading->file->bytes;
    for (uint64_t at = 0; at < bytes;) {
        size_t count = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        if (reading->stopped && reading->stopped(reading->context))
            return err_set(error, ERR_CANCELLED, "publishing was stopped");
        enum err err = os_pread_all(reading->fd, piece, count, at, error);
        if (err != OK) return err;
        digest_add(&reading->whole, piece, count);
        proof_maker_add(&reading->maker, (struct str){piece, count});
        at += count;
    }
    return OK;
}

enum err proof_of_input(int fd, const struct store_file *file, bool (*stopped)(void *context),
                        void *context, struct store_proof *ret_proof, struct error *error) {
    struct input_reading reading = {.fd = fd, .file = file, .stopped = stopped, .context = context};
    char hex[DIGEST_HEX_BYTES], wanted[SHA256_HEX_BYTES], *piece = mem_alloc(PIECE_BYTES);
    digest_begin(&reading.whole, DIGEST_SHA256);
    proof_maker_begin(&reading.maker);
    enum err err = read_input(&reading, piece, error);
    free(piece);
    if (err == OK) {
        digest_end_hex(&reading.whole, hex);
        sha256_hex(file->sha256, wanted);
        if (strcmp(hex, wanted) != 0)
            err = err_set(error, ERR_CORRUPT, "%s: its bytes are not what was stored", file->id);
    }
    if (err == OK) {
        proof_maker_end(&reading.maker, "input", ret_proof);
        memcpy(ret_proof->name, file->filename, sizeof ret_proof->name);
        memcpy(ret_proof->file_id, file->id, sizeof ret_proof->file_id);
    }
    digest_release(&reading.whole);
    proof_maker_release(&reading.maker);
    return err;
}

/* --- what an ended batch has --- */

static enum err read_list(const char *text, json_t **ret_list, struct error *error) {
    if (text) return json_read(ret_list, str_from(text), error);
    *ret_list = json_array();
    return OK;
}

/* The lists of all rows as a member of the salts' file, so that its reader checks all of them. */
static enum err read_texts(struct batch_proofs *proofs, json_t *lists, json_t **ret_erasures,
                           struct error *error) {
    json_t *list = NULL;
    for (size_t i = 0; i < proofs->rows.count; i++) {
        enum err err = read_list(proofs->rows.files[i].salts, &list, error);
        if (err != OK) return err;
        json_object_set_new(lists, proofs->rows.files[i].what, list);
    }
    return read_list(proofs->rows.erasures, ret_erasures, error);
}

enum err batch_proofs_read(struct store *store, const char *batch_id,
                           struct batch_proofs *ret_proofs, struct error *error) {
    json_t *lists = json_object(), *erasures = NULL;
    *ret_proofs = (struct batch_proofs){.salts = {.file_count = 0}};
    enum err err = store_proofs_get(store, batch_id, &ret_proofs->rows, error);
    if (err == OK && ret_proofs->rows.count == 0)
        err = err_set(error, ERR_NOT_FOUND, "batch %s has no sums over lines", batch_id);
    if (err == OK) err = read_texts(ret_proofs, lists, &erasures, error);
    if (err == OK) err = run_salts_take(&ret_proofs->salts, lists, erasures, error);
    json_decref(lists);
    json_decref(erasures);
    if (err == OK) return OK;
    store_proofs_release(&ret_proofs->rows);
    if (err == ERR_INVALID) err = err_set(error, ERR_CORRUPT, "its proofs are damaged");
    return err;
}

void batch_proofs_release(struct batch_proofs *proofs) {
    run_salts_release(&proofs->salts);
    store_proofs_release(&proofs->rows);
}

struct store_proof *batch_proofs_row(struct batch_proofs *proofs, const char *what) {
    for (size_t i = 0; i < proofs->rows.count; i++)
        if (strcmp(proofs->rows.files[i].what, what) == 0) return &proofs->rows.files[i];
    return NULL;
}

void batch_proofs_erase(struct batch_proofs *proofs, const char *what,
                        const struct line_erased *lines, size_t count) {
    struct run_salts_file *file = run_salts_find(&proofs->salts, what);
    struct store_proof *row = batch_proofs_row(proofs, what);
    assert(file && row);
    run_salts_erase(file, lines, count);
    free(row->salts);
    row->salts = text_of(&file->salts);
}

bool batch_proofs_fit(const struct batch_proofs *proofs) {
    struct buf text;
    buf_init(&text, MANIFEST_BYTES_MAX - SIGNATURE_ROOM_BYTES);
    run_salts_write(&text, &proofs->salts, NULL);
    bool fits = !text.overflowed;
    buf_release(&text);
    return fits;
}

/* --- fsck --- */

/* A file against its row. What cannot be opened is told by the checks of files. */
static void check_file(struct store *store, const struct store_proof *row,
                       struct run_salts_file *salts, fsck_report_fn report, void *context) {
    int fd;
    struct line_sum sum;
    struct error error;
    char hex[SHA256_HEX_BYTES], sentence[ERROR_TEXT_BYTES + 64];
    if (!row->salts || store_input_open(store, str_from(row->file_id), 0, &fd, NULL, &error) != OK)
        return;
    sha256_hex(row->lines_sha256, hex);
    enum err err =
        line_sum_file(fd, &salts->salts, salts->erased, salts->erased_count, NULL, &sum, &error);
    os_close(fd);
    if (err == OK && sum.lines == row->lines && strcmp(sum.hex, hex) == 0) return;
    snprintf(sentence, sizeof sentence, "its %s is not what its manifest says%s%s (I17)", row->what,
             err == OK ? "" : ": ", err == OK ? "" : error.text);
    report(context, sentence);
}

/* An ended batch with rows has one for each of its files. */
static void check_rows(const struct store_batch *batch, struct batch_proofs *proofs,
                       fsck_report_fn report, void *context) {
    const char *const ids[] = {batch->input_file_id, batch->output_file_id, batch->error_file_id};
    static const char *const whats[] = {"input", "output", "errors"};
    char sentence[256];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const struct store_proof *row = batch_proofs_row(proofs, whats[i]);
        if (strcmp(row ? row->file_id : "", ids[i]) == 0) continue;
        snprintf(sentence, sizeof sentence, "its %s is the file '%s', and the sum is of '%s' (I17)",
                 whats[i], ids[i], row ? row->file_id : "");
        report(context, sentence);
    }
}

void batch_proofs_check(struct store *store, const struct store_batch *batch, fsck_report_fn report,
                        void *context) {
    struct batch_proofs proofs;
    struct error error;
    char sentence[ERROR_TEXT_BYTES + 64];
    enum err err = batch_proofs_read(store, batch->id, &proofs, &error);
    if (err == ERR_NOT_FOUND) return;
    if (err != OK) {
        snprintf(sentence, sizeof sentence, "its proofs cannot be read: %s (I17)", error.text);
        report(context, sentence);
        return;
    }
    if (!batch_status_is_terminal(batch->status))
        report(context, "it has not ended, and has sums of its files (I17)");
    else
        check_rows(batch, &proofs, report, context);
    for (size_t i = 0; i < proofs.rows.count; i++)
        check_file(store, &proofs.rows.files[i], &proofs.salts.files[i], report, context);
    batch_proofs_release(&proofs);
}
