/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/decision_log.h"

#include "batch/jsonl_file.h"
#include "dossier/line_ids.h"
#include "dossier/log_parts.h"
#include "replay/run_check.h"

#include <inttypes.h>
#include <stdio.h>

#define JUDGEMENTS_MAX 1000

/* One log on its way. */
struct logging {
    struct run_proof *proof;
    const struct decision_log_options *options;
    struct line_ids ids;
    json_t *request, *result, *judgements;
    struct buf result_text;
    bool is_proven;
};

/* Takes the lines of a file that have the id, at most `max`. */
static enum err take_lines(struct logging *logging, const char *path, size_t max, json_t *into,
                           struct buf *text, struct error *error) {
    struct jsonl_file file;
    struct str line;
    json_t *value;
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && json_array_size(into) < max && jsonl_file_next(&file, &line)) {
        if (!line_ids_have(&logging->ids, line, false)) continue;
        err = json_read(&value, line, error);
        if (err != OK)
            err = err_prefix(error, "%s, line %" PRIu64, path, file.number);
        else
            json_array_append_new(into, value);
        if (err == OK && text) buf_add_str(text, line);
    }
    return jsonl_file_end(&file, path, err, error);
}

/* The one line of a file that has the id; NULL: it has none. */
static enum err take_one(struct logging *logging, const char *path, json_t **ret_line,
                         struct buf *text, struct error *error) {
    json_t *list = json_array();
    enum err err = take_lines(logging, path, 1, list, text, error);
    *ret_line = err == OK ? json_incref(json_array_get(list, 0)) : NULL;
    json_decref(list);
    return err;
}

static enum err say_missing(const struct logging *logging, const char *path, struct error *error) {
    const json_t *erasures = logging->proof->has_salts ? logging->proof->salts.erasures : NULL;
    return err_set(error, ERR_NOT_FOUND, "--custom-id %.200s: no line of %s has it%s",
                   logging->options->custom_id, path,
                   json_array_size(erasures) > 0
                       ? "; lines of this run were erased, and nobody knows their ids any more"
                       : "; of a run over a table `quern table` makes the requests, for --input");
}

static enum err take_all(struct logging *logging, struct error *error) {
    const struct run_proof *proof = logging->proof;
    const char *judgements = logging->options->judgements;
    enum err err =
        line_ids_add(&logging->ids, str_from(logging->options->custom_id), "--custom-id", error);
    if (err == OK) err = take_one(logging, proof->input, &logging->request, NULL, error);
    if (err == OK && !logging->request) return say_missing(logging, proof->input, error);
    if (err == OK && *proof->output)
        err = take_one(logging, proof->output, &logging->result, &logging->result_text, error);
    if (err == OK && !logging->result && *proof->errors)
        err = take_one(logging, proof->errors, &logging->result, &logging->result_text, error);
    if (err == OK && !logging->result) return say_missing(logging, proof->output, error);
    if (err == OK && judgements)
        err = take_lines(logging, judgements, JUDGEMENTS_MAX, logging->judgements, NULL, error);
    return err;
}

/* --- whether it is proven --- */

static void add_file(struct logging *logging, json_t *section, const char *label, const char *what,
                     const char *path) {
    char why[ERROR_TEXT_BYTES], text[PATH_MAX + ERROR_TEXT_BYTES + 64];
    enum run_file_state state =
        run_check_file(logging->proof, what, path, logging->options->stop, why);
    bool is_good = state == RUN_FILE_GOOD;
    logging->is_proven = logging->is_proven && is_good;
    snprintf(text, sizeof text, "%s%s%s", path,
             is_good ? " is, byte by byte, the file of the run" : ": ", is_good ? "" : why);
    log_add(section, label, text);
}

static void add_erasures(const struct logging *logging, json_t *section) {
    char day[LOG_DAY_BYTES], text[256];
    const json_t *erasure,
        *list = logging->proof->has_salts ? logging->proof->salts.erasures : NULL;
    size_t i;
    json_array_foreach(list, i, erasure) {
        log_day(json_object_get(erasure, "erased_at"), day);
        snprintf(text, sizeof text, "%lld of other persons, on %s",
                 (long long)json_integer_value(json_object_get(erasure, "requests")), day);
        log_add(section, "Requests that were erased since", text);
    }
}

static json_t *proof_section(struct logging *logging) {
    char public[SSH_PUBLIC_TEXT_BYTES] = "", day[LOG_DAY_BYTES];
    struct run_proof *proof = logging->proof;
    const char *fault = logging->options->signer_fault;
    json_t *section = log_section("Whether this is what the run made");
    logging->is_proven = !*fault;
    add_file(logging, section, "File of the requests", "requests", proof->input);
    if (*proof->output) add_file(logging, section, "File of the results", "output", proof->output);
    if (*proof->errors)
        add_file(logging, section, "File of failed requests", "errors", proof->errors);
    add_erasures(logging, section);
    log_day(json_object_get(proof->manifest.content, "created_at"), day);
    log_add(section, "Signed list of all files (manifest)", proof->path);
    log_add(section, "Date of the manifest", day);
    if (proof->manifest.is_signed) ssh_public_write(proof->manifest.public, public);
    log_add(section, "Signed with the key", public);
    log_add(section, "The signature does not count, because", fault);
    log_add(section, "In short",
            logging->is_proven
                ? "verified: question and answer above are those of the run"
                : "NOT verified: see above; question and answer may not be those of the run");
    return section;
}

static json_t *log_of(struct logging *logging) {
    const json_t *content = logging->proof->manifest.content;
    json_t *computed_by = json_object_get(content, "computed_by");
    json_t *sections = json_array();
    json_array_append_new(sections, log_asked(logging->request));
    json_array_append_new(sections, log_computed(logging->request, logging->result, computed_by,
                                                 json_object_get(content, "created_at")));
    json_array_append_new(sections, log_answered(buf_str(&logging->result_text), logging->result));
    json_array_append_new(sections, log_judged(logging->judgements));
    json_array_append_new(sections, proof_section(logging));
    return json_pack("{s:s,s:O,s:b,s:o,s:O,s:O,s:O,s:O*}", "object", "quern.decision_log",
                     "custom_id", json_object_get(logging->request, "custom_id"), "is_proven",
                     logging->is_proven, "sections", sections, "request", logging->request,
                     "result", logging->result, "judgements", logging->judgements, "computed_by",
                     computed_by);
}

enum err decision_log_make(struct run_proof *proof, const struct decision_log_options *options,
                           json_t **ret_log, struct error *error) {
    struct logging logging = {.proof = proof, .options = options, .judgements = json_array()};
    line_ids_init(&logging.ids);
    buf_init(&logging.result_text, BUF_UNLIMITED);
    enum err err = take_all(&logging, error);
    if (err == OK) *ret_log = log_of(&logging);
    json_decref(logging.request);
    json_decref(logging.result);
    json_decref(logging.judgements);
    line_ids_release(&logging.ids);
    buf_release(&logging.result_text);
    return err;
}
