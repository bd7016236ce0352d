/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/preflight_costs.h"

#include "engine/served_model.h"
#include "gpu/gpu_limits.h"

#include <math.h>

#define RULE_OF_THREE 3.0
#define STEP_TOKENS                                                                                \
    512.0 /* computed per step on the CPU unless --max-num-batched-tokens is given */

/* --- tokens of answers --- */

/* What answers are counted by: max_tokens, or lines. */
static double measure_of(const struct sample_group *group, bool by_tokens) {
    return by_tokens ? (double)group->answer_tokens : (double)group->lines;
}

/* The total from the ratio of two sums over the groups, with the interval of that ratio. A sample
 * of n lines may have missed 3 lines of n that end sooner (the rule of three for 95 %), also if
 * all of its answers are as long as they may be. A sample that is the whole file leaves no
 * doubt. */
static struct interval estimate_output(const struct preflight *is) {
    const struct sample_run *sample = &is->sample;
    double runnable = (double)(is->requests - is->faulty);
    bool by_tokens = is->answers_open == 0;
    double output = 0, measure = 0, squares = 0;
    for (size_t i = 0; i < sample->groups; i++) {
        output += (double)sample->group[i].output_tokens;
        measure += measure_of(&sample->group[i], by_tokens);
    }
    if (measure <= 0) return (struct interval){0, 0, 0, true};
    double ratio = output / measure, whole = by_tokens ? (double)is->answers_asked : runnable;
    for (size_t i = 0; i < sample->groups; i++) {
        double error = (double)sample->group[i].output_tokens -
                       ratio * measure_of(&sample->group[i], by_tokens);
        squares += error * error;
    }
    struct interval total = {ratio * whole, ratio * whole, ratio * whole, sample->groups > 1};
    if (!total.is_known) return total;
    double freedom = (double)(sample->groups - 1);
    double unseen = fmax(1 - sample->lines / runnable, 0);
    double half = estimate_t(sample->groups - 1) * whole / measure *
                  sqrt((double)sample->groups / freedom * squares * unseen);
    double missed = fmin(RULE_OF_THREE / sample->lines, 1) * unseen * total.mean;
    total.low = fmin(fmax(total.mean - fmax(half, missed), output), total.mean);
    total.high = total.mean + half;
    if (by_tokens) total.high = fmin(total.high, whole);
    return total;
}

/* --- time --- */

/* Prompts and answers of a file, as many as are computed. */
struct file_work {
    double lines, prompt_tokens;
    struct interval output_tokens;
};

static double sequences_at_a_time(const struct preflight *is, const struct node_options *node,
                                  double lines) {
    double most = SERVED_SEQS_DEFAULT;
    if (is->is_on_card) most = GPU_SEQUENCES_DEFAULT;
    if (node->engine.max_num_seqs > 0) most = node->engine.max_num_seqs;
    if (is->fit_mean > 0) most = fmin(most, (double)is->fit_mean);
    return fmax(fmin(most, lines), 1);
}

/* Prompts are computed STEP_TOKENS per step. Sequences fill the steps until the last ones are left
 * over, whose rows then have steps almost to themselves: for half of the longest answer. */
static struct time_work work_of(const struct preflight *is, const struct node_options *node,
                                const struct file_work *file) {
    double at_a_time = sequences_at_a_time(is, node, file->lines), longest = 0;
    for (size_t i = 0; i < is->sample.groups; i++)
        longest = fmax(longest, (double)is->sample.group[i].longest_output);
    double steps = longest;
    if (file->lines > at_a_time)
        steps = fmax(longest, file->output_tokens.mean / at_a_time + longest / 2);
    return (struct time_work){.rows = file->prompt_tokens + file->output_tokens.mean,
                              .steps = steps + file->prompt_tokens / STEP_TOKENS};
}

static struct time_fit fit_of(const struct sample_run *sample) {
    struct time_work groups[SAMPLE_RUN_GROUPS];
    size_t count = 0;
    _Static_assert(SAMPLE_RUN_GROUPS <= TIME_FIT_GROUPS_MAX, "a fit takes all groups");
    for (size_t i = 0; i < sample->groups; i++) {
        const struct sample_group *group = &sample->group[i];
        double rows = group->computed_prompt_tokens + group->computed_output_tokens;
        if (rows <= 0) continue;
        groups[count++] = (struct time_work){.rows = rows,
                                             .steps = (double)group->longest_output +
                                                      group->computed_prompt_tokens / STEP_TOKENS,
                                             .seconds = group->seconds};
    }
    return count > 0 ? time_fit_of(groups, count) : (struct time_fit){.freedom = 0};
}

/* Widens the time: it shall hold for 3 times the other work that the sample met, and for a third of
 * it. A thread that shares its processor with n others takes 1 + n times as long, and waits for
 * n / (1 + n) of its time. Of 17 runs beside 20 to 30 builds and tests on 2 processors, a factor of
 * 2 covered 14, and a factor of 3 covered all. */
static struct interval widen_for_load(struct interval seconds, double wait_share) {
    return estimate_widened(seconds, 1 - wait_share * 2 / 3, 1 + 2 * wait_share);
}

/* The errors of the time per row and of the number of answer tokens are independent. */
static struct interval predict(const struct preflight *is, const struct node_options *node,
                               const struct time_fit *fit, const struct file_work *file) {
    struct time_work work = work_of(is, node, file);
    struct interval seconds = time_fit_predict(fit, &work);
    double per_token = fit->per_row + fit->per_step / sequences_at_a_time(is, node, file->lines);
    double fewer = per_token * (file->output_tokens.mean - file->output_tokens.low);
    double more = per_token * (file->output_tokens.high - file->output_tokens.mean);
    double load = is->sample.load_seconds;
    const struct interval whole = {
        .low = load + fmax(seconds.mean - hypot(seconds.mean - seconds.low, fewer), 0),
        .mean = load + seconds.mean,
        .high = load + seconds.mean + hypot(seconds.high - seconds.mean, more),
        .is_known = seconds.is_known};
    return widen_for_load(whole, is->sample.wait_share);
}

/* The share of the answers' tokens that are an equal request's. */
static double duplicate_share(const struct preflight *is) {
    double runnable = (double)(is->requests - is->faulty);
    if (is->answers_open == 0 && is->answers_asked > 0)
        return (double)is->duplicate_answer_tokens / (double)is->answers_asked;
    return runnable > 0 ? (double)is->duplicates / runnable : 0;
}

void preflight_fill_time(struct preflight *is, const struct node_options *node) {
    struct time_fit fit = fit_of(&is->sample);
    is->output_tokens = estimate_output(is);
    const struct file_work unshared = {.lines = (double)(is->requests - is->faulty),
                                       .prompt_tokens = (double)is->prompt_tokens,
                                       .output_tokens = is->output_tokens};
    const struct file_work shared = {
        .lines = unshared.lines - (double)is->duplicates,
        .prompt_tokens = unshared.prompt_tokens - (double)is->shared_tokens -
                         (double)(is->duplicate_prompt_tokens - is->duplicate_shared_tokens),
        .output_tokens = estimate_scaled(is->output_tokens, 1 - duplicate_share(is))};
    is->seconds = predict(is, node, &fit, &shared);
    is->seconds_unshared = predict(is, node, &fit, &unshared);
}

/* --- costs --- */

static struct cost_range range_of(const struct interval *is) {
    return (struct cost_range){is->low, is->mean, is->high};
}

static void fill_single_figures(struct preflight *is, const struct prices *prices) {
    if (is->has_sample && !isnan(is->costs.watts) && is->costs.watts > 0) {
        is->kwh = estimate_scaled(is->seconds, is->costs.watts / 3.6e6);
        is->energy_cost = estimate_scaled(is->kwh, fmax(prices->per_kwh, 0));
    }
    double input_price = fmax(prices->input_per_million, 0);
    double output_price = fmax(prices->output_per_million, 0);
    if (input_price <= 0 && output_price <= 0) return;
    double pay = (1 - prices->batch_discount) / 1e6;
    double input = (double)is->prompt_tokens * input_price * pay;
    is->api_cost = estimate_scaled(is->output_tokens, output_price * pay);
    is->api_cost.low += input;
    is->api_cost.mean += input;
    is->api_cost.high += input;
}

void preflight_fill_costs(struct preflight *is, const struct prices *prices) {
    struct cost_range output = range_of(&is->output_tokens);
    double duplicate = duplicate_share(is);
    is->job = (struct cost_job){.has_seconds = is->has_sample,
                                .seconds = range_of(&is->seconds),
                                .has_unshared = is->has_sample,
                                .seconds_unshared = range_of(&is->seconds_unshared),
                                .measured_watts = is->has_sample ? is->sample.watts : NAN,
                                .deduplicated = is->duplicates,
                                .input_tokens = is->prompt_tokens,
                                .cached_tokens = is->shared_tokens - is->duplicate_shared_tokens,
                                .deduplicated_input_tokens = is->duplicate_prompt_tokens,
                                .output_tokens = output,
                                .deduplicated_output_tokens = {output.low * duplicate,
                                                               output.mean * duplicate,
                                                               output.high * duplicate}};
    costs_count(&is->job, prices, &is->costs);
    fill_single_figures(is, prices);
}
