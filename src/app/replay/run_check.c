/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/run_check.h"

#include "base/os.h"
#include "proof/file_sum.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *const run_file_states[] = {"good", "differs", "missing", "unknown"};

/* A file against its sum as a whole. */
static enum run_file_state check_whole(const char *path, const json_t *entry,
                                       const volatile bool *stop, char ret_why[ERROR_TEXT_BYTES]) {
    struct file_facts facts;
    struct error error;
    char hex[DIGEST_HEX_BYTES];
    const char *wanted = run_proof_text(entry, "sha256");
    const json_t *bytes = json_object_get(entry, "bytes");
    *ret_why = '\0';
    if (file_facts_find(path, &facts, &error) != OK) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s", error.text);
        return RUN_FILE_MISSING;
    }
    if (!*wanted) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "the manifest has no sum of it");
        return RUN_FILE_UNKNOWN;
    }
    if (json_is_integer(bytes) && facts.bytes != (uint64_t)json_integer_value(bytes)) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "it has %" PRIu64 " bytes instead of %" PRId64,
                 facts.bytes, (int64_t)json_integer_value(bytes));
        return RUN_FILE_DIFFERS;
    }
    if (file_sum(path, hex, stop, &error) != OK) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s", error.text);
        return RUN_FILE_MISSING;
    }
    if (strcmp(hex, wanted) == 0) return RUN_FILE_GOOD;
    snprintf(ret_why, ERROR_TEXT_BYTES, "its SHA-256 is %s instead of %.64s", hex, wanted);
    return RUN_FILE_DIFFERS;
}

/* A file against its sum over lines. */
static enum run_file_state check_lines(struct run_salts_file *salts, const char *path,
                                       const json_t *entry, const volatile bool *stop,
                                       char ret_why[ERROR_TEXT_BYTES]) {
    struct line_sum sum;
    struct error error;
    int fd;
    const json_t *lines = json_object_get(entry, "lines");
    const char *wanted = run_proof_text(entry, "lines_sha256");
    if (os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, &error) != OK) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s", error.text);
        return RUN_FILE_MISSING;
    }
    enum err err =
        line_sum_file(fd, &salts->salts, salts->erased, salts->erased_count, stop, &sum, &error);
    os_close(fd);
    if (err != OK)
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s", error.text);
    else if (sum.lines != (uint64_t)json_integer_value(lines) || strcmp(sum.hex, wanted) != 0)
        snprintf(ret_why, ERROR_TEXT_BYTES,
                 "the SHA-256 over its %" PRIu64 " lines is %s instead of %.64s over %" PRId64,
                 sum.lines, sum.hex, wanted, (int64_t)json_integer_value(lines));
    else
        return RUN_FILE_GOOD;
    return RUN_FILE_DIFFERS;
}

enum run_file_state run_check_file(struct run_proof *proof, const char *what, const char *path,
                                   const volatile bool *stop, char ret_why[ERROR_TEXT_BYTES]) {
    struct file_facts facts;
    struct error error;
    const json_t *entry = json_object_get(proof->manifest.content, what);
    if (!proof->wants_salts) return check_whole(path, entry, stop, ret_why);
    if (json_is_true(json_object_get(entry, "are_input")))
        return run_check_file(proof, "input", path, stop, ret_why);
    struct run_salts_file *salts =
        proof->has_salts && !proof->has_others_salts ? run_salts_find(&proof->salts, what) : NULL;
    *ret_why = '\0';
    if (file_facts_find(path, &facts, &error) != OK) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s", error.text);
        return RUN_FILE_MISSING;
    }
    if (!salts || !json_is_string(json_object_get(entry, "lines_sha256"))) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "the manifest has no sum of it%s",
                 salts ? "" : " that can be checked without its salts");
        return RUN_FILE_UNKNOWN;
    }
    if (salts->salts.count == 0) {
        snprintf(ret_why, ERROR_TEXT_BYTES, "%s",
                 strcmp(what, "requests") == 0
                     ? "an erasure without --requests took the salts of the requests"
                     : "the server deleted the file, and its salts with it");
        return RUN_FILE_UNKNOWN;
    }
    return check_lines(salts, path, entry, stop, ret_why);
}

/* One check: its options, and what it has found. */
struct check {
    struct run_proof *proof;
    const struct run_check_options *options;
    size_t wrong;
    bool is_stopped;
};

static bool is_stopped(struct check *check) {
    check->is_stopped = check->is_stopped || (check->options->stop && *check->options->stop);
    return check->is_stopped;
}

static void tell(struct check *check, const char *what, const char *path, enum run_file_state state,
                 const char *why) {
    struct run_file file = {what, path, state, why};
    check->wrong += state == RUN_FILE_DIFFERS || state == RUN_FILE_MISSING;
    check->options->file(check->options->context, &file);
}

static void check_one(struct check *check, const char *what, const char *path) {
    char why[ERROR_TEXT_BYTES];
    if (is_stopped(check)) return;
    enum run_file_state state = run_check_file(check->proof, what, path, check->options->stop, why);
    tell(check, what, path, state, why);
}

static void check_model(struct check *check, const json_t *model) {
    char path[PATH_MAX + 256], why[ERROR_TEXT_BYTES];
    struct stat status;
    const char *whole = run_proof_text(model, "path");
    const json_t *file;
    size_t i;
    const char *slash = strrchr(whole, '/');
    bool is_folder = stat(whole, &status) == 0 && S_ISDIR(status.st_mode);
    int folder = is_folder || !slash ? (int)strlen(whole) : (int)(slash - whole);
    json_array_foreach(json_object_get(model, "files"), i, file) {
        snprintf(path, sizeof path, "%.*s/%s", folder, whole, run_proof_text(file, "name"));
        if (is_stopped(check)) return;
        enum run_file_state state = check_whole(path, file, check->options->stop, why);
        tell(check, "model", path, state, why);
    }
}

enum err run_check(struct run_proof *proof, const struct run_check_options *options,
                   size_t *ret_wrong, struct error *error) {
    const json_t *content = proof->manifest.content, *record, *model;
    struct check check = {.proof = proof, .options = options};
    char erasing[PATH_MAX];
    size_t i, k;
    if (run_proof_has_erasing(proof, erasing))
        tell(&check, "erasing", erasing, RUN_FILE_DIFFERS,
             "an erasure was cut short; `quern erase` with this run ends it");
    if (proof->wants_salts && !proof->has_salts)
        tell(&check, "salts", proof->salts_path, RUN_FILE_MISSING,
             "without it the sums of the manifest cannot be checked");
    if (proof->has_others_salts)
        tell(&check, "salts", proof->salts_path, RUN_FILE_DIFFERS,
             "it belongs to another manifest");
    check_one(&check, "input", proof->input);
    if (*proof->output) check_one(&check, "output", proof->output);
    if (*proof->rest) check_one(&check, "rest", proof->rest);
    if (*proof->errors) check_one(&check, "errors", proof->errors);
    if (!options->skips_models)
        json_array_foreach(json_object_get(content, "computed_by"), i, record)
            json_array_foreach(json_object_get(record, "models"), k, model)
                check_model(&check, model);
    *ret_wrong = check.wrong;
    return check.is_stopped ? err_set(error, ERR_CANCELLED, "stopped") : OK;
}
