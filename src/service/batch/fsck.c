/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/fsck.h"

#include "base/os.h"
#include "batch/index.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "batch/proofs.h"
#include "batch/publish.h"
#include "batch/state.h"
#include "json/span.h"
#include "store/erased.h"
#include "store/outbox.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORTS_PER_BATCH_MAX 20

struct check {
    struct store *store;
    fsck_report_fn report;
    void *context;
    uint64_t violations;
    const struct store_batch *batch;
    uint64_t batch_violations;
};

PRINTF_LIKE(2, 3)
static void violated(struct check *check, const char *format, ...) {
    char text[400], sentence[512];
    check->violations++;
    if (++check->batch_violations > REPORTS_PER_BATCH_MAX) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(sentence, sizeof sentence, "%s: %s", check->batch->id, text);
    check->report(check->context, sentence);
}

/* Opens a result file. False if its row no longer exists (deleted or expired): then it cannot be
 * checked. */
static bool open_result(struct check *check, const char *id, struct jsonl_file *lines) {
    struct store_file file;
    struct error error;
    int fd;
    if (!*id) return true;
    if (store_file_open(check->store, str_from(id), 0, &fd, &file, &error) != OK) return false;
    jsonl_file_take(lines, fd, file.bytes);
    return true;
}

/* --- one record --- */

/* The current line of a result file. */
struct record {
    bool present;
    struct str custom_id; /* raw */
};

static void check_record(struct check *check, struct str line, uint64_t number, bool is_output,
                         uint64_t *failed) {
    const char *file = is_output ? "output" : "error";
    struct str response = json_span_get(line, "response"), fault = json_span_get(line, "error");
    struct str status = json_span_get(response, "status_code");
    if (!json_span_read(line, NULL) || !json_span_get(line, "id").at || !response.at || !fault.at) {
        violated(check, "line %llu of the %s file is not a result record (I2)",
                 (unsigned long long)number, file);
        return;
    }
    bool success = status.bytes == 3 && *status.at == '2' && str_is(fault, "null");
    if (success != is_output)
        violated(check, "line %llu of the %s file belongs into the other file (I2)",
                 (unsigned long long)number, file);
    if (!success && status.at) (*failed)++;
    for (size_t i = 0; i < line.bytes; i++) {
        if ((unsigned char)line.at[i] < 0x80) continue;
        violated(check, "line %llu of the %s file is not pure ASCII", (unsigned long long)number,
                 file);
        return;
    }
}

static void next_record(struct check *check, struct jsonl_file *lines, bool is_output,
                        struct record *record, uint64_t *failed) {
    struct str line;
    *record = (struct record){0};
    if (!jsonl_file_next(lines, &line)) return;
    check_record(check, line, lines->lines.number, is_output, failed);
    record->present = true;
    record->custom_id = json_span_get(line, "custom_id");
}

/* --- one batch --- */

/* Compares the counts of the batch with those of its files, which have no line that was erased. */
static void check_counts(struct check *check, uint64_t requests, uint64_t completed,
                         uint64_t failed) {
    const struct store_batch *batch = check->batch;
    struct store_erased_lines erased;
    struct error error;
    uint64_t gone[ERASED_RESULT_COUNT] = {0};
    if (store_erased_lines(check->store, batch->id, &erased, &error) != OK) {
        violated(check, "its erased lines cannot be read: %s (I4)", error.text);
        return;
    }
    for (size_t i = 0; i < erased.count; i++) gone[erased.at[i].result]++;
    requests += erased.count;
    completed += gone[ERASED_COMPLETED];
    failed += gone[ERASED_FAILED];
    store_erased_lines_release(&erased);
    if (requests != batch->total)
        violated(check, "total is %llu, the input has %llu requests (I4)",
                 (unsigned long long)batch->total, (unsigned long long)requests);
    if (completed != batch->completed || failed != batch->failed)
        violated(check, "counts say %llu completed and %llu failed, the files %llu and %llu (I4)",
                 (unsigned long long)batch->completed, (unsigned long long)batch->failed,
                 (unsigned long long)completed, (unsigned long long)failed);
}

/* Walks over the input. Both result files are in its order, so the walk meets every record in
 * turn. */
static void walk(struct check *check, struct jsonl_file *input, struct jsonl_file *output,
                 struct jsonl_file *errors) {
    struct str line;
    struct record out, err;
    uint64_t requests = 0, failed = 0, out_lines = 0, err_lines = 0;
    next_record(check, output, true, &out, &failed);
    next_record(check, errors, false, &err, &failed);
    while (jsonl_file_next(input, &line)) {
        struct batch_line parsed;
        requests++;
        /* A line that is damaged has no custom_id, so that it is the line of no record. */
        if (batch_line_read(line, &parsed) != BATCH_LINE_READ) parsed = (struct batch_line){0};
        if (out.present && batch_line_same_text(parsed.custom_id, out.custom_id)) {
            out_lines++;
            next_record(check, output, true, &out, &failed);
        } else if (err.present && batch_line_same_text(parsed.custom_id, err.custom_id)) {
            err_lines++;
            next_record(check, errors, false, &err, &failed);
        } else {
            violated(check, "line %llu of the input has no record in its turn (I2, I3)",
                     (unsigned long long)input->lines.number);
        }
    }
    for (; out.present; out_lines++) {
        violated(check,
                 "line %llu of the output file answers no line of the input in its turn (I3)",
                 (unsigned long long)output->lines.number);
        next_record(check, output, true, &out, &failed);
    }
    for (; err.present; err_lines++) {
        violated(check, "line %llu of the error file answers no line of the input in its turn (I3)",
                 (unsigned long long)errors->lines.number);
        next_record(check, errors, false, &err, &failed);
    }
    check_counts(check, requests, out_lines, failed);
    for (size_t i = 0; i < 3; i++) {
        const struct jsonl_file *file = (const struct jsonl_file *[]){input, output, errors}[i];
        static const char *const names[] = {"input", "output", "errors"};
        if (file->failed)
            violated(check, "its %s cannot be read to the end: %s (I1)", names[i], file->why.text);
    }
}

static void check_published(struct check *check) {
    const struct store_batch *batch = check->batch;
    struct jsonl_file input, output, errors;
    struct store_file file;
    struct error error;
    int fd;
    jsonl_file_init(&input);
    jsonl_file_init(&output);
    jsonl_file_init(&errors);
    if (batch->status == BATCH_COMPLETED && batch->completed + batch->failed != batch->total)
        violated(check, "%llu completed and %llu failed are not %llu in total (I4)",
                 (unsigned long long)batch->completed, (unsigned long long)batch->failed,
                 (unsigned long long)batch->total);
    bool there =
        store_input_open(check->store, str_from(batch->input_file_id), 0, &fd, &file, &error) == OK;
    if (there) jsonl_file_take(&input, fd, file.bytes);
    /* Without the input, or after a result file was deleted, no comparison is possible. */
    if (there && open_result(check, batch->output_file_id, &output) &&
        open_result(check, batch->error_file_id, &errors))
        walk(check, &input, &output, &errors);
    jsonl_file_close(&input);
    jsonl_file_close(&output);
    jsonl_file_close(&errors);
}

static void report_log(void *context, const char *sentence) {
    struct check *check = context;
    violated(check, "%s (I5)", sentence);
}

static void check_log(struct check *check) {
    const struct store_batch *batch = check->batch;
    struct store_file file;
    struct error error;
    int fd;
    if (store_input_open(check->store, str_from(batch->input_file_id), batch->created_unix_s, &fd,
                         &file, &error) != OK) {
        violated(check, "its input cannot be read: %s (I1)", error.text);
        return;
    }
    os_close(fd);
    if (batch->total > file.bytes) { /* a request has more than one byte */
        violated(check, "total is %llu, and its input has %llu bytes (I4)",
                 (unsigned long long)batch->total, (unsigned long long)file.bytes);
        return;
    }
    struct seglog_options options = {.batch_id = batch->id,
                                     .batch_sequence = batch->sequence,
                                     .line_count = batch->total,
                                     .read_only = true,
                                     .report = report_log,
                                     .report_context = check};
    memcpy(options.input_sha256, file.sha256, SHA256_BYTES);
    struct seglog *log;
    if (seglog_open(&log, check->store, &options, &error) != OK) {
        violated(check, "its results cannot be read: %s (I5)", error.text);
        return;
    }
    struct seglog_counts counts = seglog_counts(log);
    if (counts.recovered > batch->total)
        violated(check, "%llu results for %llu requests (I2)", (unsigned long long)counts.recovered,
                 (unsigned long long)batch->total);
    seglog_close(log);
}

static void check_times(struct check *check) {
    const struct store_batch *batch = check->batch;
    const struct {
        enum batch_status status;
        int64_t at;
    } ends[] = {{BATCH_COMPLETED, batch->completed_unix_s},
                {BATCH_FAILED, batch->failed_unix_s},
                {BATCH_EXPIRED, batch->expired_unix_s},
                {BATCH_CANCELLED, batch->cancelled_unix_s}};
    for (size_t i = 0; i < 4; i++)
        if ((ends[i].at != 0) != (batch->status == ends[i].status))
            violated(check, "it is %s, and its time of being %s is %lld (I8)",
                     batch_status_name(batch->status), batch_status_name(ends[i].status),
                     (long long)ends[i].at);
    const int64_t way[] = {batch->created_unix_s, batch->in_progress_unix_s,
                           batch->finalizing_unix_s, batch->completed_unix_s};
    int64_t last = 0;
    for (size_t i = 0; i < 4; i++) {
        if (way[i] == 0) continue;
        if (way[i] < last) violated(check, "its times go backwards (I8)");
        last = way[i];
    }
    if ((batch->status == BATCH_CANCELLING || batch->status == BATCH_CANCELLED) !=
        (batch->cancelling_unix_s != 0))
        violated(check, "it is %s, and cancelling was entered at %lld (I8, I9)",
                 batch_status_name(batch->status), (long long)batch->cancelling_unix_s);
    if (!batch_status_is_terminal(batch->status) &&
        (*batch->output_file_id || *batch->error_file_id))
        violated(check, "it is %s and has result files already (I4)",
                 batch_status_name(batch->status));
}

/* Checks I12: a batch's webhook is told its end once, and no other end. */
static void check_outbox(struct check *check) {
    const struct store_batch *batch = check->batch;
    bool ended = batch_status_is_terminal(batch->status);
    enum outbox_event event =
        ended ? (enum outbox_event)(batch->status - BATCH_COMPLETED) : OUTBOX_EVENT_COUNT;
    uint64_t own, foreign;
    struct error error;
    if (store_outbox_count(check->store, batch->id, event, &own, &foreign, &error) != OK) {
        violated(check, "its events cannot be read: %s (I12)", error.text);
        return;
    }
    if (own != (ended && batch->webhook_url ? 1 : 0))
        violated(check, "it is %s, and its own URL has %llu events of that (I12)",
                 batch_status_name(batch->status), (unsigned long long)own);
    if (foreign > 0)
        violated(check, "it is %s, and %llu events tell of another end (I12)",
                 batch_status_name(batch->status), (unsigned long long)foreign);
}

/* Checks I13: a batch and its files have one owner. A file without a row has no owner. */
static void check_owners(struct check *check) {
    const struct store_batch *batch = check->batch;
    const char *ids[] = {batch->input_file_id, batch->output_file_id, batch->error_file_id};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct store_file file;
        struct error error;
        /* A client may name any file; another owner's file fails the batch. */
        if (!*ids[i] || (i == 0 && batch->status == BATCH_FAILED)) continue;
        if (store_file_get(check->store, str_from(ids[i]), 0, &file, &error) != OK) continue;
        if (strcmp(file.owner, batch->owner) != 0 && batch->total > 0)
            violated(check, "it belongs to '%s', and its file %s to '%s' (I13)", batch->owner,
                     file.id, file.owner);
    }
}

/* Checks I17: the manifest of an ended batch verifies. */
static void report_proof(void *context, const char *sentence) {
    violated(context, "%s", sentence);
}

static void check_batch(struct check *check, const struct store_batch *batch) {
    check->batch = batch;
    check->batch_violations = 0;
    check_times(check);
    check_outbox(check);
    check_owners(check);
    batch_proofs_check(check->store, batch, report_proof, check);
    if (batch_status_is_terminal(batch->status)) {
        if (batch->total > 0 && batch->status != BATCH_FAILED) check_published(check);
    } else if (batch->total > 0) {
        check_log(check);
    }
    if (check->batch_violations > REPORTS_PER_BATCH_MAX) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "%s: and %llu more", batch->id,
                 (unsigned long long)(check->batch_violations - REPORTS_PER_BATCH_MAX));
        check->report(check->context, sentence);
    }
}

static void report_file(void *context, const char *sentence) {
    struct check *check = context;
    check->violations++;
    check->report(check->context, sentence);
}

enum err fsck_run(const char *state_dir, fsck_report_fn report, void *context,
                  struct fsck_found *ret_found, struct error *error) {
    struct check check = {.report = report, .context = context};
    enum err err = store_open(&check.store,
                              &(struct store_options){.dir = state_dir, .read_only = true}, error);
    if (err != OK) return err;
    err = store_fsck(check.store, report_file, &check, error);
    struct store_batch batch;
    uint64_t after = 0, judgements = 0;
    if (err == OK)
        err = store_fsck_judgements(check.store, report_file, &check, &judgements, error);
    while (err == OK && (err = store_batch_next(check.store, after, &batch, error)) == OK) {
        after = batch.sequence;
        check_batch(&check, &batch);
        store_batch_release(&batch);
    }
    if (err == ERR_NOT_FOUND) err = OK;
    store_close(check.store);
    if (err == OK) *ret_found = (struct fsck_found){check.violations, judgements};
    return err;
}
