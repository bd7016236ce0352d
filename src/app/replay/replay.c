/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

#include "base/os.h"
#include "batch/jsonl_file.h"
#include "batch/request_key.h"
#include "compare/result_line.h"
#include "evaluate/requests.h"
#include "replay/run_check.h"
#include "tune/run_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGUMENTS_MAX 400
#define ID_BYTES_MAX ((size_t)64 << 10)

/* One replay on its way. */
struct replaying {
    struct run_proof *proof;
    const struct replay_options *options;
    struct replay *is;
    json_t *record; /* what computed the run: the last one, of several */
    json_t *now;    /* what computes now */
    json_t *wanted; /* {custom_id: true if the answer is determined} of the lines */
    json_t *before; /* {custom_id: text of the result} */
    json_t *after;
    char requests[PATH_MAX + 32], results[PATH_MAX + 32], manifest[PATH_MAX + 32];
    const char *arguments[ARGUMENTS_MAX + 1]; /* borrowed, or in `texts` */
    size_t argument_count;
    json_t *texts; /* owner of arguments that were put together */
};

static void reason(struct replaying *replaying, const char *format, ...) PRINTF_LIKE(2, 3);
static void reason(struct replaying *replaying, const char *format, ...) {
    struct replay *is = replaying->is;
    va_list arguments;
    if (is->reason_count == REPLAY_REASONS_MAX) return;
    va_start(arguments, format);
    vsnprintf(is->reasons[is->reason_count++], ERROR_TEXT_BYTES, format, arguments);
    va_end(arguments);
}

/* --- the lines --- */

typedef enum err (*line_fn)(struct replaying *replaying, struct str text, json_t *into,
                            struct error *error);

static enum err each_line(struct replaying *replaying, const char *path, line_fn take, json_t *into,
                          struct error *error) {
    struct jsonl_file file;
    struct str line;
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        err = take(replaying, line, into, error);
        if (err != OK) err = err_prefix(error, "%s, line %llu", path, (long long)file.lines.number);
    }
    return jsonl_file_end(&file, path, err, error);
}

static enum err take_request(struct replaying *replaying, struct str text, json_t *into,
                             struct error *error) {
    json_t *whole;
    (void)replaying;
    enum err err = json_read(&whole, text, error);
    if (err != OK) return err;
    struct str id = json_member_str(whole, "custom_id");
    json_object_setn_new_nocheck(into, id.at ? id.at : "", id.bytes,
                                 json_boolean(batch_request_is_determined(text)));
    json_decref(whole);
    return OK;
}

/* Keeps the result of a line that is compared. */
static enum err take_result(struct replaying *replaying, struct str text, json_t *into,
                            struct error *error) {
    struct result_line line;
    struct buf id;
    buf_init(&id, ID_BYTES_MAX);
    enum err err = result_line_read(&line, text, false, &id, error);
    if (err == OK) {
        if (json_object_getn(replaying->wanted, id.at ? id.at : "", id.bytes))
            json_object_setn_new_nocheck(into, id.at ? id.at : "", id.bytes,
                                         json_stringn_nocheck(text.at, text.bytes));
        result_line_release(&line);
    }
    buf_release(&id);
    return err;
}

/* --- the command --- */

static void add(struct replaying *replaying, const char *argument) {
    if (replaying->argument_count < ARGUMENTS_MAX)
        replaying->arguments[replaying->argument_count++] = argument;
}

/* Adds "--option one=other". */
static void add_pair(struct replaying *replaying, const char *option, const char *one,
                     const char *other) {
    json_t *text = json_sprintf("%s=%s", one, other);
    json_array_append_new(replaying->texts, text);
    add(replaying, option);
    add(replaying, json_string_value(text));
}

/* Where the user says that the model lies, or else where it was. */
static const char *path_of(const struct replaying *replaying, const json_t *model,
                           const char *name) {
    size_t bytes = strlen(name);
    for (size_t i = 0; i < replaying->options->model_count; i++) {
        const char *text = replaying->options->models[i];
        if (strncmp(text, name, bytes) == 0 && text[bytes] == '=') return text + bytes + 1;
    }
    return run_proof_text(model, "path");
}

static void add_model(struct replaying *replaying, const json_t *model) {
    const json_t *names = json_object_get(model, "names");
    const char *first = json_string_value(json_array_get(names, 0));
    if (!first) return;
    add_pair(replaying, "--model", first, path_of(replaying, model, first));
    for (size_t i = 1; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name) add_pair(replaying, "--alias", name, first);
    }
}

/* Only options that a run notes are taken from a manifest: none of them names code to load. */
static enum err add_settings(struct replaying *replaying, struct error *error) {
    const json_t *settings = json_object_get(replaying->record, "settings");
    for (size_t i = 0; i < json_array_size(settings); i++) {
        const char *option = json_string_value(json_array_get(settings, i));
        enum replay_setting kind =
            option ? replaying->options->setting(option) : REPLAY_SETTING_NONE;
        const char *value = kind == REPLAY_SETTING_VALUE
                                ? json_string_value(json_array_get(settings, ++i))
                                : option;
        if (kind == REPLAY_SETTING_NONE || !value)
            return err_set(error, ERR_INVALID, "%s has a setting that no run notes: %.80s",
                           replaying->proof->path, option ? option : "no text");
        add(replaying, option);
        if (kind == REPLAY_SETTING_VALUE) add(replaying, value);
    }
    return OK;
}

static enum err fill_arguments(struct replaying *replaying, struct error *error) {
    const char *const fixed[] = {"quern",
                                 "run",
                                 "-i",
                                 replaying->requests,
                                 "-o",
                                 replaying->results,
                                 "--manifest",
                                 replaying->manifest,
                                 "--signing-key",
                                 "",
                                 "--config",
                                 "/dev/null",
                                 "--json",
                                 "-q",
                                 "--end-with-parent",
                                 "--result-cache-bytes",
                                 "0"};
    const json_t *model, *name;
    const char *alias;
    size_t i;
    for (i = 0; i < sizeof fixed / sizeof *fixed; i++) add(replaying, fixed[i]);
    json_array_foreach(json_object_get(replaying->record, "models"), i, model)
        add_model(replaying, model);
    json_object_foreach(json_object_get(replaying->record, "aliases"), alias, name) {
        if (json_is_string(name)) add_pair(replaying, "--alias", alias, json_string_value(name));
    }
    enum err err = add_settings(replaying, error);
    if (err == OK && replaying->argument_count == ARGUMENTS_MAX)
        err = err_set(error, ERR_LIMIT, "the run has too many settings");
    return err;
}

/* --- why answers may differ --- */

/* Whether a member differs in what computed the run and in what computes now. */
static bool differ(const json_t *then, const json_t *now, const char *name) {
    const json_t *one = json_object_get(then, name), *other = json_object_get(now, name);
    return one && other ? !json_equal(one, other) : one != other;
}

static void explain_program(struct replaying *replaying) {
    const json_t *then = json_object_get(replaying->record, "quern"),
                 *now = json_object_get(replaying->now, "quern");
    if (!differ(replaying->record, replaying->now, "quern")) return;
    reason(replaying, "another build: quern %.40s (%.12s) instead of %.40s (%.12s)",
           run_proof_text(now, "version"), run_proof_text(now, "sha256"),
           run_proof_text(then, "version"), run_proof_text(then, "sha256"));
}

static const json_t *find_model(const json_t *record, const json_t *names) {
    const json_t *model;
    size_t i;
    json_array_foreach(json_object_get(record, "models"), i,
                       model) if (json_equal(json_array_get(json_object_get(model, "names"), 0),
                                             json_array_get(names, 0))) return model;
    return NULL;
}

static const json_t *find_file(const json_t *model, const json_t *name) {
    const json_t *file;
    size_t i;
    json_array_foreach(json_object_get(model, "files"), i,
                       file) if (json_equal(json_object_get(file, "name"), name)) return file;
    return NULL;
}

static void explain_model(struct replaying *replaying, const json_t *then) {
    const json_t *names = json_object_get(then, "names"), *file;
    const json_t *now = find_model(replaying->now, names);
    const char *name = json_string_value(json_array_get(names, 0));
    size_t i;
    json_array_foreach(json_object_get(then, "files"), i, file) {
        const json_t *other = find_file(now, json_object_get(file, "name"));
        const char *sum = run_proof_text(file, "sha256");
        if (*sum && strcmp(sum, run_proof_text(other, "sha256")) == 0) continue;
        reason(replaying, "another model: %.80s, file %.120s, has SHA-256 %.12s instead of %.12s",
               name ? name : "", run_proof_text(file, "name"),
               other ? run_proof_text(other, "sha256") : "(none)", *sum ? sum : "(not known)");
    }
    if (differ(then, now, "chat_template_sha256"))
        reason(replaying, "another chat template of %.80s", name ? name : "");
}

static void explain(struct replaying *replaying) {
    const json_t *content = replaying->proof->manifest.content, *model;
    size_t i;
    explain_program(replaying);
    if (differ(replaying->record, replaying->now, "instructions"))
        reason(replaying, "another instruction set: %.40s instead of %.40s",
               run_proof_text(replaying->now, "instructions"),
               run_proof_text(replaying->record, "instructions"));
    if (differ(replaying->record, replaying->now, "gpus"))
        reason(replaying, "another device: other GPUs, or the CPU instead of a GPU");
    else if (json_array_size(json_object_get(replaying->now, "gpus")) > 0)
        reason(replaying, "computed on a GPU, where equal answers are promised for no line alone");
    json_array_foreach(json_object_get(replaying->record, "models"), i, model)
        explain_model(replaying, model);
    if (json_array_size(json_object_get(content, "computed_by")) > 1)
        reason(replaying, "the run was interrupted, and continued with another program, machine or "
                          "settings; the last of them was used here");
    if (json_array_size(json_object_get(replaying->record, "upstreams")) > 0)
        reason(replaying, "answers may be those of another server, which is not asked again");
}

static enum err read_now(struct replaying *replaying, struct error *error) {
    char *text;
    size_t bytes;
    struct manifest manifest;
    enum err err = os_read_file(replaying->manifest, MANIFEST_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = manifest_read(&manifest, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err;
    replaying->now =
        json_incref(json_array_get(json_object_get(manifest.content, "computed_by"), 0));
    manifest_release(&manifest);
    return OK;
}

/* --- the comparison --- */

static void count(struct replay *is, const struct replay_line *line) {
    is->lines++;
    is->equal += line->match == ANSWER_BIT_EQUAL;
    is->same_meaning += line->match == ANSWER_SAME_MEANING;
    is->different += line->match == ANSWER_DIFFERS;
    is->unexplained +=
        line->match != ANSWER_BIT_EQUAL && !line->is_sampled && is->reason_count == 0;
}

static enum err compare(struct replaying *replaying, struct error *error) {
    const char *id;
    const json_t *is_determined;
    size_t id_bytes;
    enum err err = OK;
    json_object_keylen_foreach(replaying->wanted, id, id_bytes, is_determined) {
        const json_t *before = json_object_getn(replaying->before, id, id_bytes),
                     *after = json_object_getn(replaying->after, id, id_bytes);
        struct replay_line line = {id, ANSWER_DIFFERS, json_is_false(is_determined)};
        if (before && after)
            err = answer_match(json_str(before), json_str(after), &line.match, error);
        if (err != OK) return err_prefix(error, "%.100s", id);
        count(replaying->is, &line);
        replaying->options->line(replaying->options->context, &line);
    }
    return OK;
}

/* --- the whole --- */

/* Whether the two files are those of the run; the requests are the input, unless it is a table. */
static enum err check_files(const struct replaying *replaying, struct error *error) {
    char why[ERROR_TEXT_BYTES], unknown[ERROR_TEXT_BYTES];
    struct run_proof *proof = replaying->proof;
    if (run_check_file(proof, "output", proof->output, NULL, why) != RUN_FILE_GOOD)
        return err_set(error, ERR_CORRUPT, "%s: %.300s", proof->output, why);
    enum run_file_state state = run_check_file(proof, "requests", proof->input, NULL, unknown);
    if (state == RUN_FILE_GOOD) return OK;
    if (run_check_file(proof, "input", proof->input, NULL, why) == RUN_FILE_GOOD)
        return err_set(error, ERR_INVALID,
                       "%s is not the requests that ran but a table, or has more of them; make "
                       "them by `quern table %s --prompt … -o requests.jsonl` with the options of "
                       "the run, and give --input requests.jsonl",
                       proof->input, proof->input);
    return err_set(error, ERR_CORRUPT, "%s: %.300s", proof->input,
                   state == RUN_FILE_UNKNOWN ? unknown : why);
}

static enum err run_again(struct replaying *replaying, struct error *error) {
    char said[PATH_MAX + 32], errors[PATH_MAX + 32];
    uint64_t lines;
    const char *folder = replaying->options->folder;
    if (mkdir(folder, 0700) != 0)
        return err_from_errno(error, errno, "cannot make the folder %s", folder);
    snprintf(replaying->requests, sizeof replaying->requests, "%s/requests.jsonl", folder);
    snprintf(replaying->results, sizeof replaying->results, "%s/results.jsonl", folder);
    snprintf(replaying->manifest, sizeof replaying->manifest, "%s/manifest.json", folder);
    snprintf(said, sizeof said, "%s/said", folder);
    snprintf(errors, sizeof errors, "%s/errors", folder);
    enum err err = requests_write(replaying->proof->input, replaying->options->lines, NULL,
                                  replaying->requests, &lines, error);
    if (err == OK) err = fill_arguments(replaying, error);
    const struct run_process process = {.arguments = replaying->arguments,
                                        .said = said,
                                        .errors = errors,
                                        .stop = replaying->options->stop};
    if (err == OK) err = run_process(&process, error);
    return err == OK ? read_now(replaying, error) : err;
}

static enum err read_lines(struct replaying *replaying, struct error *error) {
    enum err err =
        each_line(replaying, replaying->requests, take_request, replaying->wanted, error);
    if (err == OK)
        err = each_line(replaying, replaying->results, take_result, replaying->after, error);
    if (err != OK) return err;
    err = each_line(replaying, replaying->proof->output, take_result, replaying->before, error);
    if (err == ERR_INVALID)
        err = err_set(error, ERR_INVALID,
                      "%s is no JSONL file of results; answers in a table are not computed again",
                      replaying->proof->output);
    return err;
}

static void remove_folder(const char *folder) {
    static const char *const names[] = {"requests.jsonl",      "results.jsonl", "manifest.json",
                                        "manifest.salts.json", "said",          "errors"};
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static void release(struct replaying *replaying) {
    json_decref(replaying->now);
    json_decref(replaying->wanted);
    json_decref(replaying->before);
    json_decref(replaying->after);
    json_decref(replaying->texts);
}

enum err replay_run(struct run_proof *proof, const struct replay_options *options,
                    struct replay *ret_replay, struct error *error) {
    const json_t *records = json_object_get(proof->manifest.content, "computed_by");
    struct replaying replaying = {
        .proof = proof,
        .options = options,
        .is = ret_replay,
        .record = json_array_get(records, json_array_size(records) - 1),
        .wanted = json_object(),
        .before = json_object(),
        .after = json_object(),
        .texts = json_array(),
    };
    *ret_replay = (struct replay){.lines = 0};
    enum err err = check_files(&replaying, error);
    if (err == OK && json_array_size(json_object_get(replaying.record, "models")) == 0)
        err = err_set(error, ERR_INVALID,
                      "%s names no model of this machine: the answers are those of other servers",
                      proof->path);
    if (err == OK) {
        err = run_again(&replaying, error);
        if (err == OK) err = read_lines(&replaying, error);
        if (err == OK) {
            explain(&replaying);
            err = compare(&replaying, error);
        }
        remove_folder(options->folder);
    }
    release(&replaying);
    return err;
}
