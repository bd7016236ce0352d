/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/evaluation_json.h"

#include "bench/machine.h"
#include "compare/comparison_json.h"
#include "evaluate/choice.h"
#include "json/json.h"

#include <math.h>
#include <string.h>

static const char *const cost_names[] = {"watt_hours", "electricity", "rented_gpu", "managed_api"};

/* A figure that is not known is null. */
static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count(uint64_t value) {
    return json_integer((json_int_t)value);
}

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

/* The name of a file of the folder. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- models --- */

static json_t *jobs_of(const struct candidate *candidate) {
    json_t *list = json_array();
    for (size_t i = 0; i < EVALUATION_JOBS; i++) {
        uint64_t requests = evaluation_jobs[i];
        json_t *job = json_object();
        json_object_set_new(job, "requests", count(requests));
        json_object_set_new(job, "seconds", number(candidate_seconds(candidate, requests)));
        for (size_t k = 0; k < sizeof cost_names / sizeof *cost_names; k++)
            json_object_set_new(job, cost_names[k],
                                number(candidate_cost(candidate, cost_names[k], requests)));
        json_array_append_new(list, job);
    }
    return list;
}

/* Shares of the window; null of an upstream, whose window is not known. */
static json_t *context_of(const struct candidate *candidate) {
    json_t *context = json_object();
    bool has_answers = candidate->answered > 0;
    const struct {
        const char *name;
        double tokens;
    } shares[] = {{"mean_share", candidate->tokens_mean},
                  {"p95_share", has_answers ? (double)candidate->tokens_p95 : (double)NAN},
                  {"max_share", has_answers ? (double)candidate->tokens_max : (double)NAN}};
    json_object_set_new(context, "tokens",
                        candidate->context_tokens > 0 ? count(candidate->context_tokens)
                                                      : json_null());
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        json_object_set_new(context, shares[i].name,
                            number(candidate_context_share(candidate, shares[i].tokens)));
    return context;
}

/* How much of all requests the best ones took. */
static json_t *top_of(const struct evaluation *evaluation, const struct top_k *top,
                      const struct candidate *candidate) {
    json_t *own =
        json_pack("{s:s,s:s}", "by", evaluation->by, "lines", name_of(candidate->lines_path));
    json_object_set_new(own, "k", count(evaluation->top_k));
    json_object_set_new(own, "requests", count(top->requests));
    json_object_set_new(own, "whole", count(top->whole));
    json_object_set_new(own, "short_only", count(top->short_only));
    json_object_set_new(own, "left_out", count(top->left_out));
    json_object_set_new(own, "rounds", count(top->rounds));
    json_object_set_new(own, "computed_tokens", count(top->computed_tokens));
    json_object_set_new(own, "tokens_per_whole", number(top->tokens_per_whole));
    json_object_set_new(own, "computed_share", number(top_k_share(top)));
    return own;
}

static json_t *model_of(const struct candidate *candidate) {
    double answers_per_s =
        candidate->requests_per_s * share(candidate->completion_tokens, candidate->answered);
    json_t *model = json_pack("{s:s,s:s}", "name", candidate->name, "results", candidate->results);
    json_object_set_new(model, "requests", count(candidate->lines));
    json_object_set_new(model, "answered", count(candidate->answered));
    json_object_set_new(model, "failed", count(candidate->lines - candidate->answered));
    json_object_set_new(model, "truncated", count(candidate->truncated));
    json_object_set_new(model, "empty", count(candidate->empty));
    json_object_set_new(model, "valid_share", number(candidate_valid_share(candidate)));
    json_object_set_new(model, "req_s", number(candidate->requests_per_s));
    json_object_set_new(model, "output_tokens_s", number(answers_per_s));
    json_object_set_new(model, "load_seconds", number(candidate->load_seconds));
    json_object_set_new(model, "prompt_tokens", count(candidate->prompt_tokens));
    json_object_set_new(model, "cached_tokens", count(candidate->cached_tokens));
    json_object_set_new(model, "completion_tokens", count(candidate->completion_tokens));
    json_object_set_new(model, "tokens_per_request",
                        json_pack("{s:I,s:I,s:I}", "p50", (json_int_t)candidate->tokens_p50, "p95",
                                  (json_int_t)candidate->tokens_p95, "max",
                                  (json_int_t)candidate->tokens_max));
    json_object_set_new(model, "context", context_of(candidate));
    json_object_set_new(model, "jobs", jobs_of(candidate));
    json_object_set_new(model, "summary",
                        candidate->summary ? json_incref(candidate->summary) : json_null());
    return model;
}

/* --- answers next to each other --- */

/* The figures of `quern compare`, with the names of both sides. */
static json_t *agreement_of(const char *a, const char *b, const struct comparison *is) {
    json_t *own = NULL;
    struct error error;
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_byte(&text, '{');
    comparison_json_write(&text, is);
    buf_add_byte(&text, '}');
    if (json_read(&own, buf_str(&text), &error) != OK)
        own = json_pack("{s:s}", "error", error.text);
    buf_release(&text);
    json_object_set_new(own, "a", json_string(a));
    json_object_set_new(own, "b", json_string(b));
    if (is->answered_in_both == 0) json_object_set_new(own, "agreement", json_null());
    return own;
}

static json_t *agreements_of(const struct evaluation *evaluation) {
    json_t *list = json_array();
    const struct candidate *candidates = evaluation->candidates;
    bool has_file = evaluation->reference && evaluation_reference(evaluation) == evaluation->count;
    for (size_t i = 0; i < evaluation->count; i++) {
        for (size_t k = i + 1; k < evaluation->count; k++)
            json_array_append_new(list, agreement_of(candidates[i].name, candidates[k].name,
                                                     &evaluation->pairs[i][k]));
        if (has_file)
            json_array_append_new(list, agreement_of(evaluation->reference, candidates[i].name,
                                                     &evaluation->references[i]));
    }
    return list;
}

/* --- a cascade --- */

/* What a stage took; null of one that got no requests. */
static json_t *stage_of(const struct evaluation *evaluation, const struct cascade_stage *stage) {
    const struct candidate *is = &evaluation->candidates[stage->candidate];
    const json_t *once = json_object_get(json_object_get(is->summary, "costs"), "once");
    json_t *own = json_pack("{s:s}", "name", is->name);
    json_object_set_new(own, "requests", count(stage->requests));
    json_object_set_new(own, "requests_share", number(share(stage->requests, evaluation->lines)));
    json_object_set_new(own, "answers", count(stage->answers));
    json_object_set_new(own, "share", number(share(stage->answers, evaluation->lines)));
    json_object_set_new(own, "confidence_unknown", count(stage->unknown));
    json_object_set_new(own, "prompt_tokens", count(is->prompt_tokens));
    json_object_set_new(own, "completion_tokens", count(is->completion_tokens));
    json_object_set_new(own, "seconds",
                        number(is->summary ? candidate_seconds(is, stage->requests) : (double)NAN));
    for (size_t i = 0; i < sizeof cost_names / sizeof *cost_names; i++)
        json_object_set_new(own, cost_names[i],
                            json_is_number(json_object_get(once, cost_names[i]))
                                ? json_incref(json_object_get(once, cost_names[i]))
                                : json_null());
    return own;
}

static json_t *cascade_of(const struct evaluation *evaluation) {
    const struct cascade *cascade = &evaluation->cascade;
    json_t *models = json_array();
    for (size_t i = 0; i < cascade->count; i++)
        json_array_append_new(models, stage_of(evaluation, &cascade->stages[i]));
    return json_pack("{s:f,s:s,s:o}", "until", cascade->until, "lines",
                     name_of(evaluation->candidates[evaluation->count - 1].lines_path), "models",
                     models);
}

/* --- the whole --- */

static json_t *judged_of(const struct judged *judged) {
    json_t *own = json_pack("{s:s}", "results", judged->path);
    json_object_set_new(own, "lines", count(judged->lines));
    json_object_set_new(own, "disputed", count(judged->disputed));
    json_object_set_new(own, "without_opinion", count(judged->skipped));
    return own;
}

static json_t *choice_of(const struct evaluation *evaluation) {
    struct choice choice = choice_make(evaluation);
    json_t *own = json_object(), *reasons = json_array();
    json_object_set_new(own, "model",
                        choice.candidate < evaluation->count
                            ? json_string(evaluation->candidates[choice.candidate].name)
                            : json_null());
    for (size_t i = 0; i < choice.reason_count; i++)
        json_array_append_new(reasons, json_string(choice.reasons[i]));
    json_object_set_new(own, "reasons", reasons);
    return own;
}

static json_t *machine_of(void) {
    static struct machine machine;
    machine_describe(&machine);
    json_t *own =
        json_pack("{s:s,s:s,s:I,s:s}", "processor", machine.processor, "kernel", machine.kernel,
                  "cores", (json_int_t)machine.cores, "command", machine.command);
    json_object_set_new(own, "memory_bytes", count(machine.memory_bytes));
    return own;
}

void evaluation_json_write(struct buf *out, const struct evaluation *evaluation) {
    json_t *whole = json_object(), *models = json_array();
    json_object_set_new(whole, "input", json_string(evaluation->input));
    json_object_set_new(whole, "requests", count(evaluation->lines));
    json_object_set_new(whole, "reference",
                        evaluation->reference ? json_string(evaluation->reference) : json_null());
    if (evaluation->judged.is_made)
        json_object_set_new(whole, "judged", judged_of(&evaluation->judged));
    for (size_t i = 0; i < evaluation->count; i++)
        json_array_append_new(models, model_of(&evaluation->candidates[i]));
    for (size_t i = 0; i < evaluation->count && evaluation->top_k > 0; i++)
        json_object_set_new(json_array_get(models, i), "top_k",
                            top_of(evaluation, &evaluation->tops[i], &evaluation->candidates[i]));
    json_object_set_new(whole, "models", models);
    if (evaluation->cascade.count > 0)
        json_object_set_new(whole, "cascade", cascade_of(evaluation));
    json_object_set_new(whole, "agreement", agreements_of(evaluation));
    json_object_set_new(whole, "choice", choice_of(evaluation));
    json_t *tuning = tuning_json(evaluation);
    if (tuning) json_object_set_new(whole, "tuning", tuning);
    json_object_set_new(whole, "machine", machine_of());
    json_write(out, whole);
    buf_add_byte(out, '\n');
    json_decref(whole);
}
