/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/tuning.h"

#include "base/os.h"
#include "base/str.h"
#include "evaluate/choice.h"
#include "json/json.h"
#include "tune/knobs.h"
#include "tune/sample.h"
#include "tune/tune_json.h"

#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIGURES_BYTES_MAX ((size_t)1 << 20)
#define OF_BYTES_MAX ((size_t)64 << 10)
#define TRIALS "tune/trials.json"

/* --- which model --- */

static bool runs_here(const struct evaluation *evaluation, size_t place) {
    return place < evaluation->count && evaluation->candidates[place].arguments &&
           !evaluation->candidates[place].is_remote;
}

/* The place of the model to measure; the evaluation's count: none runs here. */
static size_t find_model(const struct evaluation *evaluation) {
    size_t place = choice_make(evaluation).candidate, first = 0;
    bool is_cascade = evaluation->cascade.count > 0 && place + 1 == evaluation->count;
    if (is_cascade) place = evaluation->cascade.stages[0].candidate;
    if (runs_here(evaluation, place)) return place;
    while (first < evaluation->count && !runs_here(evaluation, first)) first++;
    return first;
}

/* --- the figures on the disk --- */

/* All that the figures are of: other wishes are measured anew. */
static void write_of(struct buf *out, const struct tuning *tuning, const char *const *arguments) {
    buf_printf(out, "%" PRIu32 " lines, %zu rounds, %g s", tuning->lines, tuning->rounds,
               tuning->seconds);
    for (size_t i = 0; i < tuning->knob_count; i++) buf_printf(out, ", %s", tuning->knobs[i]);
    for (size_t i = 0; arguments[i]; i++) buf_printf(out, "\n%s", arguments[i]);
}

/* Takes the kept figures if they are of the same wishes. */
static bool find_kept(struct tuning *tuning, const char *path, struct str of) {
    char *text;
    size_t bytes;
    json_t *kept = NULL;
    struct error ignored;
    if (os_read_file(path, FIGURES_BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    enum err err = json_read(&kept, (struct str){text, bytes}, &ignored);
    free(text);
    if (err == OK && str_equals(json_str(json_member(kept, "of")), of) &&
        json_is_array(json_member(kept, "settings"))) {
        tuning->measured = kept;
        return true;
    }
    json_decref(kept);
    return false;
}

static enum err keep(const json_t *measured, const char *path, struct error *error) {
    char part[PATH_MAX + 8];
    struct buf out;
    snprintf(part, sizeof part, "%s.part", path);
    buf_init(&out, BUF_UNLIMITED);
    json_write(&out, measured);
    buf_add_byte(&out, '\n');
    enum err err = os_write_file(part, 0644, out.at, out.bytes, error);
    if (err == OK) err = os_rename(part, path, error);
    buf_release(&out);
    return err;
}

/* --- the trials --- */

/* Removes a folder of trials in the folder of tuning, with all that it has. */
static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place) {
    (void)facts;
    if (place->level > 1 || (place->level == 1 && kind == FTW_DP)) (void)remove(path);
    return 0;
}

/* Each call has a folder of its own: a run that a killed call has left may still be ending in
 * another one, and must neither be waited for nor be gone on with. */
static void remove_trials(const struct evaluation *evaluation) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.3800s/tune", evaluation->folder);
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct phase {
    struct evaluation *evaluation;
    const char *model;
};

static void say_phase(void *context, const char *what) {
    const struct phase *phase = context;
    char line[CANDIDATE_NAME_BYTES + 160];
    snprintf(line, sizeof line, "tuning %s: %.120s ...", phase->model, what);
    phase->evaluation->say(phase->evaluation->context, line);
}

static enum err measure(struct evaluation *evaluation, const struct candidate *candidate,
                        const char *kept, const char *of, struct error *error) {
    static struct knob_settings settings;
    static struct tune_baseline baseline;
    struct tuning *tuning = &evaluation->tuning;
    struct tune_figures figures = {
        .path = evaluation->input, .baseline = &baseline, .settings = settings.at};
    struct phase phase = {evaluation, candidate->name};
    char folder[PATH_MAX], sample[PATH_MAX + 16];
    struct buf text;
    remove_trials(evaluation);
    snprintf(folder, sizeof folder, "%.3800s/tune/%ld", evaluation->folder, (long)getpid());
    snprintf(sample, sizeof sample, "%s/sample.jsonl", folder);
    enum err err = os_mkdirs(folder, error);
    if (err == OK)
        err = sample_write(evaluation->requests, tuning->lines, sample, &figures.lines, error);
    if (err != OK) return err;
    knobs_list(&settings, tuning->knobs, tuning->knob_count, candidate->arguments);
    const struct tune_options options = {
        .place = {.folder = folder, .sample = sample, .stop = evaluation->stop},
        .base = candidate->arguments,
        .rounds = tuning->rounds,
        .seconds = tuning->seconds,
        .kept = kept,
        .of = of,
        .context = &phase,
        .say = evaluation->say ? say_phase : NULL};
    err = tune_run(&options, settings.at, settings.count, &baseline, error);
    if (err == OK) remove_trials(evaluation);
    if (err != OK) return err == ERR_CANCELLED ? err : err_prefix(error, "--tune");
    figures.count = settings.count;
    buf_init(&text, BUF_UNLIMITED);
    tune_json_write(&text, &figures);
    err = json_read(&tuning->measured, buf_str(&text), error);
    buf_release(&text);
    if (err != OK) return err;
    json_object_set_new(tuning->measured, "model", json_string(candidate->name));
    json_object_set_new(tuning->measured, "of", json_string(of));
    return OK;
}

enum err tuning_run(struct evaluation *evaluation, struct error *error) {
    struct tuning *tuning = &evaluation->tuning;
    char path[PATH_MAX], kept[PATH_MAX];
    struct buf of;
    size_t place = find_model(evaluation);
    if (!tuning->is_wanted) return OK;
    if (place == evaluation->count)
        return err_set(error, ERR_INVALID,
                       "--tune: no model runs here; settings of another server are its own");
    const struct candidate *candidate = &evaluation->candidates[place];
    snprintf(path, sizeof path, "%.3800s/tune.json", evaluation->folder);
    snprintf(kept, sizeof kept, "%.3800s/" TRIALS, evaluation->folder);
    buf_init(&of, OF_BYTES_MAX);
    write_of(&of, tuning, candidate->arguments);
    enum err err = OK;
    if (!find_kept(tuning, path, buf_str(&of))) {
        err = measure(evaluation, candidate, kept, of.at, error);
        if (err == OK) err = keep(tuning->measured, path, error);
        if (err == OK) (void)unlink(kept); /* its figures are in the other */
    }
    buf_release(&of);
    return err;
}

/* --- what it means --- */

static double number_at(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void set_number(json_t *object, const char *name, double value) {
    json_object_set_new(object, name, isfinite(value) ? json_real(value) : json_null());
}

/* What a ratio of rates saves of so many seconds. */
static double saved(double of, double ratio) {
    return of * (1 - 1 / ratio);
}

static json_t *saving_of(const struct candidate *candidate, const json_t *setting,
                         double joules_today, uint64_t requests) {
    const json_t *ratio = json_object_get(setting, "ratio");
    double mean = number_at(ratio, "mean");
    double seconds = (double)requests / candidate->requests_per_s;
    double of_energy = 1 - number_at(setting, "joules_per_request") / joules_today;
    json_t *own = json_pack("{s:I}", "requests", (json_int_t)requests);
    set_number(own, "seconds", saved(seconds, mean));
    set_number(own, "seconds_low", saved(seconds, number_at(ratio, "low")));
    set_number(own, "seconds_high", saved(seconds, number_at(ratio, "high")));
    set_number(own, "watt_hours", of_energy * candidate_cost(candidate, "watt_hours", requests));
    set_number(own, "electricity", of_energy * candidate_cost(candidate, "electricity", requests));
    set_number(own, "rented_gpu", saved(candidate_cost(candidate, "rented_gpu", requests), mean));
    return own;
}

static json_t *savings_of(const struct candidate *candidate, const json_t *setting,
                          double joules_today) {
    struct str verdict = json_str(json_object_get(setting, "verdict"));
    if (!str_is(verdict, "faster") && !str_is(verdict, "slower")) return json_null();
    json_t *list = json_array();
    for (size_t i = 0; i < EVALUATION_JOBS; i++)
        json_array_append_new(list,
                              saving_of(candidate, setting, joules_today, evaluation_jobs[i]));
    return list;
}

static json_t *effort_of(const json_t *setting, const json_t *today, uint64_t lines) {
    uint64_t failed = (uint64_t)json_integer_value(json_object_get(setting, "failed"));
    uint64_t failed_today = (uint64_t)json_integer_value(json_object_get(today, "failed"));
    double equal = number_at(setting, "equal_share"), usual = number_at(today, "equal_share");
    const char *kind = "restart";
    char text[200] = "one option at the next start; the answers stay";
    if (failed > failed_today) {
        kind = "unusable";
        snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " requests fail with it", failed,
                 lines);
    } else if (isfinite(equal) && equal < fmin(usual, 1)) {
        kind = "judge_again";
        snprintf(text, sizeof text,
                 "one option, and %.1f %% of the answers differ: compare them before use",
                 100 * (1 - equal));
    }
    return json_pack("{s:s,s:s}", "kind", kind, "text", text);
}

json_t *tuning_json(const struct evaluation *evaluation) {
    const json_t *measured = evaluation->tuning.measured;
    struct str name = json_str(json_object_get(measured, "model"));
    size_t place = 0, index;
    json_t *setting;
    if (!measured) return NULL;
    while (place < evaluation->count &&
           !str_equals(name, str_from(evaluation->candidates[place].name)))
        place++;
    json_t *own = json_deep_copy(measured);
    const json_t *today = json_object_get(own, "today");
    uint64_t lines = (uint64_t)json_integer_value(json_object_get(own, "lines"));
    json_object_del(own, "of");
    json_array_foreach(json_object_get(own, "settings"), index, setting) {
        if (json_integer_value(json_object_get(setting, "rounds")) == 0) continue;
        if (place < evaluation->count)
            json_object_set_new(setting, "saving",
                                savings_of(&evaluation->candidates[place], setting,
                                           number_at(today, "joules_per_request")));
        json_object_set_new(setting, "effort", effort_of(setting, today, lines));
    }
    return own;
}

void tuning_release(struct tuning *tuning) {
    json_decref(tuning->measured);
    tuning->measured = NULL;
}
