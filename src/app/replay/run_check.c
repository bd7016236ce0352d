/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/run_check.h"

#include "proof/file_sum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *const run_file_states[] = {"good", "differs", "missing", "unknown"};

enum run_file_state run_check_file(const char *path, const json_t *entry, const volatile bool *stop,
                                   char ret_why[ERROR_TEXT_BYTES]) {
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

/* One check: its options, and what it has found. */
struct check {
    const struct run_check_options *options;
    size_t wrong;
    bool is_stopped;
};

static void check_one(struct check *check, const char *what, const char *path,
                      const json_t *entry) {
    char why[ERROR_TEXT_BYTES];
    check->is_stopped = check->is_stopped || (check->options->stop && *check->options->stop);
    if (check->is_stopped) return;
    struct run_file file = {what, path, run_check_file(path, entry, check->options->stop, why),
                            why};
    check->wrong += file.state == RUN_FILE_DIFFERS || file.state == RUN_FILE_MISSING;
    check->options->file(check->options->context, &file);
}

static void check_model(struct check *check, const json_t *model) {
    char path[PATH_MAX + 256];
    struct stat status;
    const char *whole = run_proof_text(model, "path");
    const json_t *file;
    size_t i;
    const char *slash = strrchr(whole, '/');
    bool is_folder = stat(whole, &status) == 0 && S_ISDIR(status.st_mode);
    int folder = is_folder || !slash ? (int)strlen(whole) : (int)(slash - whole);
    json_array_foreach(json_object_get(model, "files"), i, file) {
        snprintf(path, sizeof path, "%.*s/%s", folder, whole, run_proof_text(file, "name"));
        check_one(check, "model", path, file);
    }
}

enum err run_check(const struct run_proof *proof, const struct run_check_options *options,
                   size_t *ret_wrong, struct error *error) {
    const json_t *content = proof->manifest.content, *record, *model;
    struct check check = {.options = options};
    size_t i, k;
    check_one(&check, "input", proof->input, json_object_get(content, "input"));
    if (*proof->output)
        check_one(&check, "output", proof->output, json_object_get(content, "output"));
    if (*proof->rest) check_one(&check, "rest", proof->rest, json_object_get(content, "rest"));
    if (*proof->errors)
        check_one(&check, "errors", proof->errors, json_object_get(content, "errors"));
    if (!options->skips_models)
        json_array_foreach(json_object_get(content, "computed_by"), i, record)
            json_array_foreach(json_object_get(record, "models"), k, model)
                check_model(&check, model);
    *ret_wrong = check.wrong;
    return check.is_stopped ? err_set(error, ERR_CANCELLED, "stopped") : OK;
}
