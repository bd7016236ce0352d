/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/evaluation_page.h"

#include "base/clock.h"
#include "base/str.h"
#include "bench/machine.h"
#include "bench/plot.h"
#include "costs/costs.h"
#include "evaluate/choice.h"
#include "evaluate/tuning_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>quern evaluate</title>\n"
    "<style>\n:root{color-scheme:light dark;--ink:#1c2128;--soft:#59636e;--rule:#d1d9e0;"
    "--page:#fff}\n@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;"
    "--rule:#3d444d;--page:#0d1117}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);"
    "max-width:1100px;margin:2em auto;padding:0 1em}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}"
    "th,td{padding:.25em .6em;border-bottom:1px solid var(--rule);text-align:right;"
    "vertical-align:top}th:first-child,td:first-child{text-align:left}"
    "div.wide{overflow-x:auto}small{color:var(--soft)}"
    "td.answer{text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;width:45%;"
    "font-variant-numeric:normal}\n"
    "pre{overflow-x:auto;padding:.8em;border:1px solid var(--rule)}"
    "\n</style></head><body>\n<h1>quern evaluate</h1>\n";

static void add_cell(struct buf *out, double value, const char *format) {
    char text[48];
    if (!isfinite(value)) {
        buf_add_text(out, "<td>-</td>");
        return;
    }
    /* The formats are this file's own. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
    buf_printf(out, "<td>%s</td>", text);
}

static void add_named(struct buf *out, const char *name) {
    buf_add_text(out, "<tr><td>");
    plot_write_text(out, name);
    buf_add_text(out, "</td>");
}

/* --- models --- */

static void write_models(struct buf *out, const struct evaluation *evaluation) {
    buf_add_text(out, "<h2>Models</h2>\n<div class=\"wide\"><table><tr><th>model</th>"
                      "<th>answered</th><th>failed</th><th>valid %</th><th>truncated</th>"
                      "<th>empty</th><th>req/s</th><th>output tok/s</th><th>tokens p50</th>"
                      "<th>p95</th><th>most</th><th>window % mean</th><th>p95</th>"
                      "<th>load s</th></tr>\n");
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct candidate *is = &evaluation->candidates[i];
        double tokens =
            is->answered > 0 ? (double)is->completion_tokens / (double)is->answered : (double)NAN;
        add_named(out, is->name);
        buf_printf(out, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td>", is->answered,
                   is->lines - is->answered);
        add_cell(out, 100 * candidate_valid_share(is), "%.1f");
        buf_printf(out, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td>", is->truncated, is->empty);
        add_cell(out, is->requests_per_s, "%.4g");
        add_cell(out, is->requests_per_s * tokens, "%.4g");
        buf_printf(out, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td>",
                   is->tokens_p50, is->tokens_p95, is->tokens_max);
        add_cell(out, 100 * candidate_context_share(is, is->tokens_mean), "%.1f");
        add_cell(out, 100 * candidate_context_share(is, (double)is->tokens_p95), "%.1f");
        add_cell(out, is->load_seconds, "%.1f");
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table></div>\n");
}

/* "2.5 h; 1200 Wh; 3.10 electricity": what is known of a job. */
static void add_job(struct buf *out, const struct candidate *candidate, uint64_t requests) {
    static const struct {
        const char *name, *unit;
    } costs[] = {{"watt_hours", "Wh"},
                 {"electricity", "electricity"},
                 {"rented_gpu", "rented"},
                 {"managed_api", "API"}};
    double seconds = candidate_seconds(candidate, requests);
    buf_add_text(out, "<td>");
    if (isfinite(seconds))
        cost_seconds_write(out, seconds);
    else
        buf_add_text(out, "-");
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        double cost = candidate_cost(candidate, costs[i].name, requests);
        if (isfinite(cost)) buf_printf(out, "<br><small>%.4g %s</small>", cost, costs[i].unit);
    }
    buf_add_text(out, "</td>");
}

/* The models of a cascade: who answered how much, in which time and at which cost. */
static void write_cascade(struct buf *out, const struct evaluation *evaluation) {
    const struct cascade *cascade = &evaluation->cascade;
    if (cascade->count == 0) return;
    buf_printf(out,
               "<h2>Cascade</h2>\n<p>An answer stands from a confidence of %g on; without one the "
               "next model gets the request. The answers that stand are those of <b>" CASCADE_NAME
               "</b> in the other tables.</p>\n<div class=\"wide\"><table><tr><th>model</th>"
               "<th>requests</th><th>answers</th><th>answers %%</th><th>confidence unknown</th>"
               "<th>tokens in</th><th>tokens out</th><th>time and cost</th></tr>\n",
               cascade->until);
    for (size_t i = 0; i < cascade->count; i++) {
        const struct cascade_stage *stage = &cascade->stages[i];
        const struct candidate *is = &evaluation->candidates[stage->candidate];
        add_named(out, is->name);
        buf_printf(out, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td>", stage->requests,
                   stage->answers);
        add_cell(out, 100 * (double)stage->answers / (double)evaluation->lines, "%.1f");
        buf_printf(out, "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td>",
                   stage->unknown, is->prompt_tokens, is->completion_tokens);
        add_job(out, is, stage->requests);
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table></div>\n");
}

/* How much of all requests the best ones took. */
static void write_top(struct buf *out, const struct evaluation *evaluation) {
    if (evaluation->top_k == 0) return;
    buf_printf(out, "<h2>The best %" PRIu64 " by <i>", evaluation->top_k);
    plot_write_text(out, evaluation->by);
    buf_add_text(out,
                 "</i></h2>\n<p>A request is computed short if only its value is, and left out "
                 "if it could not be among the best any more. The share is an estimate by the "
                 "tokens of requests that were computed whole. Agreement and rows below are "
                 "of the best alone.</p>\n<div class=\"wide\"><table><tr><th>model</th>"
                 "<th>requests</th><th>whole</th><th>short only</th><th>left out</th>"
                 "<th>rounds</th><th>tokens</th><th>computed %</th></tr>\n");
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct top_k *top = &evaluation->tops[i];
        add_named(out, evaluation->candidates[i].name);
        buf_printf(out,
                   "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64
                   "</td><td>%zu</td><td>%" PRIu64 "</td>",
                   top->requests, top->whole, top->short_only, top->left_out, top->rounds,
                   top->computed_tokens);
        add_cell(out, 100 * top_k_share(top), "%.1f");
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table></div>\n");
}

static void write_jobs(struct buf *out, const struct evaluation *evaluation) {
    buf_add_text(out, "<h2>Time and cost of a whole job</h2>\n<p>By the rate of this sample, with "
                      "loading; the costs are those whose prices were given.</p>\n"
                      "<div class=\"wide\"><table><tr><th>model</th>");
    for (size_t i = 0; i < EVALUATION_JOBS; i++)
        buf_printf(out, "<th>%" PRIu64 " requests</th>", evaluation_jobs[i]);
    buf_add_text(out, "</tr>\n");
    for (size_t i = 0; i < evaluation->count; i++) {
        add_named(out, evaluation->candidates[i].name);
        for (size_t k = 0; k < EVALUATION_JOBS; k++)
            add_job(out, &evaluation->candidates[i], evaluation_jobs[k]);
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table></div>\n");
}

/* --- answers next to each other --- */

static const struct comparison *pair_of(const struct evaluation *evaluation, size_t i, size_t k) {
    return i < k ? &evaluation->pairs[i][k] : &evaluation->pairs[k][i];
}

static void write_matrix(struct buf *out, const struct evaluation *evaluation) {
    if (evaluation->count < 2) return;
    buf_add_text(out,
                 "<h2>Agreement</h2>\n<p>The share of equal scores and labels, in %, among the "
                 "requests that both models answer.</p>\n<div class=\"wide\"><table><tr>"
                 "<th></th>");
    for (size_t i = 0; i < evaluation->count; i++) {
        buf_add_text(out, "<th>");
        plot_write_text(out, evaluation->candidates[i].name);
        buf_add_text(out, "</th>");
    }
    buf_add_text(out, "</tr>\n");
    for (size_t i = 0; i < evaluation->count; i++) {
        add_named(out, evaluation->candidates[i].name);
        for (size_t k = 0; k < evaluation->count; k++) {
            const struct comparison *pair = i != k ? pair_of(evaluation, i, k) : NULL;
            add_cell(out,
                     pair && pair->answered_in_both > 0 ? 100 * comparison_agreement(pair)
                                                        : (double)NAN,
                     "%.1f");
        }
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table></div>\n");
}

static void add_interval(struct buf *out, double value, double low, double high, bool is_known) {
    if (is_known && isfinite(low))
        buf_printf(out, "<td>%.3f <small>%.3f to %.3f</small></td>", value, low, high);
    else if (is_known)
        buf_printf(out, "<td>%.3f</td>", value);
    else
        buf_add_text(out, "<td>-</td>");
}

static void write_field(struct buf *out, const struct comparison_field *field) {
    uint64_t rows = field->both + field->only_in[COMPARISON_A] + field->only_in[COMPARISON_B];
    double low = NAN, high = NAN;
    const struct ranks *ranks = &field->ranks;
    (void)(ranks->is_known && ranks_interval(ranks->spearman, field->pair_count, &low, &high));
    add_named(out, field->name);
    buf_printf(out, "<td>%" PRIu64 "</td>", rows);
    add_cell(out, rows > 0 ? 100 * (double)field->equal / (double)rows : (double)NAN, "%.1f");
    add_cell(out, field->pair_count > 0 ? field->shift : (double)NAN, "%+.3g");
    add_interval(out, ranks->spearman, low, high, ranks->is_known);
    add_interval(out, field->kappa.value, field->kappa.low, field->kappa.high,
                 field->kappa.is_known);
    buf_add_text(out, "</tr>\n");
}

static void write_most(struct buf *out, const struct comparison *is, const char *a, const char *b) {
    if (is->most_count == 0) return;
    buf_add_text(out, "<h4>Rows that differ most</h4>\n<table><tr><th>custom_id</th><th>");
    plot_write_text(out, a);
    buf_add_text(out, "</th><th>");
    plot_write_text(out, b);
    buf_add_text(out, "</th></tr>\n");
    for (size_t i = 0; i < is->most_count; i++) {
        const struct comparison_row *row = &is->most[i];
        add_named(out, row->custom_id);
        for (int side = 0; side < COMPARISON_SIDES; side++) {
            buf_add_text(out, "<td class=\"answer\">");
            plot_write_text(out, row->answers[side]);
            buf_add_text(out, "</td>");
        }
        buf_add_text(out, "</tr>\n");
    }
    buf_add_text(out, "</table>\n");
}

static void write_pair(struct buf *out, const struct comparison *is, const char *a, const char *b) {
    buf_add_text(out, "<h3>");
    plot_write_text(out, a);
    buf_add_text(out, " and ");
    plot_write_text(out, b);
    buf_printf(
        out,
        "</h3>\n<p>Both answer %" PRIu64 " %s; all values are equal in %" PRIu64 " of them.</p>\n",
        is->answered_in_both, plural(is->answered_in_both, "request", "requests"), is->equal);
    buf_add_text(out, "<div class=\"wide\"><table><tr><th>field</th><th>rows</th><th>equal %</th>"
                      "<th>mean shift</th><th>Spearman <small>95 %</small></th>"
                      "<th>Cohen's kappa <small>95 %</small></th></tr>\n");
    for (size_t i = 0; i < is->field_count; i++) write_field(out, &is->fields[i]);
    buf_add_text(out, "</table></div>\n");
    write_most(out, is, a, b);
}

/* With a reference, each model next to it; else each pair. */
static void write_pairs(struct buf *out, const struct evaluation *evaluation) {
    const struct candidate *candidates = evaluation->candidates;
    size_t reference = evaluation_reference(evaluation);
    for (size_t i = 0; i < evaluation->count; i++) {
        const struct comparison *compared = evaluation_compared(evaluation, i);
        if (compared && i < reference && reference < evaluation->count)
            write_pair(out, compared, candidates[i].name, evaluation->reference);
        else if (compared)
            write_pair(out, compared, evaluation->reference, candidates[i].name);
        for (size_t k = i + 1; k < evaluation->count && !evaluation->reference; k++)
            write_pair(out, &evaluation->pairs[i][k], candidates[i].name, candidates[k].name);
    }
}

/* --- the whole --- */

static void write_choice(struct buf *out, const struct evaluation *evaluation) {
    struct choice choice = choice_make(evaluation);
    buf_add_text(out, "<h2>Choice</h2>\n<p>");
    if (choice.candidate < evaluation->count) {
        buf_add_text(out, "<b>");
        plot_write_text(out, evaluation->candidates[choice.candidate].name);
        buf_add_text(out, "</b></p><ul>");
    } else {
        buf_add_text(out, "None.</p><ul>");
    }
    for (size_t i = 0; i < choice.reason_count; i++) {
        buf_add_text(out, "<li>");
        plot_write_text(out, choice.reasons[i]);
        buf_add_text(out, "</li>\n");
    }
    buf_printf(out,
               "</ul>\n<p><small>A model passes with at most %.0f points fewer answered requests "
               "and valid shapes than the best, and at most %.0f points less agreement with the "
               "reference.</small></p>\n",
               100 * CHOICE_SHARE_SLACK, 100 * CHOICE_AGREEMENT_SLACK);
}

static void write_machine(struct buf *out) {
    static struct machine machine;
    char date[32] = "";
    struct tm tm;
    time_t now = (time_t)clock_unix_s();
    machine_describe(&machine);
    if (gmtime_r(&now, &tm)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    buf_add_text(out, "<h2>Machine and command</h2>\n<p>");
    plot_write_text(out, machine.processor);
    buf_printf(out, ", %ld cores, %.1f GiB, ", machine.cores,
               (double)machine.memory_bytes / (double)(1 << 30));
    plot_write_text(out, machine.kernel);
    buf_printf(out, "; quern " QUERN_VERSION "; %s.</p>\n<pre>", date);
    plot_write_text(out, machine.command);
    buf_add_text(out, "</pre>\n");
}

static void write_judged(struct buf *out, const struct judged *judged) {
    if (!judged->is_made) return;
    buf_printf(out,
               ": %" PRIu64 " %s judged, %" PRIu64 " in dispute, %" PRIu64
               " without an opinion; only judged fields are compared",
               judged->lines, plural(judged->lines, "request is", "requests are"), judged->disputed,
               judged->skipped);
}

void evaluation_page_write(struct buf *out, const struct evaluation *evaluation) {
    buf_add_text(out, head);
    buf_add_text(out, "<p>");
    plot_write_text(out, evaluation->input);
    buf_printf(out, ", %" PRIu64 " %s", evaluation->lines,
               plural(evaluation->lines, "request", "requests"));
    if (evaluation->reference) {
        buf_add_text(out, ", reference ");
        plot_write_text(out, evaluation->reference);
    }
    write_judged(out, &evaluation->judged);
    buf_add_text(out, "</p>\n");
    write_choice(out, evaluation);
    write_models(out, evaluation);
    write_cascade(out, evaluation);
    write_top(out, evaluation);
    write_jobs(out, evaluation);
    tuning_page_write(out, evaluation);
    write_matrix(out, evaluation);
    write_pairs(out, evaluation);
    write_machine(out);
    buf_add_text(out, "</body></html>\n");
}
