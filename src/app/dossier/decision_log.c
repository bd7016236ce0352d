/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/decision_log.h"

#include "batch/jsonl_file.h"
#include "dossier/erased_rows.h"
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
    struct row_numbers gone, number; /* rows that were erased; the one that is told */
    bool is_row;                     /* the request is a row of the table */
    bool has_result_row;             /* the result is a row of a table */
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
            err = err_prefix(error, "%s, line %" PRIu64, path, file.lines.number);
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
                       : "");
}

/* --- rows of tables --- */

/* The row that has the id, or the number that is known already; NULL: none. */
static enum err take_row(struct logging *logging, const char *path, const struct run_table *table,
                         bool by_number, json_t **ret_row, struct error *error) {
    struct erased_rows rows;
    const struct erased_rows_wish wish = {.table = table,
                                          .ids = &logging->ids,
                                          .numbers = by_number ? &logging->number : NULL,
                                          .gone = &logging->gone,
                                          .stop = logging->options->stop};
    enum err err = erased_rows_find(&rows, path, &wish, error);
    *ret_row = NULL;
    if (err != OK) return err;
    if (rows.count > 0) err = json_read(ret_row, buf_str(&rows.first), error);
    if (err == OK && rows.count > 0 && !by_number) {
        logging->number = rows.numbers;
        logging->number.count = 1;
        rows.numbers = (struct row_numbers){.list = NULL};
    }
    erased_rows_release(&rows);
    return err;
}

/* The request: a line of a file of requests, or the row that it was made of. */
static enum err take_request(struct logging *logging, const struct run_table *input,
                             const struct run_table *output, struct error *error) {
    char why[ERROR_TEXT_BYTES];
    const struct run_table requests = {.kind = TABLE_JSONL, .id = "custom_id"};
    struct run_proof *proof = logging->proof;
    json_t *row = NULL;
    logging->is_row =
        input->kind != TABLE_NONE &&
        run_check_file(proof, "input", proof->input, logging->options->stop, why) == RUN_FILE_GOOD;
    if (logging->is_row) {
        enum err err = take_row(logging, proof->input, input, false, &row, error);
        if (err == OK && row)
            logging->request =
                json_pack("{s:s,s:o}", "custom_id", logging->options->custom_id, "row", row);
        return err;
    }
    enum err err = take_one(logging, proof->input, &logging->request, NULL, error);
    if (err != OK || !logging->request || output->kind == TABLE_NONE) return err;
    err = take_row(logging, proof->input, &requests, false, &row, error);
    json_decref(row);
    return err;
}

static enum err take_result(struct logging *logging, const struct run_table *output,
                            struct error *error) {
    const char *path = logging->proof->output;
    logging->has_result_row = output->kind != TABLE_NONE;
    if (logging->has_result_row)
        return take_row(logging, path, output, true, &logging->result, error);
    return take_one(logging, path, &logging->result, &logging->result_text, error);
}

/* How the files of the run are read, and which rows have gone. */
static enum err read_tables(struct logging *logging, struct run_table *ret_input,
                            struct run_table *ret_output, struct error *error) {
    const struct run_proof *proof = logging->proof;
    const json_t *content = proof->manifest.content;
    enum err err = run_table_read(ret_input, json_object_get(content, "input"), error);
    if (err == OK) err = run_table_read(ret_output, json_object_get(content, "output"), error);
    if (err == OK && proof->has_salts)
        err = row_numbers_read(&logging->gone, proof->salts.erasures, error);
    return err == OK ? OK : err_prefix(error, "%s", proof->path);
}

static enum err take_all(struct logging *logging, struct error *error) {
    struct run_table input, output;
    const struct run_proof *proof = logging->proof;
    const char *judgements = logging->options->judgements;
    enum err err =
        line_ids_add(&logging->ids, str_from(logging->options->custom_id), "--custom-id", error);
    if (err == OK) err = read_tables(logging, &input, &output, error);
    if (err == OK) err = take_request(logging, &input, &output, error);
    if (err == OK && !logging->request) return say_missing(logging, proof->input, error);
    if (err == OK && *proof->output) err = take_result(logging, &output, error);
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
    if (logging->is_row)
        add_file(logging, section, "Table of the rows", "input", proof->input);
    else
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
    json_array_append_new(sections, logging->is_row ? log_row(logging->request)
                                                    : log_asked(logging->request));
    json_array_append_new(sections, log_computed(logging->request, logging->result, computed_by,
                                                 json_object_get(content, "created_at")));
    json_array_append_new(sections,
                          logging->has_result_row
                              ? log_answer_row(logging->request, logging->result)
                              : log_answered(buf_str(&logging->result_text), logging->result));
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
    row_numbers_release(&logging.gone);
    row_numbers_release(&logging.number);
    line_ids_release(&logging.ids);
    buf_release(&logging.result_text);
    return err;
}
