/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/erase.h"

#include "base/mem.h"
#include "base/os.h"
#include "batch/completion_order.h"
#include "batch/erased_copy.h"
#include "batch/state.h"
#include "json/json.h"
#include "store/answers_forget.h"
#include "store/erased_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT, OUTPUT, ERRORS, FILES };

/* One of the batches. */
struct one {
    struct store_batch batch;
    struct store_batch fresh; /* the ids of the batch and of its files from now on; no more */
    struct batch_proofs proofs;
    bool has_proofs;
    struct store_erased_lines earlier;
    struct store_file old[FILES];
    struct erased_copy copies[FILES];
    struct store_erased_line *lines; /* (line_count) erased now, by their numbers */
    size_t line_count;
    struct buf record;
};

struct work {
    const struct batch_erase *wish;
    struct erased_ids ids;
    bool *found; /* (ids.count) in any batch */
    struct one *ones;
    size_t count;
    struct store_file files[1 + 2 * BATCH_ERASE_BATCHES_MAX]; /* placed */
    size_t file_count;
};

static const char *const whats[FILES] = {"input", "output", "errors"};

static char *id_of(struct store_batch *batch, int which) {
    return which == INPUT    ? batch->input_file_id
           : which == OUTPUT ? batch->output_file_id
                             : batch->error_file_id;
}

/* --- the batches --- */

static enum err check_batch(const struct work *work, const struct one *one, struct error *error) {
    const struct store_batch *batch = &one->batch, *first = &work->ones[0].batch;
    if (!batch_status_is_terminal(batch->status))
        return err_set(error, ERR_CONFLICT, "Batch %s has the status '%s': cancel it first.",
                       batch->id, batch_status_name(batch->status));
    if (strcmp(batch->input_file_id, first->input_file_id) != 0 ||
        strcmp(batch->owner, first->owner) != 0)
        return err_set(error, ERR_INVALID,
                       "Batches %s and %s have different inputs: erase in one after the other.",
                       first->id, batch->id);
    return OK;
}

static enum err read_batch(struct work *work, const char *id, struct error *error) {
    struct store *store = work->wish->store;
    struct one *one = &work->ones[work->count];
    enum err err = store_batch_get(store, str_from(id), &one->batch, error);
    if (err != OK) return err;
    work->count++;
    err = check_batch(work, one, error);
    if (err != OK) return err;
    memcpy(one->fresh.id, one->batch.id, sizeof one->fresh.id);
    for (int i = 0; i < FILES; i++)
        memcpy(id_of(&one->fresh, i), id_of(&one->batch, i), STORE_ID_BYTES);
    err = batch_proofs_read(store, one->batch.id, &one->proofs, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, ERR_INVALID,
                       "Batch %s has no sums that survive an erasure: it ended before quern wrote "
                       "them, or without its input. Delete it as a whole.",
                       one->batch.id);
    if (err != OK) return err;
    one->has_proofs = true;
    err = store_erased_lines(store, one->batch.id, &one->earlier, error);
    /* A kill may have left what the end of the batch removes. */
    return err == OK ? store_batch_forget_log(store, one->batch.id, error) : err;
}

/* --- the files --- */

/* Copies a file if it exists still. */
static enum err copy_file(struct work *work, struct one *one, int which, struct error *error) {
    const char *id = id_of(&one->batch, which);
    struct store_file *file = &one->old[which];
    struct store_file found;
    int fd;
    if (!*id) return OK;
    enum err err = store_file_open(work->wish->store, str_from(id), work->wish->now_unix_s, &fd,
                                   &found, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err;
    *file = found;
    const struct erased_copy_wish wish = {.store = work->wish->store,
                                          .file = file,
                                          .fd = fd,
                                          .what = whats[which],
                                          .proofs = &one->proofs,
                                          .ids = &work->ids,
                                          .earlier = &one->earlier,
                                          .is_written = which != INPUT || one == work->ones};
    err = erased_copy_make(&wish, &one->copies[which], error);
    os_close(fd);
    return err;
}

/* The result of a request, by its spot in one of the result files. */
static enum erased_result result_of(const struct one *one, uint64_t request) {
    for (int i = OUTPUT; i < FILES; i++)
        for (size_t at = 0; at < one->copies[i].count; at++)
            if (one->copies[i].spots[at].request == request) return one->copies[i].spots[at].result;
    return ERASED_UNRUN;
}

static int compare_lines(const void *a, const void *b) {
    const struct store_erased_line *one = a, *two = b;
    return one->line < two->line ? -1 : one->line > two->line;
}

static enum err copy_batch(struct work *work, struct one *one, struct error *error) {
    erased_ids_restart(&work->ids);
    for (int i = 0; i < FILES; i++) {
        enum err err = copy_file(work, one, i, error);
        if (err != OK) return err;
    }
    one->lines = mem_new(work->ids.count + 1, sizeof *one->lines);
    for (size_t i = 0; i < work->ids.count; i++) {
        uint64_t request = work->ids.requests[i];
        if (request == 0) continue;
        work->found[i] = true;
        one->lines[one->line_count++] =
            (struct store_erased_line){request, result_of(one, request)};
    }
    qsort(one->lines, one->line_count, sizeof *one->lines, compare_lines);
    return OK;
}

/* --- the proof --- */

static struct line_erased *proof_lines(const struct erased_copy *copy) {
    struct line_erased *lines = mem_new(copy->count + 1, sizeof *lines);
    for (size_t i = 0; i < copy->count; i++) lines[i] = copy->spots[i].proof;
    return lines;
}

/* Takes the salts out, and writes the record but for its end. */
static enum err prove(const struct work *work, struct one *one, struct error *error) {
    json_t *files = json_object();
    json_t *record =
        json_pack("{s:I,s:s,s:I,s:o}", "erased_at", (json_int_t)work->wish->now_unix_s, "reason",
                  work->wish->reason, "requests", (json_int_t)one->line_count, "files", files);
    assert(record);
    for (int i = 0; i < FILES; i++) {
        const struct erased_copy *copy = &one->copies[i];
        if (copy->count == 0) continue;
        struct line_erased *lines = proof_lines(copy);
        batch_proofs_erase(&one->proofs, whats[i], lines, copy->count);
        json_object_set_new(files, whats[i], run_salts_lines_json(lines, copy->count));
        free(lines);
    }
    json_write(&one->record, record);
    buf_truncate(&one->record, one->record.bytes - 1); /* the brace: `others` follow */
    buf_add_byte(&one->record, '\0');
    json_object_set_new(record, "others", json_array());
    json_array_append_new(one->proofs.salts.erasures, record);
    if (batch_proofs_fit(&one->proofs)) return OK;
    return err_set(error, ERR_INVALID,
                   "Batch %s: so many of its lines were erased that the salts of the others would "
                   "be too large a file. Delete it as a whole.",
                   one->batch.id);
}

/* --- placing --- */

static enum err place(struct work *work, struct one *one, int which, struct error *error) {
    struct erased_copy *copy = &one->copies[which];
    struct store_file *file = &work->files[work->file_count];
    if (!copy->spool) return OK;
    *file = one->old[which];
    file->id[0] = '\0';
    file->created_unix_s = work->wish->now_unix_s;
    file->owner_bytes_max = 0; /* the old one goes */
    enum err err = store_spool_place(copy->spool, file, error);
    copy->spool = NULL;
    if (err != OK) return err;
    work->file_count++;
    memcpy(id_of(&one->fresh, which), file->id, STORE_ID_BYTES);
    return OK;
}

/* Names the new files in the rows of the proof. */
static void name_files(struct one *one) {
    for (int i = 0; i < FILES; i++) {
        struct store_proof *row = batch_proofs_row(&one->proofs, whats[i]);
        if (row) memcpy(row->file_id, id_of(&one->fresh, i), STORE_ID_BYTES);
    }
}

static struct order_erased_line *order_lines(const struct erased_copy *copy) {
    struct order_erased_line *lines = mem_new(copy->count + 1, sizeof *lines);
    uint64_t gone = 0;
    for (size_t i = 0; i < copy->count; i++) {
        gone += copy->spots[i].bytes - 1;
        lines[i] = (struct order_erased_line){copy->spots[i].offset, gone};
    }
    return lines;
}

static enum err write_order(const struct work *work, const struct one *one, struct error *error) {
    struct order_erased_line *lines[2] = {order_lines(&one->copies[OUTPUT]),
                                          order_lines(&one->copies[ERRORS])};
    const struct order_erased erased[2] = {{lines[0], one->copies[OUTPUT].count},
                                           {lines[1], one->copies[ERRORS].count}};
    enum err err =
        completion_order_erase(work->wish->store, &one->batch, &one->fresh, erased, error);
    free(lines[0]);
    free(lines[1]);
    return err == ERR_NOT_FOUND ? OK : err; /* it went with the result files */
}

static enum err place_batch(struct work *work, struct one *one, struct error *error) {
    enum err err = OK;
    if (one == work->ones)
        err = place(work, one, INPUT, error);
    else
        memcpy(one->fresh.input_file_id, work->ones[0].fresh.input_file_id, STORE_ID_BYTES);
    if (err == OK) err = place(work, one, OUTPUT, error);
    if (err == OK) err = place(work, one, ERRORS, error);
    if (err != OK) return err;
    name_files(one);
    return write_order(work, one, error);
}

/* --- all --- */

static enum err check_found(const struct work *work, bool *ret_is_custom_id, struct error *error) {
    for (size_t i = 0; i < work->ids.count; i++) {
        if (work->found[i]) continue;
        *ret_is_custom_id = true;
        /* The id itself is often a name, and this sentence comes into logs. */
        return err_set(error, ERR_NOT_FOUND, "Batch %s has no line with the id 'custom_ids[%zu]'.",
                       work->ones[0].batch.id, work->ids.places[i]);
    }
    return OK;
}

static enum err commit(struct work *work, struct batch_erasure *ret_erasure, struct error *error) {
    struct store_erasing erasing[BATCH_ERASE_BATCHES_MAX];
    struct store_erasure erasure = {.batches = erasing,
                                    .batch_count = work->count,
                                    .files = work->files,
                                    .file_count = work->file_count,
                                    .now_unix_s = work->wish->now_unix_s};
    for (size_t i = 0; i < work->count; i++) {
        struct one *one = &work->ones[i];
        erasing[i] = (struct store_erasing){.batch = &one->batch,
                                            .lines = one->lines,
                                            .line_count = one->line_count,
                                            .proofs = &one->proofs.rows,
                                            .record = one->record.at};
        memcpy(erasing[i].input_id, one->fresh.input_file_id, STORE_ID_BYTES);
        memcpy(erasing[i].output_id, one->fresh.output_file_id, STORE_ID_BYTES);
        memcpy(erasing[i].error_id, one->fresh.error_file_id, STORE_ID_BYTES);
    }
    enum err err = store_erase(work->wish->store, &erasure, error);
    work->file_count = 0; /* store_erase has them */
    if (err != OK) return err;
    ret_erasure->requests = work->ids.count;
    ret_erasure->batch_count = work->count;
    for (size_t i = 0; i < work->count; i++) {
        const struct one *one = &work->ones[i];
        struct batch_erased *erased = &ret_erasure->batches[i];
        *erased = (struct batch_erased){.judgements = erasing[i].judgements};
        for (int which = 0; which < FILES; which++) erased->lines += one->copies[which].count;
        memcpy(erased->id, one->fresh.id, STORE_ID_BYTES);
        memcpy(erased->input_file_id, one->fresh.input_file_id, STORE_ID_BYTES);
        memcpy(erased->output_file_id, one->fresh.output_file_id, STORE_ID_BYTES);
        memcpy(erased->error_file_id, one->fresh.error_file_id, STORE_ID_BYTES);
    }
    return OK;
}

static enum err erase_all(struct work *work, struct batch_erasure *ret_erasure,
                          bool *ret_is_custom_id, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < work->wish->batch_count && err == OK; i++)
        err = read_batch(work, work->wish->batch_ids[i], error);
    for (size_t i = 0; i < work->count && err == OK; i++)
        err = copy_batch(work, &work->ones[i], error);
    if (err == OK) err = check_found(work, ret_is_custom_id, error);
    for (size_t i = 0; i < work->count && err == OK; i++) err = prove(work, &work->ones[i], error);
    for (size_t i = 0; i < work->count && err == OK; i++)
        err = place_batch(work, &work->ones[i], error);
    /* Before the lines go: the cache and the notes of Label Studio may be lost at any time. */
    for (size_t i = 0; i < work->count && err == OK; i++) {
        err = store_forget_answers(work->wish->store, work->ones[i].batch.id, error);
        if (err == OK) err = store_erase_notes(work->wish->store, work->ones[i].batch.id, error);
    }
    return err == OK ? commit(work, ret_erasure, error) : err;
}

static void release(struct one *one) {
    store_batch_release(&one->batch);
    if (one->has_proofs) batch_proofs_release(&one->proofs);
    store_erased_lines_release(&one->earlier);
    for (int i = 0; i < FILES; i++) erased_copy_release(&one->copies[i]);
    free(one->lines);
    buf_release(&one->record);
}

/* Removes files that were placed and orders that were written. */
static void undo(struct work *work) {
    struct error ignored;
    for (size_t i = 0; i < work->file_count; i++)
        store_file_unplace(work->wish->store, work->files[i].id);
    for (size_t i = 0; i < work->count; i++)
        if (store_order_keep_one(work->wish->store, work->ones[i].batch.id, &ignored) != OK)
            ignored.code = OK; /* the next start removes what stays */
}

enum err batch_erase(const struct batch_erase *erase, struct batch_erasure *ret_erasure,
                     bool *ret_is_custom_id, struct error *error) {
    struct work *work = mem_new(1, sizeof *work);
    assert(erase->batch_count > 0 && erase->batch_count <= BATCH_ERASE_BATCHES_MAX);
    work->wish = erase;
    work->ones = mem_new(erase->batch_count, sizeof *work->ones);
    for (size_t i = 0; i < erase->batch_count; i++) buf_init(&work->ones[i].record, BUF_UNLIMITED);
    erased_ids_init(&work->ids, erase->custom_ids, erase->id_count);
    work->found = mem_new(work->ids.count + 1, sizeof *work->found);
    *ret_is_custom_id = false;
    enum err err = erase_all(work, ret_erasure, ret_is_custom_id, error);
    if (err != OK) undo(work);
    for (size_t i = 0; i < erase->batch_count; i++) release(&work->ones[i]);
    erased_ids_release(&work->ids);
    free(work->found);
    free(work->ones);
    free(work);
    return err;
}

enum err batch_erase_sweep(struct store *store, const struct batch_erasure *erasure,
                           int64_t now_unix_s, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < erasure->batch_count && err == OK; i++)
        err = store_order_keep_one(store, erasure->batches[i].id, error);
    if (err == OK) err = store_file_sweep(store, now_unix_s, error);
    return err == OK ? erased_pages_clear(store, error) : err;
}
