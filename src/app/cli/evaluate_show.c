/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/evaluate_show.h"

#include "base/buf.h"
#include "base/printable.h"
#include "base/str.h"
#include "costs/costs.h"
#include "evaluate/choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define NAME_COLUMNS 28

static void print_figure(double value, const char *unit) {
    if (isfinite(value))
        printf(" %9.4g%s", value, unit);
    else
        printf(" %9s%*s", "-", (int)str_from(unit).bytes, "");
}

static void print_models(const struct evaluation *evaluation) {
    printf("%-*s answered  failed   valid %% truncated      req/s  tokens p50     p95  window %%\n",
           NAME_COLUMNS, "model");
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct candidate *is = &evaluation->candidates[i];
        printf("%-*.*s %8" PRIu64 " %7" PRIu64, NAME_COLUMNS, NAME_COLUMNS,
               printable(is->name).text, is->answered, is->lines - is->answered);
        print_figure(100 * candidate_valid_share(is), "");
        printf(" %9" PRIu64, is->truncated);
        print_figure(is->requests_per_s, "");
        printf(" %11" PRIu64 " %7" PRIu64, is->tokens_p50, is->tokens_p95);
        print_figure(100 * candidate_context_share(is, (double)is->tokens_p95), "");
        printf("\n");
    }
}

static void print_cascade(const struct evaluation *evaluation) {
    const struct cascade *cascade = &evaluation->cascade;
    if (cascade->count == 0) return;
    printf("\n%-*s requests  answers         %%  unknown   seconds  tokens in tokens out\n",
           NAME_COLUMNS, "cascade");
    for (size_t i = 0; i < cascade->count; i++) {
        const struct cascade_stage *stage = &cascade->stages[i];
        const struct candidate *is = &evaluation->candidates[stage->candidate];
        printf("%-*.*s %8" PRIu64 " %8" PRIu64, NAME_COLUMNS, NAME_COLUMNS,
               printable(is->name).text, stage->requests, stage->answers);
        print_figure(100 * (double)stage->answers / (double)evaluation->lines, "");
        printf(" %8" PRIu64, stage->unknown);
        print_figure(is->summary ? candidate_seconds(is, stage->requests) : (double)NAN, "");
        printf(" %10" PRIu64 " %10" PRIu64 "\n", is->prompt_tokens, is->completion_tokens);
    }
    const struct candidate *first = &evaluation->candidates[cascade->stages[0].candidate];
    if (first->answered > 0 && cascade->stages[0].unknown == first->answered)
        printf("No answer of %s has a confidence: these are neither decisions nor several answers "
               "(n) of a request.\n",
               printable(first->name).text);
}

static void print_top(const struct evaluation *evaluation) {
    if (evaluation->top_k == 0) return;
    printf("\nThe best %" PRIu64 " by %s\n", evaluation->top_k, printable(evaluation->by).text);
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct top_k *top = &evaluation->tops[i];
        printf("  %s: %" PRIu64 " of %" PRIu64 " %s computed whole, %" PRIu64
               " short only, %" PRIu64 " left out;",
               printable(evaluation->candidates[i].name).text, top->whole, top->requests,
               plural(top->requests, "request", "requests"), top->short_only, top->left_out);
        print_figure(100 * top_k_share(top), " %");
        printf(" of all tokens, by those of whole requests\n");
    }
}

/* A duration in eleven columns, with its sign. */
static void print_duration(double value) {
    struct buf text;
    buf_init(&text, 64);
    if (value < 0) buf_add_byte(&text, '-');
    if (isfinite(value))
        cost_seconds_write(&text, fabs(value));
    else
        buf_add_byte(&text, '-');
    printf(" %10.*s", STR_ARGS(buf_str(&text)));
    buf_release(&text);
}

static void print_jobs(const struct evaluation *evaluation) {
    printf("\n%-*s", NAME_COLUMNS, "time of a whole job");
    for (size_t i = 0; i < EVALUATION_JOBS; i++) printf(" %10" PRIu64, evaluation_jobs[i]);
    printf(" requests\n");
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct candidate *is = &evaluation->candidates[i];
        printf("%-*.*s", NAME_COLUMNS, NAME_COLUMNS, printable(is->name).text);
        for (size_t k = 0; k < EVALUATION_JOBS; k++) {
            print_duration(candidate_seconds(is, evaluation_jobs[k]));
        }
        printf("\n");
    }
}

static void print_agreement(const struct evaluation *evaluation) {
    if (evaluation->count < 2) return;
    printf("\nEqual scores and labels, of requests that both answer\n");
    for (size_t i = 0; i < evaluation->count; i++)
        for (size_t k = i + 1; k < evaluation->count; k++) {
            const struct comparison *pair = &evaluation->pairs[i][k];
            printf("  %s and ", printable(evaluation->candidates[i].name).text);
            printf("%s:", printable(evaluation->candidates[k].name).text);
            print_figure(
                pair->answered_in_both > 0 ? 100 * comparison_agreement(pair) : (double)NAN, " %");
            printf(" of %" PRIu64 " %s\n", pair->answered_in_both,
                   plural(pair->answered_in_both, "request", "requests"));
        }
}

static void print_known(const json_t *value, double times) {
    print_figure(json_is_number(value) ? times * json_number_value(value) : (double)NAN, "");
}

/* Impact, saving and effort of each setting; "saves" is of the third size of a job. */
static void print_tuning(const struct evaluation *evaluation) {
    json_t *tuning = tuning_json(evaluation), *setting;
    size_t index;
    if (!tuning) return;
    const char *model = json_string_value(json_object_get(tuning, "model"));
    printf("\n%-38s     ratio (low to high)   equal %%      saves  of %" PRIu64 " requests of %s\n",
           "setting, one at a time", evaluation_jobs[EVALUATION_JOBS - 2], printable(model).text);
    json_array_foreach(json_object_get(tuning, "settings"), index, setting) {
        const json_t *ratio = json_object_get(setting, "ratio");
        const json_t *saving =
            json_array_get(json_object_get(setting, "saving"), EVALUATION_JOBS - 2);
        printf("%-38s ", json_string_value(json_object_get(setting, "options")));
        if (!ratio) {
            const char *why = json_string_value(json_object_get(setting, "why_not"));
            printf("not measured: %s\n", printable(why).text);
            continue;
        }
        printf("    %5.2f (%.2f to %.2f)   ", json_number_value(json_object_get(ratio, "mean")),
               json_number_value(json_object_get(ratio, "low")),
               json_number_value(json_object_get(ratio, "high")));
        print_known(json_object_get(setting, "equal_share"), 100);
        print_duration(json_is_number(json_object_get(saving, "seconds"))
                           ? json_number_value(json_object_get(saving, "seconds"))
                           : (double)NAN);
        printf("  %s; %s\n", json_string_value(json_object_get(setting, "verdict")),
               json_string_value(json_object_get(json_object_get(setting, "effort"), "text")));
    }
    json_decref(tuning);
}

void evaluate_show_table(const struct evaluation *evaluation) {
    struct choice choice = choice_make(evaluation);
    print_models(evaluation);
    print_cascade(evaluation);
    print_top(evaluation);
    print_jobs(evaluation);
    print_tuning(evaluation);
    print_agreement(evaluation);
    printf("\nChoice: %s\n", choice.candidate < evaluation->count
                                 ? printable(evaluation->candidates[choice.candidate].name).text
                                 : "none");
    for (size_t i = 0; i < choice.reason_count; i++)
        printf("  %s\n", printable(choice.reasons[i]).text);
    printf("\nReport: %s/report.html\n", printable(evaluation->folder).text);
}
