/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/trial.h"

#include "answer/answer_text.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "json/json.h"
#include "json/span.h"
#include "tune/run_process.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 200
#define SAID_BYTES_MAX ((size_t)1 << 20)
#define NO_ANSWER 0 /* the hash of a line without choices */
#define FNV_START 0xCBF29CE484222325u
#define FNV_PRIME 0x100000001B3u

struct names {
    char output[PATH_MAX], said[PATH_MAX], errors[PATH_MAX];
};

static void name_files(struct names *names, const char *folder) {
    snprintf(names->output, sizeof names->output, "%.4000s/out.jsonl", folder);
    snprintf(names->said, sizeof names->said, "%.4000s/said", folder);
    snprintf(names->errors, sizeof names->errors, "%.4000s/errors", folder);
}

/* --- the child --- */

static enum err run_child(const struct trial_place *place, const struct names *names,
                          const char *const *options, bool *ret_is_refused, struct error *error) {
    const char *arguments[ARGUMENTS_MAX] = {"quern",
                                            "run",
                                            "-i",
                                            place->sample,
                                            "-o",
                                            names->output,
                                            "--overwrite",
                                            "--manifest",
                                            "",
                                            "--json",
                                            "-q",
                                            "--config",
                                            "/dev/null",
                                            "--end-with-parent"};
    size_t count = 0;
    while (arguments[count]) count++;
    for (size_t i = 0; options[i] && count + 1 < ARGUMENTS_MAX; i++)
        arguments[count++] = options[i];
    const struct run_process process = {.arguments = arguments,
                                        .said = names->said,
                                        .errors = names->errors,
                                        .stop = place->stop,
                                        .ret_is_refused = ret_is_refused};
    return run_process(&process, error);
}

/* --- what it said --- */

static enum err read_summary(const char *path, struct trial *trial, struct error *error) {
    char *text;
    size_t bytes;
    json_t *said;
    enum err err = os_read_file(path, SAID_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = json_read(&said, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err_set(error, ERR_INVALID, "the run gave no summary");
    const json_t *hours =
        json_object_get(json_object_get(json_object_get(said, "costs"), "once"), "watt_hours");
    trial->requests_per_s = json_number_value(json_object_get(said, "req_s"));
    trial->requests = (uint64_t)json_integer_value(json_object_get(said, "requests"));
    trial->failed = (uint64_t)json_integer_value(json_object_get(said, "failed"));
    trial->joules_per_request = NAN;
    if (json_is_number(hours) && trial->requests > 0)
        trial->joules_per_request = json_number_value(hours) * 3600 / (double)trial->requests;
    json_decref(said);
    return trial->requests_per_s > 0
               ? OK
               : err_set(error, ERR_INVALID, "no request of the sample was answered");
}

static uint64_t hash(struct str text) {
    uint64_t sum = FNV_START;
    for (size_t i = 0; i < text.bytes; i++) sum = (sum ^ (unsigned char)text.at[i]) * FNV_PRIME;
    return sum == NO_ANSWER ? 1 : sum;
}

static struct str member_of(struct str value, const char *name) {
    return value.at && json_span_is_object(value) ? json_span_get(value, name)
                                                  : (struct str){NULL, 0};
}

/* What the answer says, without ids and times, which differ from run to run: its choices, or its
 * text in the form of another API. */
static uint64_t hash_answer(struct str line) {
    struct str body = member_of(member_of(line, "response"), "body");
    struct str choices = member_of(body, "choices");
    struct answer_text said;
    if (choices.at) return hash(choices);
    if (!body.at || !answer_text_of_body(&said, body, NULL)) return NO_ANSWER;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    answer_text_add(&text, &said);
    uint64_t sum = hash(buf_str(&text));
    buf_release(&text);
    return sum;
}

static enum err read_answers(const char *path, struct trial *trial, struct error *error) {
    struct jsonl_file file;
    struct str line;
    size_t capacity = 0;
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && jsonl_file_next(&file, &line)) {
        if (trial->answer_count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            trial->answers = mem_resize(trial->answers, capacity, sizeof *trial->answers);
        }
        trial->answers[trial->answer_count++] = hash_answer(line);
    }
    return jsonl_file_end(&file, path, err, error);
}

enum err trial_run(const struct trial_place *place, const char *const *arguments,
                   struct trial *ret_trial, struct error *error) {
    struct names names;
    struct trial trial = {.requests_per_s = 0};
    name_files(&names, place->folder);
    ret_trial->is_refused = false;
    enum err err = run_child(place, &names, arguments, &ret_trial->is_refused, error);
    if (err == OK) err = read_summary(names.said, &trial, error);
    if (err == OK) err = read_answers(names.output, &trial, error);
    if (err == OK)
        *ret_trial = trial;
    else
        trial_release(&trial);
    return err;
}

void trial_release(struct trial *trial) {
    free(trial->answers);
    *trial = (struct trial){.requests_per_s = 0};
}

double trial_equal_share(const struct trial *a, const struct trial *b) {
    size_t both = 0, equal = 0;
    for (size_t i = 0; i < a->answer_count && i < b->answer_count; i++) {
        if (a->answers[i] == NO_ANSWER && b->answers[i] == NO_ANSWER) continue;
        both++;
        equal += a->answers[i] == b->answers[i];
    }
    return both > 0 ? (double)equal / (double)both : NAN;
}
