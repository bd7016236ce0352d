/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/evaluation.h"

#include "base/os.h"
#include "batch/jsonl_file.h"
#include "evaluate/names.h"
#include "evaluate/requests.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const uint64_t evaluation_jobs[EVALUATION_JOBS] = {5000, 50000, 170000, 200000};

static void say(const struct evaluation *evaluation, const char *what) {
    if (evaluation->say) evaluation->say(evaluation->context, what);
}

/* --- the requests --- */

static bool has_cell(const void *judged, struct str line) {
    return judged_has_cell(judged, line);
}

static bool has_name(const void *names, struct str line) {
    return names_has(names, line);
}

/* The file of results that the candidates are compared with; NULL: there is none, or it is to be
 * made of the requests. */
static const char *reference_file(const struct evaluation *evaluation) {
    if (evaluation->judged.is_made) return evaluation->judged.path;
    bool has_file = evaluation->reference && evaluation_reference(evaluation) == evaluation->count;
    return has_file ? evaluation->reference : NULL;
}

/* Writes a sample that has the requests with a judgement first. */
static enum err write_requests(struct evaluation *evaluation, const char *fresh,
                               struct error *error) {
    const char *reference = evaluation->sample > 0 ? reference_file(evaluation) : NULL;
    struct names names = {0};
    struct requests_wish wish = {&evaluation->judged, has_cell};
    const struct requests_wish *is_wished = evaluation->judged.column_count > 0 ? &wish : NULL;
    enum err err = OK;
    if (!is_wished && reference) {
        err = names_read(&names, reference, error);
        wish = (struct requests_wish){&names, has_name};
        is_wished = &wish;
    }
    if (err == OK)
        err = requests_write(evaluation->input, evaluation->sample, is_wished, fresh,
                             &evaluation->lines, error);
    names_release(&names);
    return err == ERR_UNAVAILABLE ? err_prefix(error, "requests.jsonl") : err;
}

/* Writes the requests, or finds that those of an earlier call are the same, or another sample of
 * the same size: an evaluation that has begun keeps its sample when more has been judged. */
static enum err place_requests(struct evaluation *evaluation, struct error *error) {
    char fresh[PATH_MAX + 8];
    snprintf(fresh, sizeof fresh, "%s.part", evaluation->requests);
    enum err err = write_requests(evaluation, fresh, error);
    if (err == OK && evaluation->sample > 0 &&
        requests_are_of(evaluation->requests, evaluation->input, evaluation->lines)) {
        (void)unlink(fresh);
        return OK;
    }
    return err == OK ? requests_place(fresh, evaluation->requests, error) : err;
}

/* Makes results of what was judged, if the reference is judgements. */
static enum err place_judgements(struct evaluation *evaluation, struct error *error) {
    struct judged *judged = &evaluation->judged;
    char path[PATH_MAX];
    enum err err = OK;
    snprintf(path, sizeof path, "%.3800s/judged.results", evaluation->folder);
    if (judged->column_count > 0)
        err = judged_from_columns(judged, evaluation->requests, path, error);
    else if (judged->from)
        err = judged_from_file(judged, judged->from, path, error);
    else if (evaluation->reference && evaluation_reference(evaluation) == evaluation->count &&
             judged_is(evaluation->reference))
        err = judged_from_file(judged, evaluation->reference, path, error);
    else
        return OK;
    if (err == OK && judged->column_count > 0) evaluation->reference = judged->name;
    return err;
}

/* --- the answers next to each other --- */

size_t evaluation_reference(const struct evaluation *evaluation) {
    size_t i = 0;
    while (i < evaluation->count &&
           (!evaluation->reference ||
            strcmp(evaluation->candidates[i].name, evaluation->reference) != 0))
        i++;
    return i;
}

const struct comparison *evaluation_compared(const struct evaluation *evaluation,
                                             size_t candidate) {
    size_t reference = evaluation_reference(evaluation);
    if (!evaluation->reference || candidate == reference) return NULL;
    if (reference == evaluation->count) return &evaluation->references[candidate];
    return candidate < reference ? &evaluation->pairs[candidate][reference]
                                 : &evaluation->pairs[reference][candidate];
}

/* A model of a cascade has no results if the one before was sure of all. */
static enum err compare(struct evaluation *evaluation, struct comparison *comparison, const char *a,
                        const char *b, struct error *error) {
    if (access(a, F_OK) != 0 || access(b, F_OK) != 0) return OK;
    const struct comparison_options options = {.paths = {a, b},
                                               .has_parts_in_a =
                                                   strcmp(a, evaluation->judged.path) == 0,
                                               .top = evaluation->top,
                                               .stop = evaluation->stop};
    return comparison_run(comparison, &options, error);
}

static enum err compare_all(struct evaluation *evaluation, struct error *error) {
    const struct candidate *candidates = evaluation->candidates;
    const char *file = reference_file(evaluation);
    enum err err = OK;
    for (size_t i = 0; i < evaluation->count && err == OK; i++) {
        for (size_t k = i + 1; k < evaluation->count && err == OK; k++)
            err = compare(evaluation, &evaluation->pairs[i][k], candidates[i].results,
                          candidates[k].results, error);
        if (err == OK && file)
            err =
                compare(evaluation, &evaluation->references[i], file, candidates[i].results, error);
    }
    return err;
}

/* --- a cascade --- */

static enum err add_stage(struct evaluation *evaluation, struct str name, struct error *error) {
    struct cascade *cascade = &evaluation->cascade;
    size_t place = 0;
    while (place < evaluation->count &&
           !str_equals(name, str_from(evaluation->candidates[place].name)))
        place++;
    if (place == evaluation->count)
        return err_set(error, ERR_INVALID, "--cascade: no model is called '%.*s'", STR_ARGS(name));
    for (size_t i = 0; i < cascade->count; i++)
        if (cascade->stages[i].candidate == place)
            return err_set(error, ERR_INVALID, "--cascade has '%.*s' twice", STR_ARGS(name));
    if (cascade->count == CASCADE_MODELS_MAX)
        return err_set(error, ERR_LIMIT, "--cascade: at most %d models", CASCADE_MODELS_MAX);
    cascade->stages[cascade->count++].candidate = place;
    return OK;
}

enum err evaluation_add_cascade(struct evaluation *evaluation, const char *names, double until,
                                struct error *error) {
    enum err err = OK;
    for (const char *at = names; err == OK;) {
        size_t bytes = strcspn(at, ",");
        err = add_stage(evaluation, (struct str){at, bytes}, error);
        if (!at[bytes]) break;
        at += bytes + 1;
    }
    if (err != OK) return err;
    if (evaluation->cascade.count < 2)
        return err_set(error, ERR_INVALID,
                       "--cascade: '%s' is one model; name at least two, the cheapest first",
                       names);
    if (evaluation->count == EVALUATION_MODELS_MAX)
        return err_set(error, ERR_LIMIT, "at most %d models can be evaluated next to a cascade",
                       EVALUATION_MODELS_MAX - 1);
    evaluation->cascade.until = until;
    snprintf(evaluation->candidates[evaluation->count++].name, CANDIDATE_NAME_BYTES, "%s",
             CASCADE_NAME);
    return OK;
}

/* --- the whole --- */

static enum err check_reference(const struct evaluation *evaluation, struct error *error) {
    const char *reference = evaluation->reference;
    size_t place = evaluation_reference(evaluation);
    if (cascade_has_late(&evaluation->cascade, place))
        return err_set(error, ERR_INVALID,
                       "--compare-to: '%s' gets a part of the requests only; give the model once "
                       "more under another name",
                       reference);
    if (!reference || place < evaluation->count || evaluation->judged.from) return OK;
    if (access(reference, R_OK) != 0)
        return err_set(error, ERR_INVALID,
                       "--compare-to: '%.200s' is neither one of the models nor a file of results",
                       reference);
    return OK;
}

static enum err check(const struct evaluation *evaluation, struct error *error) {
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct candidate *is = &evaluation->candidates[i];
        for (size_t k = i + 1; k < evaluation->count; k++)
            if (strcmp(is->results, evaluation->candidates[k].results) == 0)
                return err_set(error, ERR_INVALID,
                               "two models are called '%s'; name one of them (--model NAME=M)",
                               evaluation->candidates[k].name);
        if (strcmp(is->results, evaluation->requests) == 0)
            return err_set(error, ERR_INVALID,
                           "a model called '%s' has no place in the folder; name it otherwise "
                           "(--model NAME=M)",
                           is->name);
    }
    return check_reference(evaluation, error);
}

static enum err run_model(struct evaluation *evaluation, size_t place, const char *requests,
                          struct error *error) {
    struct candidate *candidate = &evaluation->candidates[place];
    char what[CANDIDATE_NAME_BYTES + 64];
    snprintf(what, sizeof what, "running %s (%zu of %zu) ...", candidate->name, place + 1,
             evaluation->count - (evaluation->cascade.count > 0));
    say(evaluation, what);
    candidate->warned = evaluation->warned;
    candidate->context = evaluation->context;
    const struct top_k_options best = {.requests = requests,
                                       .folder = evaluation->folder,
                                       .by = evaluation->by,
                                       .count = evaluation->top_k,
                                       .is_remote = candidate->is_remote,
                                       .stop = evaluation->stop};
    enum err err = evaluation->top_k > 0
                       ? top_k_run(&evaluation->tops[place], &best, candidate, error)
                       : candidate_run(candidate, requests, evaluation->stop, error);
    return err == OK ? candidate_read(candidate, error) : err;
}

/* Runs the later models of the cascade over what is left for them. */
static enum err run_cascade(struct evaluation *evaluation, struct error *error) {
    struct cascade *cascade = &evaluation->cascade;
    struct candidate *whole = &evaluation->candidates[evaluation->count - 1];
    char what[64];
    snprintf(what, sizeof what, "cascade until %.17g", cascade->until);
    enum err err = candidate_keep(whole, what, error);
    cascade->stages[0].requests = evaluation->lines;
    for (cascade->run_count = 1; err == OK && cascade->run_count < cascade->count;
         cascade->run_count++) {
        struct cascade_stage *next = &cascade->stages[cascade->run_count];
        err = cascade_pass_on(cascade, evaluation->candidates, cascade->run_count - 1,
                              evaluation->requests, error);
        if (err != OK || next->requests == 0) break;
        err = run_model(evaluation, next->candidate,
                        evaluation->candidates[next->candidate].own_requests, error);
        if (err != OK) break;
    }
    if (err == OK)
        err = cascade_merge(cascade, evaluation->candidates, evaluation->requests, whole, error);
    return err == OK ? candidate_read(whole, error) : err;
}

enum err evaluation_run(struct evaluation *evaluation, struct error *error) {
    bool has_cascade = evaluation->cascade.count > 0;
    snprintf(evaluation->requests, sizeof evaluation->requests, "%.3800s/requests.jsonl",
             evaluation->folder);
    for (size_t i = 0; i < evaluation->count; i++)
        candidate_place(&evaluation->candidates[i], evaluation->folder);
    enum err err = check(evaluation, error);
    if (err == OK) err = os_mkdirs(evaluation->folder, error);
    /* Columns are read from the requests; files of judgements say which requests are wanted. */
    const bool has_columns = evaluation->judged.column_count > 0;
    if (err == OK && !has_columns) err = place_judgements(evaluation, error);
    if (err == OK) err = place_requests(evaluation, error);
    if (err == OK && has_columns) err = place_judgements(evaluation, error);
    for (size_t i = 0; i + has_cascade < evaluation->count && err == OK; i++)
        if (!cascade_has_late(&evaluation->cascade, i))
            err = run_model(evaluation, i, evaluation->requests, error);
    if (err == OK && has_cascade) err = run_cascade(evaluation, error);
    if (err == OK) say(evaluation, "comparing the answers ...");
    if (err == OK) err = compare_all(evaluation, error);
    return err == OK ? tuning_run(evaluation, error) : err;
}

void evaluation_release(struct evaluation *evaluation) {
    tuning_release(&evaluation->tuning);
    for (size_t i = 0; i < EVALUATION_MODELS_MAX; i++) {
        candidate_release(&evaluation->candidates[i]);
        comparison_release(&evaluation->references[i]);
        for (size_t k = 0; k < EVALUATION_MODELS_MAX; k++)
            comparison_release(&evaluation->pairs[i][k]);
    }
}
