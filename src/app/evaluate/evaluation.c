/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/evaluation.h"

#include "base/os.h"
#include "evaluate/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)64 << 10)

const uint64_t evaluation_jobs[EVALUATION_JOBS] = {5000, 50000, 170000, 200000};

static void say(const struct evaluation *evaluation, const char *what) {
    if (evaluation->say) evaluation->say(evaluation->context, what);
}

/* --- the requests --- */

static bool are_equal(FILE *a, FILE *b) {
    static char left[PIECE], right[PIECE];
    size_t count;
    do {
        count = fread(left, 1, PIECE, a);
        if (fread(right, 1, PIECE, b) != count || memcmp(left, right, count) != 0) return false;
    } while (count == PIECE);
    return true;
}

static bool are_equal_files(const char *a, const char *b) {
    FILE *left = fopen(a, "rb"), *right = fopen(b, "rb");
    bool equal = left && right && are_equal(left, right);
    if (left) fclose(left);
    if (right) fclose(right);
    return equal;
}

/* Writes the requests, or finds that those of an earlier call are the same. */
static enum err place_requests(struct evaluation *evaluation, struct error *error) {
    char fresh[PATH_MAX + 8];
    snprintf(evaluation->requests, sizeof evaluation->requests, "%.4000s/requests.jsonl",
             evaluation->folder);
    snprintf(fresh, sizeof fresh, "%s.part", evaluation->requests);
    enum err err = os_mkdirs(evaluation->folder, error);
    if (err == OK)
        err =
            requests_write(evaluation->input, evaluation->sample, fresh, &evaluation->lines, error);
    if (err != OK) return err;
    if (access(evaluation->requests, F_OK) != 0)
        return os_rename(fresh, evaluation->requests, error);
    bool is_same = are_equal_files(fresh, evaluation->requests);
    (void)unlink(fresh);
    return is_same ? OK
                   : err_set(error, ERR_INVALID,
                             "%s has an evaluation of other requests; choose another folder (-o)",
                             evaluation->folder);
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

static enum err compare(struct evaluation *evaluation, struct comparison *comparison, const char *a,
                        const char *b, struct error *error) {
    const struct comparison_options options = {
        .paths = {a, b}, .top = evaluation->top, .stop = evaluation->stop};
    return comparison_run(comparison, &options, error);
}

static enum err compare_all(struct evaluation *evaluation, struct error *error) {
    const struct candidate *candidates = evaluation->candidates;
    bool has_file = evaluation->reference && evaluation_reference(evaluation) == evaluation->count;
    enum err err = OK;
    for (size_t i = 0; i < evaluation->count && err == OK; i++) {
        for (size_t k = i + 1; k < evaluation->count && err == OK; k++)
            err = compare(evaluation, &evaluation->pairs[i][k], candidates[i].results,
                          candidates[k].results, error);
        if (err == OK && has_file)
            err = compare(evaluation, &evaluation->references[i], evaluation->reference,
                          candidates[i].results, error);
    }
    return err;
}

/* --- the whole --- */

static enum err check(const struct evaluation *evaluation, struct error *error) {
    for (size_t i = 0; i < evaluation->count; i++)
        for (size_t k = i + 1; k < evaluation->count; k++)
            if (strcmp(evaluation->candidates[i].results, evaluation->candidates[k].results) == 0)
                return err_set(error, ERR_INVALID,
                               "two models are called '%s'; name one of them (--model NAME=M)",
                               evaluation->candidates[k].name);
    if (evaluation->reference && evaluation_reference(evaluation) == evaluation->count &&
        access(evaluation->reference, R_OK) != 0)
        return err_set(error, ERR_INVALID,
                       "--compare-to: '%.200s' is neither one of the models nor a file of results",
                       evaluation->reference);
    return OK;
}

enum err evaluation_run(struct evaluation *evaluation, struct error *error) {
    for (size_t i = 0; i < evaluation->count; i++)
        candidate_place(&evaluation->candidates[i], evaluation->folder);
    enum err err = check(evaluation, error);
    if (err == OK) err = place_requests(evaluation, error);
    for (size_t i = 0; i < evaluation->count && err == OK; i++) {
        char what[CANDIDATE_NAME_BYTES + 64];
        snprintf(what, sizeof what, "running %s (%zu of %zu) ...", evaluation->candidates[i].name,
                 i + 1, evaluation->count);
        say(evaluation, what);
        err = candidate_run(&evaluation->candidates[i], evaluation->requests, evaluation->stop,
                            error);
        if (err == OK) err = candidate_read(&evaluation->candidates[i], error);
    }
    if (err == OK) say(evaluation, "comparing the answers ...");
    return err == OK ? compare_all(evaluation, error) : err;
}

void evaluation_release(struct evaluation *evaluation) {
    for (size_t i = 0; i < EVALUATION_MODELS_MAX; i++) {
        candidate_release(&evaluation->candidates[i]);
        comparison_release(&evaluation->references[i]);
        for (size_t k = 0; k < EVALUATION_MODELS_MAX; k++)
            comparison_release(&evaluation->pairs[i][k]);
    }
}
