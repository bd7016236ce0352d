/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/candidate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "compare/result_line.h"
#include "json/json.h"
#include "tune/run_process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARGUMENTS_MAX 200
#define AGAIN_MS 500
#define ENDING_MS 60000 /* for a run to end whose command was killed */
#define SUMMARY_BYTES_MAX ((size_t)1 << 20)
#define ID_BYTES_MAX ((size_t)64 << 10)

static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

void candidate_place(struct candidate *candidate, const char *folder) {
    char name[CANDIDATE_NAME_BYTES];
    size_t i = 0;
    for (; candidate->name[i]; i++)
        name[i] = is_plain(candidate->name[i]) ? candidate->name[i] : '_';
    name[i] = '\0';
    if (*name == '.') *name = '_';
    snprintf(candidate->results, sizeof candidate->results, "%.3800s/%s.jsonl", folder, name);
    snprintf(candidate->summary_path, sizeof candidate->summary_path, "%.3800s/%s.run.json", folder,
             name);
    snprintf(candidate->options_path, sizeof candidate->options_path, "%.3800s/%s.options", folder,
             name);
    snprintf(candidate->lines_path, sizeof candidate->lines_path, "%.3800s/%s.lines", folder, name);
    snprintf(candidate->own_requests, sizeof candidate->own_requests, "%.3800s/%s.requests", folder,
             name);
}

enum err candidate_keep(const struct candidate *candidate, const char *of, struct error *error) {
    struct buf options;
    char *before;
    size_t bytes;
    enum err err = OK;
    buf_init(&options, BUF_UNLIMITED);
    for (size_t i = 0; candidate->arguments && candidate->arguments[i]; i++)
        buf_printf(&options, "%s\n", candidate->arguments[i]);
    if (of) buf_printf(&options, "%s\n", of);
    if (os_read_file(candidate->options_path, SUMMARY_BYTES_MAX, &before, &bytes, error) != OK) {
        /* Whole or not at all: half of it would be other options for ever. */
        char part[PATH_MAX + 8];
        snprintf(part, sizeof part, "%s.part", candidate->options_path);
        err = os_write_file(part, 0600, options.at, options.bytes, error);
        if (err == OK) err = os_rename(part, candidate->options_path, error);
    } else {
        if (!str_equals(buf_str(&options), (struct str){before, bytes}))
            err = err_set(error, ERR_INVALID,
                          "%s: the folder has a run of this model with other options; choose "
                          "another folder (-o), or remove this run's files, %.*s.*",
                          candidate->name,
                          (int)(strlen(candidate->options_path) - strlen(".options")),
                          candidate->options_path);
        free(before);
    }
    buf_release(&options);
    return err;
}

static bool is_summary(const char *path) {
    char *text;
    size_t bytes;
    json_t *summary = NULL;
    struct error ignored;
    if (os_read_file(path, SUMMARY_BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    bool is_one = json_read(&summary, (struct str){text, bytes}, &ignored) == OK &&
                  json_is_object(summary) && json_object_get(summary, "requests");
    free(text);
    json_decref(summary);
    return is_one;
}

/* Runs the process. A command that was killed may have left a run that is still ending, for which
 * this waits, or the summary of one that has ended. */
static enum err run_alone(const struct run_process *process, struct error *error) {
    enum err err = OK;
    for (int64_t waited_ms = 0; !is_summary(process->said); waited_ms += AGAIN_MS) {
        err = run_process(process, error);
        bool is_taken = err == ERR_CONFLICT && strstr(error->text, "another quern");
        if (!is_taken || waited_ms > ENDING_MS || *process->stop) break;
        clock_sleep_ms(AGAIN_MS);
        err = OK;
    }
    return err;
}

static void hear_warning(const void *context, const char *warning) {
    const struct candidate *candidate = context;
    if (candidate->warned) candidate->warned(candidate->context, candidate->name, warning);
}

enum err candidate_run(const struct candidate *candidate, const char *requests,
                       const volatile bool *stop, struct error *error) {
    const char *arguments[ARGUMENTS_MAX] = {
        "quern", "run",      "-i",        requests,           "-o", candidate->results, "--json",
        "-q",    "--config", "/dev/null", "--end-with-parent"};
    char said[PATH_MAX + 8], errors[PATH_MAX + 8];
    size_t count = 0;
    bool has_own = strcmp(requests, candidate->own_requests) == 0;
    enum err err = candidate_keep(candidate, has_own ? "requests of its own" : NULL, error);
    if (err != OK || access(candidate->summary_path, R_OK) == 0) return err;
    while (arguments[count]) count++;
    for (size_t i = 0; candidate->arguments[i] && count + 2 < ARGUMENTS_MAX; i++)
        arguments[count++] = candidate->arguments[i];
    snprintf(said, sizeof said, "%s.part", candidate->summary_path);
    snprintf(errors, sizeof errors, "%s.log", candidate->summary_path);
    const struct run_process process = {.arguments = arguments,
                                        .said = said,
                                        .errors = errors,
                                        .stop = stop,
                                        .warned = hear_warning,
                                        .context = candidate};
    err = run_alone(&process, error);
    if (err == OK && !is_summary(said)) {
        /* A run that had ended was killed before it told its figures. */
        arguments[count] = "--overwrite";
        err = run_process(&process, error);
    }
    if (err == OK) err = os_rename(said, candidate->summary_path, error);
    if (err == OK) (void)unlink(errors);
    if (err == OK || err == ERR_CANCELLED) return err;
    struct error why = *error;
    struct stat log;
    if (stat(errors, &log) != 0 || log.st_size == 0)
        return err_set(error, err, "%s: %.300s", candidate->name, why.text);
    return err_set(error, err, "%s: %.300s; all it said is in %.200s", candidate->name, why.text,
                   errors);
}

/* --- its results --- */

struct tally {
    struct candidate *candidate;
    uint64_t *tokens; /* (count) tokens of an answered request */
    size_t count, capacity;
    struct buf id;
};

static bool is_truncated(json_t *body) {
    const json_t *choices = json_member(body, "choices");
    return choices &&
           str_is(json_member_str(json_first_by_index(choices), "finish_reason"), "length");
}

static enum err tally_line(struct tally *tally, struct str text, struct error *error) {
    struct candidate *candidate = tally->candidate;
    struct result_line line;
    struct buf answer;
    json_t *whole = NULL;
    enum err err = result_line_read(&line, text, true, &tally->id, error);
    if (err != OK) return err;
    candidate->lines++;
    if (line.is_answered && (err = json_read(&whole, text, error)) == OK) {
        candidate->answered++;
        candidate->prompt_tokens += line.usage.prompt_tokens;
        candidate->cached_tokens += line.usage.cached_tokens;
        candidate->completion_tokens += line.usage.completion_tokens;
        candidate->truncated += is_truncated(json_member(json_member(whole, "response"), "body"));
        buf_init(&answer, BUF_UNLIMITED);
        result_line_write_answer(&answer, &line);
        candidate->empty += answer.bytes == 0;
        buf_release(&answer);
        tally->tokens = vec_grow(tally->tokens, tally->count, &tally->capacity, sizeof(uint64_t));
        tally->tokens[tally->count++] = line.usage.prompt_tokens + line.usage.completion_tokens;
    }
    json_decref(whole);
    result_line_release(&line);
    return err;
}

static int by_size(const void *left, const void *right) {
    uint64_t x = *(const uint64_t *)left, y = *(const uint64_t *)right;
    return (x > y) - (x < y);
}

/* The least value that `percent` of the sorted list do not exceed. */
static uint64_t percentile(const uint64_t *sorted, size_t count, size_t percent) {
    return sorted[(count * percent + 99) / 100 - 1];
}

static enum err read_results(struct candidate *candidate, struct error *error) {
    struct tally tally = {.candidate = candidate};
    struct jsonl_file file;
    struct str line;
    buf_init(&tally.id, ID_BYTES_MAX);
    enum err err = jsonl_file_open(&file, candidate->results, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        err = tally_line(&tally, line, error);
        if (err != OK) err = err_prefix(error, "%s", candidate->results);
    }
    err = jsonl_file_end(&file, candidate->results, err, error);
    candidate->tokens_mean =
        tally.count > 0 ? (double)(candidate->prompt_tokens + candidate->completion_tokens) /
                              (double)tally.count
                        : (double)NAN;
    if (err == OK && tally.count > 0) {
        qsort(tally.tokens, tally.count, sizeof *tally.tokens, by_size);
        candidate->tokens_p50 = percentile(tally.tokens, tally.count, 50);
        candidate->tokens_p95 = percentile(tally.tokens, tally.count, 95);
        candidate->tokens_max = tally.tokens[tally.count - 1];
    }
    free(tally.tokens);
    buf_release(&tally.id);
    return err;
}

/* --- its run --- */

static uint64_t count_of(const json_t *object, const char *name) {
    json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

/* Requests per second of all calls of the run, as far as their time is known; or of its last call,
 * if that is more: an interruption costs the answers that were on their way, and the last call had
 * none. Another server still has the prompts of those, which makes its last call too fast. */
static double rate_of(const struct candidate *candidate, const json_t *summary) {
    const json_t *before = json_object_get(summary, "seconds_before");
    double rate = json_number_value(json_object_get(summary, "req_s"));
    if (count_of(summary, "done_before") == 0 || !json_is_number(before)) return rate;
    double seconds =
        json_number_value(before) + json_number_value(json_object_get(summary, "seconds"));
    uint64_t done = count_of(summary, "completed") + count_of(summary, "failed");
    double whole = seconds > 0 ? (double)done / seconds : 0;
    return candidate->is_remote ? whole : fmax(whole, rate);
}

static enum err read_summary(struct candidate *candidate, struct error *error) {
    char *text;
    size_t bytes;
    enum err err = os_read_file(candidate->summary_path, SUMMARY_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = json_read(&candidate->summary, (struct str){text, bytes}, error);
    free(text);
    if (err != OK || !json_is_object(candidate->summary))
        return err_set(error, ERR_INVALID,
                       "%s is no summary of a run; remove it, and the model is "
                       "run again",
                       candidate->summary_path);
    double rate = rate_of(candidate, candidate->summary);
    candidate->requests_per_s = rate > 0 ? rate : (double)NAN;
    candidate->was_interrupted = count_of(candidate->summary, "done_before") > 0;
    candidate->context_tokens = count_of(candidate->summary, "context_tokens");
    candidate->load_seconds =
        json_number_value(json_object_get(candidate->summary, "load_seconds"));
    return OK;
}

enum err candidate_read(struct candidate *candidate, struct error *error) {
    enum err err = read_summary(candidate, error);
    return err == OK ? read_results(candidate, error) : err;
}

void candidate_release(struct candidate *candidate) {
    json_decref(candidate->summary);
    candidate->summary = NULL;
}

double candidate_seconds(const struct candidate *candidate, uint64_t requests) {
    return candidate->load_seconds + (double)requests / candidate->requests_per_s;
}

double candidate_cost(const struct candidate *candidate, const char *name, uint64_t requests) {
    const json_t *once = json_object_get(json_object_get(candidate->summary, "costs"), "once");
    const json_t *cost = json_object_get(once, name);
    double seconds = json_number_value(json_object_get(once, "seconds"));
    uint64_t all = count_of(candidate->summary, "requests");
    if (!json_is_number(cost) || all == 0) return NAN;
    if (strcmp(name, "managed_api") == 0)
        return json_number_value(cost) * (double)requests / (double)all;
    return seconds > 0 ? json_number_value(cost) * candidate_seconds(candidate, requests) / seconds
                       : (double)NAN;
}

double candidate_context_share(const struct candidate *candidate, double tokens) {
    return candidate->context_tokens > 0 ? tokens / (double)candidate->context_tokens : (double)NAN;
}

double candidate_valid_share(const struct candidate *candidate) {
    const json_t *shapes = json_object_get(candidate->summary, "shapes");
    uint64_t asked = count_of(shapes, "asked");
    if (asked == 0) return NAN;
    return (double)count_of(shapes, "valid") / (double)asked;
}
