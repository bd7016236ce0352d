/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/cascade.h"

#include "base/os.h"
#include "batch/jsonl_file.h"
#include "evaluate/confidence.h"
#include "evaluate/requests.h"
#include "evaluate/summed.h"
#include "json/json.h"
#include "json/span.h"

#include <math.h>
#include <stdio.h>

/* The requests and the results of one model, read side by side: the results have the order of the
 * requests. */
struct reading {
    const struct candidate *candidate;
    double until;
    struct jsonl_file requests, results;
    struct str request, result;
    double confidence; /* NAN: not known */
    bool is_sure;
    bool is_unknown; /* answered, without a known confidence */
};

static const char *requests_of(const struct cascade *cascade, const struct candidate *candidates,
                               size_t stage, const char *requests) {
    return stage == 0 ? requests : candidates[cascade->stages[stage].candidate].own_requests;
}

static enum err reading_open(struct reading *reading, const struct cascade *cascade,
                             const struct candidate *candidates, size_t stage, const char *requests,
                             struct error *error) {
    reading->candidate = &candidates[cascade->stages[stage].candidate];
    reading->until = cascade->until;
    jsonl_file_init(&reading->results);
    const char *path = requests_of(cascade, candidates, stage, requests);
    enum err err = jsonl_file_open(&reading->requests, path, error);
    return err == OK ? jsonl_file_open(&reading->results, reading->candidate->results, error) : err;
}

static void reading_close(struct reading *reading) {
    jsonl_file_close(&reading->requests);
    jsonl_file_close(&reading->results);
}

static enum err read_confidence(struct reading *reading, struct error *error) {
    double confidence = NAN;
    bool is_answered = false;
    enum err err = confidence_of(reading->result, &is_answered, &confidence, error);
    if (err != OK) return err_prefix(error, "%s", reading->candidate->results);
    reading->confidence = confidence;
    reading->is_sure = confidence >= reading->until; /* false of NAN */
    reading->is_unknown = is_answered && isnan(confidence);
    return OK;
}

/* The next request with its result; *ret_has is false at the end. */
static enum err reading_next(struct reading *reading, bool *ret_has, struct error *error) {
    bool has = jsonl_file_next(&reading->requests, &reading->request);
    bool has_result = jsonl_file_next(&reading->results, &reading->result);
    const struct jsonl_file *failed = reading->requests.failed  ? &reading->requests
                                      : reading->results.failed ? &reading->results
                                                                : NULL;
    if (failed) return err_set(error, ERR_IO, "%s", failed->why.text);
    if (has != has_result)
        return err_set(error, ERR_CORRUPT,
                       "%s has not one result per request; choose another folder (-o)",
                       reading->candidate->results);
    *ret_has = has;
    return has ? read_confidence(reading, error) : OK;
}

static enum err write_line(int fd, struct buf *line, struct str text, struct error *error) {
    buf_clear(line);
    buf_add_str(line, text);
    buf_add_byte(line, '\n');
    return os_write_all(fd, line->at, line->bytes, error);
}

/* --- from one model to the next --- */

static enum err write_unsure(struct reading *reading, int fd, uint64_t *ret_lines,
                             struct error *error) {
    struct buf line;
    bool has = true;
    uint64_t lines = 0;
    enum err err;
    buf_init(&line, BUF_UNLIMITED);
    while ((err = reading_next(reading, &has, error)) == OK && has) {
        if (reading->is_sure) continue;
        lines++;
        if ((err = write_line(fd, &line, reading->request, error)) != OK) break;
    }
    buf_release(&line);
    *ret_lines = lines;
    return err == OK ? os_fsync(fd, error) : err;
}

enum err cascade_pass_on(struct cascade *cascade, const struct candidate *candidates, size_t stage,
                         const char *requests, struct error *error) {
    struct cascade_stage *next = &cascade->stages[stage + 1];
    const char *path = candidates[next->candidate].own_requests;
    char fresh[PATH_MAX + 8];
    struct reading reading = {.is_sure = false};
    int fd = -1;
    snprintf(fresh, sizeof fresh, "%s.part", path);
    enum err err = reading_open(&reading, cascade, candidates, stage, requests, error);
    if (err == OK) err = os_create(&fd, fresh, 0600, error);
    if (err == OK) err = write_unsure(&reading, fd, &next->requests, error);
    os_close(fd);
    reading_close(&reading);
    return err == OK ? requests_place(fresh, path, error) : err;
}

/* --- the answers that stand --- */

/* The files of the whole, and a line of theirs. */
struct merging {
    int results_fd, lines_fd;
    struct buf line;
};

/* Which models were asked, up to the one whose answer stands. */
static enum err write_way(struct merging *merging, const struct reading *readings, size_t stage,
                          struct error *error) {
    struct buf *line = &merging->line;
    struct str whole, id = {NULL, 0};
    if (json_span_read(readings[0].request, &whole)) id = json_span_get(whole, "custom_id");
    buf_clear(line);
    buf_add_text(line, "{\"custom_id\":");
    buf_add_str(line, id.at ? id : STR("null"));
    buf_add_text(line, ",\"model\":");
    json_write_string(line, str_from(readings[stage].candidate->name));
    for (size_t i = 0; i <= stage; i++) {
        buf_add_text(line, i == 0 ? ",\"asked\":[{\"model\":" : ",{\"model\":");
        json_write_string(line, str_from(readings[i].candidate->name));
        if (isnan(readings[i].confidence))
            buf_add_text(line, ",\"confidence\":null}");
        else
            buf_printf(line, ",\"confidence\":%.17g}", readings[i].confidence);
    }
    buf_add_text(line, "]}\n");
    return os_write_all(merging->lines_fd, line->at, line->bytes, error);
}

/* Writes the answer that stands of the next request, which is the next one of each model that got
 * it. */
static enum err add_answer(struct cascade *cascade, struct reading *readings,
                           struct merging *merging, bool *ret_has, struct error *error) {
    for (size_t stage = 0;; stage++) {
        struct reading *reading = &readings[stage];
        enum err err = reading_next(reading, ret_has, error);
        if (err != OK || (stage == 0 && !*ret_has)) return err;
        if (!*ret_has)
            return err_set(error, ERR_CORRUPT, "%s lacks a result; choose another folder (-o)",
                           reading->candidate->results);
        cascade->stages[stage].unknown += reading->is_unknown;
        if (stage + 1 < cascade->run_count && !reading->is_sure) continue;
        cascade->stages[stage].answers++;
        err = write_line(merging->results_fd, &merging->line, reading->result, error);
        return err == OK ? write_way(merging, readings, stage, error) : err;
    }
}

static enum err write_answers(struct cascade *cascade, const struct candidate *candidates,
                              const char *requests, const struct candidate *whole,
                              struct error *error) {
    struct reading readings[CASCADE_MODELS_MAX];
    char fresh[PATH_MAX + 8], fresh_lines[PATH_MAX + 8];
    struct merging merging = {-1, -1, {0}};
    bool has = true;
    size_t opened = 0;
    enum err err = OK;
    buf_init(&merging.line, BUF_UNLIMITED);
    snprintf(fresh, sizeof fresh, "%s.part", whole->results);
    snprintf(fresh_lines, sizeof fresh_lines, "%s.part", whole->lines_path);
    for (; opened < cascade->run_count && err == OK; opened++)
        err = reading_open(&readings[opened], cascade, candidates, opened, requests, error);
    if (err == OK) err = os_create(&merging.results_fd, fresh, 0644, error);
    if (err == OK) err = os_create(&merging.lines_fd, fresh_lines, 0644, error);
    while (err == OK && has) err = add_answer(cascade, readings, &merging, &has, error);
    if (err == OK) err = os_fsync(merging.results_fd, error);
    os_close(merging.results_fd);
    os_close(merging.lines_fd);
    for (size_t i = 0; i < opened; i++) reading_close(&readings[i]);
    buf_release(&merging.line);
    if (err == OK) err = os_rename(fresh_lines, whole->lines_path, error);
    return err == OK ? os_rename(fresh, whole->results, error) : err;
}

/* The summary of all requests is the sum of what the models ran. */
static enum err write_summary(const struct cascade *cascade, const struct candidate *candidates,
                              const char *path, struct error *error) {
    struct summed_part parts[CASCADE_MODELS_MAX];
    for (size_t i = 0; i < cascade->run_count; i++)
        parts[i] = (struct summed_part){&candidates[cascade->stages[i].candidate],
                                        cascade->stages[i].requests};
    return summed_write(path, cascade->stages[0].requests, parts, cascade->run_count, error);
}

enum err cascade_merge(struct cascade *cascade, const struct candidate *candidates,
                       const char *requests, const struct candidate *whole, struct error *error) {
    enum err err = write_answers(cascade, candidates, requests, whole, error);
    return err == OK ? write_summary(cascade, candidates, whole->summary_path, error) : err;
}

bool cascade_has_late(const struct cascade *cascade, size_t candidate) {
    for (size_t i = 1; i < cascade->count; i++)
        if (cascade->stages[i].candidate == candidate) return true;
    return false;
}
