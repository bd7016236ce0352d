/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/publish.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/os.h"
#include "batch/completion_order.h"
#include "batch/line.h"
#include "batch/proofs.h"
#include "batch/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20) /* bytes per write */
#define RECORD_BYTES_MAX (SEGLOG_TEXT_BYTES_MAX + 4096)

/* One of the two result files. */
struct side {
    struct store_spool *spool; /* NULL until it has a line */
    struct buf pending;
    uint64_t lines;
    uint64_t bytes;
    struct proof_maker maker; /* not begun without an input */
};

struct work {
    const struct batch_publish *publish;
    struct side output, errors;
    struct buf line;
    struct buf custom_id;
    struct order_builder order;
    uint64_t failed; /* requests that ran and failed */
    struct usage usage;
    uint64_t missing;
    uint64_t spooled_bytes; /* bytes whose write-out was started */
};

/* "file-" and 22 characters that follow from the batch's id and `which` ("output", "error"). */
static void result_file_id(const char *batch_id, const char *which, char ret_id[STORE_ID_BYTES]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, which, strlen(which) + 1);
    sha256_add(&hash, batch_id, strlen(batch_id));
    sha256_end(&hash, digest);
    size_t at = strlen("file-");
    memcpy(ret_id, "file-", at);
    for (size_t i = 0; i < 22; i++) ret_id[at + i] = letters[digest[i] % 36];
    ret_id[at + 22] = '\0';
}

enum batch_status batch_publish_target(const struct store_batch *batch) {
    return batch->status == BATCH_CANCELLING ? BATCH_CANCELLED : batch->final_status;
}

static enum err write_pending(struct work *work, struct side *side, struct error *error) {
    if (side->pending.bytes == 0) return OK;
    enum err err = OK;
    work->spooled_bytes += side->pending.bytes;
    if (!side->spool) err = store_spool_open(&side->spool, work->publish->store, error);
    if (err == OK)
        err = store_spool_write(side->spool, side->pending.at, side->pending.bytes, error);
    buf_clear(&side->pending);
    return err;
}

/* Adds a line; `sequence` is its record's, 0: it has no record. */
static enum err add_line(struct work *work, struct side *side, struct str line, uint64_t sequence,
                         struct error *error) {
    completion_order_add(&work->order, sequence, side == &work->errors, side->bytes, line);
    side->lines++;
    side->bytes += line.bytes;
    buf_add_str(&side->pending, line);
    if (work->publish->input) proof_maker_add(&side->maker, line);
    return side->pending.bytes >= PIECE_BYTES ? write_pending(work, side, error) : OK;
}

/* Adds the line of a request that did not run, with the custom_id from the input. If the input
 * cannot be read any more, no line is added, because it would have no custom_id. */
static enum err add_unexecuted(struct work *work, uint32_t line, enum batch_outcome outcome,
                               struct error *error) {
    const struct batch_publish *publish = work->publish;
    struct index_entry entry = index_entry(publish->index, line);
    struct batch_line parsed;
    buf_clear(&work->line);
    buf_clear(&work->custom_id);
    char *room = buf_reserve(&work->line, entry.bytes);
    assert(room);
    enum err err = os_pread_all(publish->input_fd, room, entry.bytes, entry.offset, error);
    bool readable = err == OK && crc32c(0, room, entry.bytes) == entry.crc &&
                    batch_line_read((struct str){room, entry.bytes}, &parsed) == BATCH_LINE_READ &&
                    parsed.custom_id.bytes > 2 && *parsed.custom_id.at == '"';
    if (!readable)
        return outcome == BATCH_SERVER_FAULTED
                   ? OK
                   : err_set(error, ERR_CORRUPT, "the input of request %u cannot be read any more",
                             line);
    batch_custom_id_write(&work->custom_id, parsed.custom_id);
    buf_clear(&work->line);
    struct batch_result result = {.batch_id = publish->batch->id,
                                  .line = line,
                                  .custom_id = buf_str(&work->custom_id),
                                  .outcome = outcome};
    batch_result_write(&work->line, &result);
    return add_line(work, &work->errors, buf_str(&work->line), 0, error);
}

static enum err add_request(struct work *work, uint32_t line, enum batch_status target,
                            struct error *error) {
    const struct batch_publish *publish = work->publish;
    struct seglog_found found;
    buf_clear(&work->line);
    enum err err = seglog_read_record(publish->log, line, &work->line, &found, error);
    if (err == OK && found.kind == SEGLOG_SUCCESS) {
        usage_add(&work->usage, &found.usage);
        return add_line(work, &work->output, buf_str(&work->line), found.sequence, error);
    }
    if (err == OK) {
        if (found.kind == SEGLOG_ERROR) work->failed++;
        return add_line(work, &work->errors, buf_str(&work->line), found.sequence, error);
    }
    if (err != ERR_NOT_FOUND && err != ERR_CORRUPT) return err;
    if (err == ERR_CORRUPT) seglog_forget(publish->log, line);
    switch (target) {
    case BATCH_CANCELLED: return add_unexecuted(work, line, BATCH_WAS_CANCELLED, error);
    case BATCH_EXPIRED: return add_unexecuted(work, line, BATCH_NOT_IN_WINDOW, error);
    case BATCH_FAILED: return add_unexecuted(work, line, BATCH_SERVER_FAULTED, error);
    default: work->missing++; return OK;
    }
}

static enum err write_lines(struct work *work, enum batch_status target, struct error *error) {
    const struct batch_publish *publish = work->publish;
    uint32_t count = index_count(publish->index);
    for (uint32_t line = 0; line < count; line++) {
        if (line % 256 == 0 && publish->stopped && publish->stopped(publish->context))
            return err_set(error, ERR_CANCELLED, "publishing was stopped");
        enum err err = add_request(work, line, target, error);
        if (err != OK) return err;
    }
    if (work->missing > 0)
        return err_set(error, ERR_CONFLICT, "%llu requests of batch %s have no result yet",
                       (unsigned long long)work->missing, publish->batch->id);
    enum err err = write_pending(work, &work->output, error);
    return err == OK ? write_pending(work, &work->errors, error) : err;
}

/* Adds one file to the transaction. *ret_id stays empty if the file has no line. */
static enum err place_side(struct work *work, struct side *side, const char *which,
                           struct store_published *published, char *ret_id, struct error *error) {
    ret_id[0] = '\0';
    if (!side->spool) return OK;
    const struct batch_publish *publish = work->publish;
    struct store_file *file = &published->files[published->file_count];
    *file = (struct store_file){.purpose = "batch_output", .created_unix_s = publish->now_unix_s};
    if (publish->batch->output_expires_after_s)
        file->expires_unix_s = publish->now_unix_s + publish->batch->output_expires_after_s;
    snprintf(file->filename, sizeof file->filename, "%s_%s.jsonl", publish->batch->id, which);
    memcpy(file->owner, publish->batch->owner, sizeof file->owner);
    result_file_id(publish->batch->id, which, file->id);
    enum err err = store_spool_place(side->spool, file, error);
    side->spool = NULL;
    if (err != OK) return err;
    memcpy(ret_id, file->id, STORE_ID_BYTES);
    published->file_count++;
    return OK;
}

/* Adds the sums of a placed file, the last one. */
static void prove_side(struct side *side, const char *what, const char *file_id,
                       struct store_published *published) {
    if (!*file_id) return;
    struct store_proof *proof = &published->proofs[published->proof_count++];
    const struct store_file *file = &published->files[published->file_count - 1];
    proof_maker_end(&side->maker, what, proof);
    memcpy(proof->name, file->filename, sizeof proof->name);
    memcpy(proof->file_id, file->id, sizeof proof->file_id);
}

/* Adds the sums of the input. Without them there are none of the results: *ret_proves. */
static enum err prove_input(const struct batch_publish *publish, struct store_published *published,
                            bool *ret_proves, struct error *error) {
    *ret_proves = false;
    if (!publish->input) return OK;
    enum err err = proof_of_input(publish->input_fd, publish->input, publish->stopped,
                                  publish->context, &published->proofs[0], error);
    if (err == ERR_CANCELLED) return err;
    *ret_proves = err == OK;
    published->proof_count = err == OK;
    if (err != OK)
        log_warn("batch=%s event=no_proofs error=\"%s\"", publish->batch->id, error->text);
    return OK;
}

/* Makes all files durable, and what the transaction adds. */
static enum err place_all(struct work *work, struct store_published *published,
                          struct store_batch *ended, struct error *error) {
    bool proves;
    enum err err = prove_input(work->publish, published, &proves, error);
    if (err == OK)
        err = place_side(work, &work->output, "output", published, ended->output_file_id, error);
    if (err == OK && proves) prove_side(&work->output, "output", ended->output_file_id, published);
    if (err == OK)
        err = place_side(work, &work->errors, "error", published, ended->error_file_id, error);
    if (err == OK && proves) prove_side(&work->errors, "errors", ended->error_file_id, published);
    if (err != OK) return err;
    return completion_order_write(&work->order, work->publish->store, work->publish->batch->id,
                                  error);
}

static enum err finish(struct work *work, struct store_batch *batch, enum batch_status target,
                       struct error *error) {
    const struct batch_publish *publish = work->publish;
    struct store_published published = {.file_count = 0};
    struct store_batch ended = *batch;
    enum err err = place_all(work, &published, &ended, error);
    if (err == OK) {
        ended.completed = work->output.lines;
        ended.failed = work->failed;
        ended.usage = work->usage;
        ended.has_usage = true;
        batch_move(&ended, target, publish->now_unix_s);
        err = store_batch_update(publish->store, &ended, batch->status, &published, error);
    }
    for (size_t i = 0; i < published.proof_count; i++) free(published.proofs[i].salts);
    if (err == OK) *batch = ended;
    return err;
}

enum err batch_publish(const struct batch_publish *publish, struct store_batch *batch,
                       struct batch_published *ret_published, struct error *error) {
    enum batch_status target = batch_publish_target(batch);
    struct work work = {.publish = publish};
    buf_init(&work.output.pending, RECORD_BYTES_MAX + PIECE_BYTES);
    buf_init(&work.errors.pending, RECORD_BYTES_MAX + PIECE_BYTES);
    buf_init(&work.line, RECORD_BYTES_MAX);
    completion_order_init(&work.order, seglog_last_sequence(publish->log));
    buf_init(&work.custom_id, RECORD_BYTES_MAX);
    if (publish->input) {
        proof_maker_begin(&work.output.maker);
        proof_maker_begin(&work.errors.maker);
    }
    enum err err = write_lines(&work, target, error);
    if (err == OK) err = finish(&work, batch, target, error);
    if (err == ERR_UNAVAILABLE)
        store_wants_room(publish->store, work.spooled_bytes + completion_order_bytes(&work.order));
    if (err != OK) {
        store_spool_abort(work.output.spool);
        store_spool_abort(work.errors.spool);
    }
    *ret_published = (struct batch_published){work.output.lines, work.errors.lines, work.missing};
    buf_release(&work.output.pending);
    buf_release(&work.errors.pending);
    buf_release(&work.line);
    buf_release(&work.custom_id);
    proof_maker_release(&work.output.maker);
    proof_maker_release(&work.errors.maker);
    completion_order_release(&work.order);
    return err;
}
