/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erasure.h"

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "dossier/erased_file.h"
#include "dossier/erasure_list.h"
#include "dossier/run_neighbours.h"
#include "replay/run_check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One run of an erasure on its way. */
struct erasing_run {
    struct run_proof *proof;
    json_t *files;                  /* what the record has of them */
    struct run_table table;         /* how its input is read */
    struct row_numbers gone;        /* rows that were erased before */
    struct erased_rows rows;        /* those of the input that go */
    uint64_t requests, with_result; /* those that are erased */
};

/* One erasure on its way. */
struct erasing {
    const struct erasure_options *options;
    struct erasure *is;
    struct erasure_list list;
    struct erased_file made[ERASURE_LIST_FILES_MAX]; /* one for each file of the list */
    bool is_made[ERASURE_LIST_FILES_MAX];
    json_t *others; /* what the records have of them */
};

enum err erasure_lock(const struct run_proof *proof, int *ret_fd, struct error *error) {
    enum err err = os_open(ret_fd, proof->path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = file_lock(*ret_fd, proof->path, false, error);
    if (err == ERR_CONFLICT)
        err = err_set(error, err, "another quern erases lines of %s", proof->path);
    if (err != OK) os_close(*ret_fd);
    return err;
}

enum err erasure_end(const struct run_proof *proof, bool *ret_was_one, struct error *error) {
    char path[PATH_MAX];
    *ret_was_one = false;
    if (!run_proof_erasing_path(proof, path) || access(path, F_OK) != 0) return OK;
    return erasure_list_end(path, ret_was_one, error);
}

/* --- what is refused --- */

static const json_t *entry_of(const struct run_proof *proof, const char *what) {
    return json_object_get(proof->manifest.content, what);
}

static bool requests_are_input(const struct run_proof *proof) {
    return json_is_true(json_object_get(entry_of(proof, "requests"), "are_input"));
}

/* Rows of Parquet lie in columns, packed together. */
static enum err refuse_parquet(const char *what, const char *path, struct error *error) {
    return err_set(error, ERR_INVALID,
                   "the %s %s is a Parquet file, whose rows have no lines that could become empty; "
                   "run the table as CSV or JSONL, of which rows are erased, and remove the files "
                   "of this run as a whole",
                   what, path);
}

static enum err check_tables(const struct run_proof *proof, struct error *error) {
    struct run_table input, output;
    enum err err = run_table_read(&input, entry_of(proof, "input"), error);
    if (err == OK) err = run_table_read(&output, entry_of(proof, "output"), error);
    if (err != OK) return err_prefix(error, "%s", proof->path);
    if (input.kind == TABLE_PARQUET) return refuse_parquet("input", proof->input, error);
    if (output.kind == TABLE_PARQUET) return refuse_parquet("output", proof->output, error);
    return OK;
}

static enum err check_kind(const struct run_proof *proof, struct error *error) {
    char folder[PATH_MAX + 16];
    if (entry_of(proof, "batch"))
        return err_set(error, ERR_INVALID,
                       "%s is of a server's batch, which the server has as well: `quern erase "
                       "BATCH_ID` erases there; then fetch the files and the salts again",
                       proof->path);
    if (!proof->wants_salts)
        return err_set(error, ERR_INVALID,
                       "%s has the sums of whole files (version 1), which would tell an erased "
                       "line, so no line is erased; a run of this quern has sums over lines",
                       proof->path);
    if (!proof->has_salts)
        return err_set(error, ERR_INVALID, "%s is missing, so the run cannot be checked",
                       proof->salts_path);
    snprintf(folder, sizeof folder, "%s.quern", proof->output);
    if (access(folder, F_OK) == 0)
        return err_set(error, ERR_INVALID,
                       "%s has the text as well: it is of a run that has not ended; end it by the "
                       "same `quern run`, or remove the folder",
                       folder);
    return check_tables(proof, error);
}

static enum err check_reason(const char *reason, struct error *error) {
    if (strlen(reason) > ERASURE_REASON_BYTES_MAX || !utf8_is_valid(str_from(reason)))
        return err_set(error, ERR_INVALID, "--reason: it is no text of at most %d bytes",
                       ERASURE_REASON_BYTES_MAX);
    return OK;
}

static enum err check_all(struct run_proof *proofs, size_t count,
                          const struct erasure_options *options, struct error *error) {
    enum err err = check_reason(options->reason, error);
    for (size_t i = 0; i < count && err == OK; i++) {
        err = check_kind(&proofs[i], error);
        if (err == OK) err = run_proof_check_signer(&proofs[i], options->trusted, error);
    }
    return err == OK ? run_neighbours_check(proofs, count, error) : err;
}

/* --- the new files --- */

/* Adds a file of a run to the list, unless another run has it as well. An erasure of a file that
 * was changed would end the proof of it. */
static enum err begin_file(struct erasing *erasing, struct erasing_run *run, const char *what,
                           const char *path, struct error *error) {
    char why[ERROR_TEXT_BYTES];
    if (erasure_list_find(&erasing->list, path) == SIZE_MAX) {
        enum err err = erasure_list_add(&erasing->list, path, error);
        if (err != OK) return err;
    }
    enum run_file_state state = run_check_file(run->proof, what, path, erasing->options->stop, why);
    if (erasing->options->stop && *erasing->options->stop)
        return err_set(error, ERR_CANCELLED, "stopped; nothing was erased");
    if (state == RUN_FILE_GOOD) return OK;
    return err_set(error, ERR_CORRUPT, "%s of the run, %s: %.300s; nothing was erased", what, path,
                   why);
}

static bool are_same_lines(const struct erased_file *a, const struct erased_file *b) {
    for (size_t i = 0; i < a->count && a->count == b->count; i++)
        if (a->lines[i].line != b->lines[i].line) return false;
    return a->count == b->count;
}

/* Writes the copy of a file, which has begun, for a run's salts: a file of two runs is written for
 * each of them, and is the same. */
static enum err write_file(struct erasing *erasing, struct erasing_run *run, const char *what,
                           const char *path, const struct erased_choice *choice,
                           const struct erased_file **ret_file, struct error *error) {
    struct erased_file file;
    struct run_salts_file *salts = run_salts_find(&run->proof->salts, what);
    size_t index = erasure_list_find(&erasing->list, path);
    if (index == SIZE_MAX) return err_set(error, ERR_CONFLICT, "%s has gone", path);
    struct erased_file *kept = &erasing->made[index];
    enum err err = erased_file_write(&file, erasing->list.files[index].path, choice, salts, error);
    if (err != OK) return err;
    if (erasing->is_made[index] && !are_same_lines(kept, &file)) {
        erased_file_release(&file);
        return err_set(error, ERR_INVALID,
                       "%s has other lines of these ids for one run than for another, so they are "
                       "not erased together",
                       path);
    }
    run_salts_erase(salts, file.lines, file.count);
    json_object_set_new(run->files, what, run_salts_lines_json(file.lines, file.count));
    if (!erasing->is_made[index]) erasing->is->lines += file.count;
    erasing->is_made[index] = true;
    erased_file_release(kept);
    *kept = file;
    *ret_file = kept;
    return OK;
}

/* The input: its rows by their ids, or its lines by their custom_id. */
static enum err erase_input(struct erasing *erasing, struct erasing_run *run, struct error *error) {
    const char *path = run->proof->input;
    const struct erased_file *file;
    const json_t *lines = json_object_get(entry_of(run->proof, "requests"), "lines");
    const uint64_t ran =
        requests_are_input(run->proof) ? UINT64_MAX : (uint64_t)json_integer_value(lines);
    const struct erased_rows_wish wish = {.table = &run->table,
                                          .ids = erasing->options->ids,
                                          .gone = &run->gone,
                                          .stop = erasing->options->stop};
    struct erased_choice choice = {.ids = erasing->options->ids, .notes = true};
    enum err err = begin_file(erasing, run, "input", path, error);
    if (err == OK && run->table.kind != TABLE_NONE) {
        err = erased_rows_find(&run->rows, path, &wish, error);
        choice.rows = &run->rows;
    }
    if (err == OK) err = write_file(erasing, run, "input", path, &choice, &file, error);
    if (err != OK) return err;
    run->requests = choice.rows ? run->rows.count : file->count;
    if (choice.rows) run->with_result = row_numbers_up_to(&run->rows.numbers, ran);
    for (size_t i = 0; i < file->count && !choice.rows; i++)
        run->with_result += file->lines[i].line <= ran;
    return OK;
}

/* An output that is a table: the rows with the numbers of those of the input. */
static enum err erase_rows(struct erasing *erasing, struct erasing_run *run,
                           const struct run_table *table, struct error *error) {
    const char *path = run->proof->output;
    const struct erased_file *file;
    const json_t *results = entry_of(run->proof, "results");
    const uint64_t all = (uint64_t)json_integer_value(json_object_get(results, "completed")) +
                         (uint64_t)json_integer_value(json_object_get(results, "failed"));
    const struct erased_rows_wish wish = {.table = table,
                                          .numbers = &run->rows.numbers,
                                          .gone = &run->gone,
                                          .stop = erasing->options->stop};
    struct erased_rows rows;
    enum err err = erased_rows_find(&rows, path, &wish, error);
    if (err != OK) return err;
    const size_t before = row_numbers_up_to(&run->gone, all);
    if (rows.rows + before != all || rows.count != row_numbers_up_to(&run->rows.numbers, all))
        err = err_set(error, ERR_CORRUPT,
                      "%s has %" PRIu64 " rows instead of %" PRIu64 "; nothing was erased", path,
                      rows.rows, all - before);
    else
        err = write_file(erasing, run, "output", path, &(struct erased_choice){.rows = &rows},
                         &file, error);
    erased_rows_release(&rows);
    return err;
}

static enum err erase_output(struct erasing *erasing, struct erasing_run *run,
                             const struct run_table *table, struct error *error) {
    const char *path = run->proof->output;
    const struct erased_file *file;
    const struct erased_choice choice = {.ids = erasing->options->ids};
    enum err err = begin_file(erasing, run, "output", path, error);
    if (err == OK && table->kind != TABLE_NONE) return erase_rows(erasing, run, table, error);
    if (err == OK) err = write_file(erasing, run, "output", path, &choice, &file, error);
    if (err != OK || file->count == run->with_result) return err;
    return err_set(error, ERR_CORRUPT,
                   "%" PRIu64 " requests of these ids ran, and %s has %zu results; nothing was "
                   "erased",
                   run->with_result, path, file->count);
}

/* The requests of a table are no file of the run. One that `quern table` has made again loses its
 * lines; without one nobody can say which leaf was theirs, so all salts of the requests go. */
static enum err erase_requests(struct erasing *erasing, struct erasing_run *run,
                               struct error *error) {
    const char *path = erasing->options->requests;
    const struct erased_file *file;
    const struct erased_choice choice = {.ids = erasing->options->ids};
    struct run_salts_file *salts = run_salts_find(&run->proof->salts, "requests");
    if (path && (requests_are_input(run->proof) || !salts))
        return err_set(error, ERR_INVALID,
                       "--requests %s: the requests of this run are its input already", path);
    if (!path && salts) line_salts_release(&salts->salts);
    if (!path) return OK;
    enum err err = begin_file(erasing, run, "requests", path, error);
    return err == OK ? write_file(erasing, run, "requests", path, &choice, &file, error) : err;
}

static enum err erase_rest(struct erasing *erasing, struct erasing_run *run, struct error *error) {
    const struct erased_file *file;
    const struct erased_choice choice = {.ids = erasing->options->ids};
    const char *path = run->proof->rest;
    if (!*path) return OK;
    enum err err = begin_file(erasing, run, "rest", path, error);
    return err == OK ? write_file(erasing, run, "rest", path, &choice, &file, error) : err;
}

static enum err erase_other(struct erasing *erasing, const char *path, struct error *error) {
    const struct erased_choice choice = {.ids = erasing->options->ids};
    const char *slash = strrchr(path, '/');
    if (erasure_list_find(&erasing->list, path) != SIZE_MAX)
        return err_set(error, ERR_INVALID, "--judgements %s: it is a file of the run", path);
    enum err err = erasure_list_add(&erasing->list, path, error);
    if (err != OK) return err;
    struct erased_file *file = &erasing->made[erasing->list.count - 1];
    err = erased_file_write(file, erasing->list.files[erasing->list.count - 1].path, &choice, NULL,
                            error);
    if (err != OK) return err;
    json_array_append_new(erasing->others,
                          json_pack("{s:s,s:I}", "name", printable(slash ? slash + 1 : path).text,
                                    "lines", (json_int_t)file->count));
    erasing->is->lines += file->count;
    return OK;
}

/* The new salts of a run with the record, next to the old ones. */
static enum err write_salts(struct erasing *erasing, struct erasing_run *run, struct error *error) {
    char made[PATH_MAX];
    struct buf text;
    struct stat status;
    struct run_salts *salts = &run->proof->salts;
    json_t *record =
        json_pack("{s:I,s:s,s:I,s:O,s:O}", "erased_at", (json_int_t)clock_unix_s(), "reason",
                  erasing->options->reason, "requests", (json_int_t)run->requests, "files",
                  run->files, "others", erasing->others);
    if (run->table.kind != TABLE_NONE)
        json_object_set_new(record, "rows", row_numbers_json(&run->rows.numbers));
    json_array_append_new(salts->erasures, record);
    enum err err = erasure_list_add(&erasing->list, run->proof->salts_path, error);
    if (err != OK) return err;
    const char *path = erasing->list.files[erasing->list.count - 1].path;
    if (snprintf(made, sizeof made, ERASED_FILE_NAME, path) >= (int)sizeof made ||
        stat(path, &status) != 0)
        return err_set(error, ERR_INVALID, "the name %s is too long", path);
    buf_init(&text, MANIFEST_BYTES_MAX);
    run_salts_write(&text, salts, erasing->options->key);
    if (text.overflowed)
        err = err_set(error, ERR_LIMIT,
                      "the record of so many erased lines is over %zu bytes; remove the files of "
                      "the run as a whole",
                      MANIFEST_BYTES_MAX);
    else
        err = os_write_file(made, status.st_mode & 0777, text.at, text.bytes, error);
    buf_release(&text);
    return err;
}

/* --- one run, and all --- */

static enum err make_run(struct erasing *erasing, struct erasing_run *run, struct error *error) {
    struct run_table output;
    const json_t *erasures = run->proof->salts.erasures;
    enum err err = row_numbers_read(&run->gone, erasures, error);
    if (err != OK) return err_prefix(error, "%s", run->proof->salts_path);
    err = run_table_read(&run->table, entry_of(run->proof, "input"), error);
    if (err == OK) err = run_table_read(&output, entry_of(run->proof, "output"), error);
    /* The rows of the output have the numbers of the requests, which are those of the lines. */
    if (err == OK && run->table.kind == TABLE_NONE && output.kind != TABLE_NONE)
        run->table = (struct run_table){.kind = TABLE_JSONL, .id = "custom_id"};
    if (err == OK) err = erase_input(erasing, run, error);
    if (err == OK) err = erase_output(erasing, run, &output, error);
    if (err == OK) err = erase_rest(erasing, run, error);
    if (err == OK) err = erase_requests(erasing, run, error);
    erasing->is->requests += run->requests;
    return err;
}

static enum err make_all(struct erasing *erasing, struct erasing_run *runs, size_t count,
                         struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++) err = make_run(erasing, &runs[i], error);
    if (err == OK)
        err = line_ids_check_found(erasing->options->ids,
                                   count > 1 ? "any input" : runs[0].proof->input, error);
    for (size_t i = 0; i < erasing->options->other_count && err == OK; i++)
        err = erase_other(erasing, erasing->options->others[i], error);
    for (size_t i = 0; i < count && err == OK; i++) err = write_salts(erasing, &runs[i], error);
    return err;
}

/* Commits the new files next to the manifest of the first run. */
static enum err commit(struct erasing *erasing, struct run_proof *proofs, size_t count,
                       struct error *error) {
    char path[PATH_MAX], note[PATH_MAX];
    bool has = run_proof_erasing_path(&proofs[0], path);
    for (size_t i = 1; i < count && has; i++) {
        has = run_proof_erasing_path(&proofs[i], note);
        if (has) erasure_list_add_run(&erasing->list, note);
    }
    if (has) return erasure_list_commit(&erasing->list, path, error);
    erasure_list_drop(&erasing->list);
    return err_set(error, ERR_INVALID, "the name of the run is too long");
}

enum err erasure_run(struct run_proof *proofs, size_t count, const struct erasure_options *options,
                     struct erasure *ret_erasure, struct error *error) {
    struct erasing erasing = {.options = options, .is = ret_erasure};
    struct erasing_run runs[ERASURE_RUNS_MAX] = {{.proof = NULL}};
    *ret_erasure = (struct erasure){.requests = 0};
    enum err err = check_all(proofs, count, options, error);
    if (err != OK) return err;
    erasing.others = json_array();
    for (size_t i = 0; i < count; i++)
        runs[i] = (struct erasing_run){.proof = &proofs[i], .files = json_object()};
    err = make_all(&erasing, runs, count, error);
    if (err == OK)
        err = commit(&erasing, proofs, count, error);
    else
        erasure_list_drop(&erasing.list);
    for (size_t i = 0; i < count; i++) {
        json_decref(runs[i].files);
        row_numbers_release(&runs[i].gone);
        erased_rows_release(&runs[i].rows);
    }
    for (size_t i = 0; i < erasing.list.count; i++) erased_file_release(&erasing.made[i]);
    erasure_list_release(&erasing.list);
    json_decref(erasing.others);
    return err;
}
