/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/preflight_show.h"

#include "base/printable.h"
#include "base/str.h"

#include <stdio.h>

#define BAR_WIDTH 36
#define WAIT_SHARE_TOLD 0.1 /* a smaller share widens the range by 20 % at most */

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_time(const char *label, double seconds) {
    if (seconds < 120)
        printf("%s%.1f s", label, seconds);
    else if (seconds < 7200)
        printf("%s%.0f min", label, seconds / 60);
    else
        printf("%s%.1f h", label, seconds / 3600);
}

static void print_histogram(const struct lengths *lengths) {
    uint64_t most = 1;
    for (size_t i = 0; i < lengths->bin_count; i++)
        if (lengths->bins[i].count > most) most = lengths->bins[i].count;
    for (size_t i = 0; i < lengths->bin_count; i++) {
        char bar[BAR_WIDTH + 1];
        size_t width = (size_t)((lengths->bins[i].count * BAR_WIDTH + most - 1) / most);
        for (size_t j = 0; j < BAR_WIDTH; j++) bar[j] = j < width ? '#' : ' ';
        bar[BAR_WIDTH] = '\0';
        printf("  %8u+  %s %llu\n", lengths->bins[i].from, bar,
               (unsigned long long)lengths->bins[i].count);
    }
}

static void print_requests(const struct preflight *is, const char *path) {
    printf("%s: %llu %s for %s, %.1f MB, read in %.1f s\n", printable(path).text,
           (unsigned long long)is->requests, plural(is->requests, "request", "requests"),
           printable(is->model).text, (double)is->bytes / 1e6, is->count_seconds);
    if (is->is_guess)
        printf("  There is no tokenizer of this model here: lengths are an ESTIMATE, one token "
               "for four bytes.\n");
    for (size_t i = 0; i < LINE_CHECK_FAULTS_MAX && i < is->faulty; i++)
        printf("  line %llu gets an error: %s\n", (unsigned long long)is->faults[i].number,
               printable(is->faults[i].message).text);
    if (is->faulty > LINE_CHECK_FAULTS_MAX)
        printf("  and %llu more get errors\n",
               (unsigned long long)is->faulty - LINE_CHECK_FAULTS_MAX);
    if (*is->file_fault.code)
        printf("  The file would be REFUSED: %s\n", printable(is->file_fault.message).text);
    if (is->refused > 0)
        printf("  The file would be REFUSED, and nothing run, for %llu of these lines\n",
               (unsigned long long)is->refused);
}

static void print_shapes(const struct shape_check_stats *shapes) {
    if (shapes->asked == 0) return;
    printf(
        "Shapes      %llu of %llu requests compile in %.1f ms, the longest in %.1f ms; they take "
        "%.1f MB, the largest %.1f MB",
        (unsigned long long)shapes->distinct, (unsigned long long)shapes->asked,
        shapes->seconds * 1e3, shapes->seconds_max * 1e3, (double)shapes->bytes / 1e6,
        (double)shapes->bytes_max / 1e6);
    if (shapes->refused > 0) printf("; %llu cannot be held", (unsigned long long)shapes->refused);
    if (shapes->unseen > 0)
        printf("; those of %llu requests are seen when they run only",
               (unsigned long long)shapes->unseen);
    printf("\n");
}

static void print_lengths(const struct preflight *is) {
    printf("\nPrompts     %llu tokens%s; P50 %u, P95 %u, P99 %u, longest %u\n",
           (unsigned long long)is->prompt_tokens, is->is_guess ? " (estimated)" : "",
           is->prompts.p50, is->prompts.p95, is->prompts.p99, is->prompts.max);
    print_histogram(&is->prompts);
    if (is->answers_open > 0)
        printf("Answers     %llu %s no max_tokens: the answer may fill the context\n",
               (unsigned long long)is->answers_open,
               plural(is->answers_open, "request sets", "requests set"));
    if (is->context_tokens > 0)
        printf("Context     %u tokens; %llu %s (%.1f %%) too long with max_tokens\n",
               is->context_tokens, (unsigned long long)is->over_context,
               plural(is->over_context, "request is", "requests are"),
               percent(is->over_context, is->requests));
    if (is->only_embeds) return;
    if (is->recommended_serves < is->measured)
        printf("            --max-model-len %u serves %llu of %llu requests, %u all of them\n",
               is->recommended_length, (unsigned long long)is->recommended_serves,
               (unsigned long long)is->measured, is->whole_length);
    else
        printf("            --max-model-len %u serves all of them\n", is->recommended_length);
    if (is->kv_tokens > 0)
        printf("KV cache    %llu tokens: %llu %s of mean length at a time, %llu of P95\n",
               (unsigned long long)is->kv_tokens, (unsigned long long)is->fit_mean,
               plural(is->fit_mean, "request", "requests"), (unsigned long long)is->fit_p95);
}

static void print_sharing(const struct preflight *is) {
    printf("Duplicates  %llu %s (%.1f %%) of another, not sampled, which get its answer without a "
           "run\n",
           (unsigned long long)is->duplicates, plural(is->duplicates, "copy", "copies"),
           percent(is->duplicates, is->requests));
    if (is->is_guess || is->only_embeds) return;
    printf(
        "Prefixes    %.1f %% of the prompt tokens repeat the beginning of another prompt; prefix "
        "caching saves\n            computing %llu of %llu\n",
        percent(is->shared_tokens, is->prompt_tokens), (unsigned long long)is->shared_tokens,
        (unsigned long long)is->prompt_tokens);
    if (is->late_share >= 0.1)
        printf("Advice      In %.0f %% of the requests, text that many share stands after text of "
               "their own. Moved\n            to the front, about %.0f tokens a request would be "
               "computed once.\n",
               100 * is->late_share, is->late_tokens_mean);
}

static void print_sample(const struct preflight *is) {
    if (!is->has_sample) {
        printf("Time        not measured%s\n",
               is->is_guess ? ": the model does not run here" : " (--pilot 0, or no request fits)");
    } else {
        print_time("Time        ", is->seconds.mean);
        if (is->seconds.is_known) {
            print_time(" (", is->seconds.low);
            print_time(" to ", is->seconds.high);
            printf(", 95 %%)");
        }
        printf(", from %u %s in %zu %s\n", is->sample.lines,
               plural(is->sample.lines, "request", "requests"), is->sample.groups,
               plural(is->sample.groups, "group", "groups"));
        printf("            %.0f tokens out; %u of the sample failed.\n", is->output_tokens.mean,
               is->sample.failed);
        if (is->sample.wait_share >= WAIT_SHARE_TOLD)
            printf("            Other work on this machine had the processors for %.0f %% of that "
                   "time: the range is\n            wide, and smaller on an idle "
                   "machine.\n",
                   100 * is->sample.wait_share);
    }
}

static void print_costs(const struct preflight *is, const struct prices *prices) {
    struct buf text;
    buf_init(&text, 1 << 20);
    costs_write_text(&text, &is->job, prices, &is->costs);
    if (text.bytes > 0) fputs(text.at, stdout);
    if (is->costs.shared.api.mean > 0 && !is->has_sample)
        printf("            with every answer as long as its max_tokens allows\n");
    buf_release(&text);
}

void preflight_show_json(const struct preflight *is, const struct prices *prices) {
    struct buf text;
    buf_init(&text, 1 << 20);
    preflight_write_json(&text, is, prices);
    puts(text.at);
    buf_release(&text);
}

void preflight_show(const struct preflight *is, const char *path, const struct prices *prices) {
    print_requests(is, path);
    if (is->measured == 0) return;
    print_lengths(is);
    print_shapes(&is->shapes);
    print_sharing(is);
    print_sample(is);
    print_costs(is, prices);
}
