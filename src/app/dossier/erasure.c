/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/erasure.h"

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "dossier/erased_file.h"
#include "dossier/erasure_list.h"
#include "replay/run_check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One erasure on its way. */
struct erasing {
    struct run_proof *proof;
    const struct erasure_options *options;
    struct erasure *is;
    struct erasure_list list;
    json_t *files, *others; /* what the record has of them */
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
    *ret_was_one = run_proof_has_erasing(proof, path);
    return *ret_was_one ? erasure_list_end(path, error) : OK;
}

/* --- what is refused --- */

static enum err check_kind(const struct run_proof *proof, struct error *error) {
    char folder[PATH_MAX + 16];
    const json_t *content = proof->manifest.content;
    if (!proof->wants_salts && json_object_get(content, "batch"))
        return err_set(error, ERR_INVALID,
                       "%s is of a server's batch, of which no single line is erased; `quern rm` "
                       "deletes the batch",
                       proof->path);
    if (!proof->wants_salts)
        return err_set(error, ERR_INVALID,
                       "%s has the sums of whole files (version 1), which would tell an erased "
                       "line, so no line is erased; a run of this quern has sums over lines",
                       proof->path);
    if (!proof->has_salts)
        return err_set(error, ERR_INVALID, "%s is missing, so the run cannot be checked",
                       proof->salts_path);
    if (!json_is_true(json_object_get(json_object_get(content, "requests"), "are_input")))
        return err_set(error, ERR_INVALID,
                       "%s is of a run over a table, or over a part of its input (--limit); lines "
                       "are erased of runs over a whole JSONL file of requests alone",
                       proof->path);
    snprintf(folder, sizeof folder, "%s.quern", proof->output);
    if (access(folder, F_OK) == 0)
        return err_set(error, ERR_INVALID,
                       "%s has the text as well: it is of a run that has not ended; end it by the "
                       "same `quern run`, or remove the folder",
                       folder);
    return OK;
}

/* An erasure of a file that was changed would end the proof of it. */
static enum err check_file(struct erasing *erasing, const char *what, const char *path,
                           struct error *error) {
    char why[ERROR_TEXT_BYTES];
    enum run_file_state state =
        run_check_file(erasing->proof, what, path, erasing->options->stop, why);
    if (erasing->options->stop && *erasing->options->stop)
        return err_set(error, ERR_CANCELLED, "stopped; nothing was erased");
    if (state == RUN_FILE_GOOD) return OK;
    return err_set(error, ERR_CORRUPT, "%s of the run, %s: %.300s; nothing was erased", what, path,
                   why);
}

static enum err check_reason(const char *reason, struct error *error) {
    if (strlen(reason) > ERASURE_REASON_BYTES_MAX || !utf8_is_valid(str_from(reason)))
        return err_set(error, ERR_INVALID, "--reason: it is no text of at most %d bytes",
                       ERASURE_REASON_BYTES_MAX);
    return OK;
}

/* --- the new files --- */

static enum err erase_file(struct erasing *erasing, const char *what, const char *path,
                           uint64_t *ret_lines, struct error *error) {
    struct erased_file file;
    struct run_salts_file *salts = run_salts_find(&erasing->proof->salts, what);
    enum err err = erasure_list_add(&erasing->list, path, error);
    if (err == OK) err = check_file(erasing, what, path, error);
    if (err != OK) return err;
    err = erased_file_write(&file, erasing->list.paths[erasing->list.count - 1],
                            erasing->options->ids, salts, strcmp(what, "input") == 0, error);
    if (err != OK) return err;
    run_salts_erase(salts, file.lines, file.count);
    json_object_set_new(erasing->files, what, run_salts_lines_json(file.lines, file.count));
    *ret_lines = file.count;
    erasing->is->lines += file.count;
    erased_file_release(&file);
    return OK;
}

static enum err erase_other(struct erasing *erasing, const char *path, struct error *error) {
    struct erased_file file;
    const char *slash = strrchr(path, '/');
    enum err err = erasure_list_add(&erasing->list, path, error);
    if (err != OK) return err;
    err = erased_file_write(&file, erasing->list.paths[erasing->list.count - 1],
                            erasing->options->ids, NULL, false, error);
    if (err != OK) return err;
    json_array_append_new(erasing->others,
                          json_pack("{s:s,s:I}", "name", printable(slash ? slash + 1 : path).text,
                                    "lines", (json_int_t)file.count));
    erasing->is->lines += file.count;
    erased_file_release(&file);
    return OK;
}

/* The new salts with the record, next to the old ones. */
static enum err write_salts(struct erasing *erasing, struct error *error) {
    char made[PATH_MAX];
    struct buf text;
    struct stat status;
    struct run_salts *salts = &erasing->proof->salts;
    json_array_append_new(salts->erasures,
                          json_pack("{s:I,s:s,s:I,s:O,s:O}", "erased_at",
                                    (json_int_t)clock_unix_s(), "reason", erasing->options->reason,
                                    "requests", (json_int_t)erasing->is->requests, "files",
                                    erasing->files, "others", erasing->others));
    enum err err = erasure_list_add(&erasing->list, erasing->proof->salts_path, error);
    if (err != OK) return err;
    const char *path = erasing->list.paths[erasing->list.count - 1];
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

static enum err make_all(struct erasing *erasing, struct error *error) {
    uint64_t results = 0, rest = 0;
    const struct run_proof *proof = erasing->proof;
    enum err err = erase_file(erasing, "input", proof->input, &erasing->is->requests, error);
    if (err == OK) err = line_ids_check_found(erasing->options->ids, proof->input, error);
    if (err == OK) err = erase_file(erasing, "output", proof->output, &results, error);
    if (err == OK && *proof->rest) err = erase_file(erasing, "rest", proof->rest, &rest, error);
    if (err == OK && results != erasing->is->requests)
        err = err_set(error, ERR_CORRUPT,
                      "%s has %" PRIu64 " lines of these ids, and %s has %" PRIu64
                      "; nothing was erased",
                      proof->input, erasing->is->requests, proof->output, results);
    for (size_t i = 0; i < erasing->options->other_count && err == OK; i++)
        err = erase_other(erasing, erasing->options->others[i], error);
    return err == OK ? write_salts(erasing, error) : err;
}

enum err erasure_run(struct run_proof *proof, const struct erasure_options *options,
                     struct erasure *ret_erasure, struct error *error) {
    char path[PATH_MAX];
    struct erasing erasing = {.proof = proof,
                              .options = options,
                              .is = ret_erasure,
                              .files = json_object(),
                              .others = json_array()};
    *ret_erasure = (struct erasure){.requests = 0};
    enum err err = check_kind(proof, error);
    if (err == OK) err = run_proof_check_signer(proof, options->trusted, error);
    if (err == OK) err = check_reason(options->reason, error);
    if (err == OK && snprintf(path, sizeof path, RUN_PROOF_ERASING, proof->path) >= PATH_MAX)
        err = err_set(error, ERR_INVALID, "the name of the run is too long");
    if (err == OK) {
        err = make_all(&erasing, error);
        if (err == OK)
            err = erasure_list_commit(&erasing.list, path, error);
        else
            erasure_list_drop(&erasing.list);
    }
    json_decref(erasing.files);
    json_decref(erasing.others);
    return err;
}
