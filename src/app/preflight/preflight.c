/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/preflight.h"

#include "base/mem.h"
#include "engine/model_sandbox.h"
#include "engine/served_model.h"
#include "model/model.h"
#include "preflight/preflight_costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const struct preflight_options *options, const char *what) {
    if (options->say) options->say(options->context, what);
}

static int compare_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the lengths that are not 0; returns their count. */
static size_t sort_lengths(const uint32_t *lengths, uint64_t requests, uint32_t *ret_sorted) {
    size_t count = 0;
    for (uint64_t i = 0; i < requests; i++)
        if (lengths[i] > 0) ret_sorted[count++] = lengths[i];
    if (count > 0) qsort(ret_sorted, count, sizeof *ret_sorted, compare_u32);
    return count;
}

static void fill_lengths(struct preflight *is, const struct request_count *counted,
                         uint32_t *scratch) {
    size_t count = sort_lengths(counted->prompt_tokens, counted->requests, scratch);
    is->prompts = (struct lengths){.p50 = estimate_quantile(scratch, count, 0.5),
                                   .p95 = estimate_quantile(scratch, count, 0.95),
                                   .p99 = estimate_quantile(scratch, count, 0.99),
                                   .max = estimate_quantile(scratch, count, 1)};
    is->prompts.bin_count = estimate_histogram(scratch, count, is->prompts.bins);
    for (uint64_t i = 0; i < counted->requests; i++) {
        if (counted->prompt_tokens[i] == 0) continue;
        is->answers_asked += counted->answer_tokens[i];
        if (counted->answer_tokens[i] == 0 && !is->only_embeds) is->answers_open++;
    }
    /* A request needs room for its prompt and the longest answer that it allows. Requests that are
     * too long for this context count: a longer one would serve them. */
    count = sort_lengths(counted->sequence_tokens, counted->requests, scratch);
    uint32_t p95 = estimate_quantile(scratch, count, 0.95);
    uint32_t longest = estimate_quantile(scratch, count, 1);
    is->recommended_length = estimate_roomy(p95);
    is->whole_length = estimate_roomy(longest);
    is->measured = count;
    while (is->recommended_serves < count &&
           scratch[is->recommended_serves] <= is->recommended_length)
        is->recommended_serves++;
    uint64_t runnable = counted->requests - counted->faulty;
    if (is->kv_tokens > 0 && runnable > 0 && p95 > 0) {
        double mean = ((double)is->prompt_tokens + (double)is->answers_asked) / (double)runnable;
        is->fit_mean = (uint64_t)((double)is->kv_tokens / mean);
        is->fit_p95 = is->kv_tokens / p95;
    }
}

static void fill_counted(struct preflight *is, const struct request_count *counted) {
    is->requests = counted->requests;
    is->faulty = counted->faulty;
    is->over_context = counted->too_long;
    is->bytes = counted->bytes;
    is->count_seconds = counted->seconds;
    is->prompt_tokens = counted->prompt_tokens_sum;
    is->duplicates = counted->duplicates;
    is->duplicate_prompt_tokens = counted->duplicate_prompt_tokens;
    is->duplicate_answer_tokens = counted->duplicate_answer_tokens;
    is->duplicate_shared_tokens = counted->duplicate_shared_tokens;
    is->shared_tokens = counted->shared_tokens;
    memcpy(is->faults, counted->faults, sizeof is->faults);
    is->late_share = counted->advice.late_share;
    if (counted->bytes > 0)
        is->late_tokens_mean = counted->advice.late_bytes_mean *
                               (double)counted->prompt_tokens_sum / (double)counted->bytes;
    uint32_t *scratch = mem_new((size_t)counted->requests + 1, sizeof *scratch);
    fill_lengths(is, counted, scratch);
    free(scratch);
}

/* This process reads the model itself, so it shuts itself in, unless it will start an engine for
 * the sample. */
static void enter_sandbox(const struct preflight_options *options, const char *model_path) {
    struct sandbox_state ignored;
    if (options->sample_lines > 0) return;
    model_sandbox_enter(
        &(struct model_sandbox){.model_path = model_path, .input_path = options->path}, &ignored);
}

/* Reads the limits that the engine would have. */
static void read_model(const struct node_options *node, const struct served_model *model,
                       struct preflight *is, struct request_count_options *counting) {
    struct model_description about;
    model_describe(model->model, &about);
    uint32_t wanted = node->engine.max_model_len;
    is->only_embeds = !model->backend;
    is->is_on_card = *about.card != '\0';
    is->kv_tokens = (uint64_t)about.kv_blocks * BACKEND_BLOCK_TOKENS;
    /* Each text of an embeddings request has its own context. */
    is->context_tokens = is->only_embeds ? 0 : about.context_max;
    if (is->context_tokens > is->kv_tokens) is->context_tokens = (uint32_t)is->kv_tokens;
    counting->model = model;
    counting->context_tokens_max = is->context_tokens;
    counting->text_tokens_max = model->embedder.text_tokens_max;
    if (wanted > 0 && wanted < counting->text_tokens_max) counting->text_tokens_max = wanted;
}

/* Counts with the model open, which is closed before an engine opens it for the sample. */
static enum err count(const struct preflight_options *options, const struct line_check *check,
                      struct preflight *is, struct request_count *ret_counted,
                      struct error *error) {
    const struct node_options *node = &options->node;
    const struct model_choice *choice = &node->models[0];
    struct request_count_options counting = {.path = options->path,
                                             .check = check,
                                             .trusts_templates =
                                                 node->engine.trust_request_chat_template,
                                             .threads = node->engine.threads};
    struct served_model model;
    enum err err = OK;
    bool has_model = node->model_count > 0;
    is->is_guess = !has_model || choice->is_echo;
    snprintf(is->model, sizeof is->model, "%.127s",
             has_model ? choice->names[0] : node->upstreams[0].name);
    if (!is->is_guess) {
        struct wire_hello hello = node_hello(choice, &node->engine);
        say(options, "opening the model");
        enter_sandbox(options, choice->path);
        err = served_model_open(&model, &hello, NULL, error);
        if (err != OK) return err;
        read_model(node, &model, is, &counting);
    }
    say(options, "counting tokens");
    err = request_count_file(&counting, ret_counted, error);
    if (counting.model) served_model_close(&model);
    return err;
}

/* Finds the lines for which the batch would refuse the file; before the sandbox, because the check
 * writes a temporary file. */
static enum err check_lines(const struct preflight_options *options, struct preflight *is,
                            struct line_check *ret_check, struct error *error) {
    const struct line_check_options check = {.path = options->path,
                                             .node = &options->node,
                                             .rules = options->rules,
                                             .endpoint = options->endpoint,
                                             .any_model = options->any_model,
                                             .needs_model = options->needs_model,
                                             .stop = options->stop};
    say(options, "checking the requests");
    enum err err = line_check_file(&check, ret_check, error);
    if (err != OK) return err;
    is->refused = ret_check->count;
    is->file_fault = ret_check->file;
    is->shapes = ret_check->shapes;
    return OK;
}

/* Whether a sample can measure anything: some request has a prompt of at most `tokens_max`. */
static bool has_any_that_fits(const struct request_count *counted, uint32_t tokens_max) {
    for (uint64_t i = 0; i < counted->requests; i++)
        if (counted->prompt_tokens[i] > 0 && counted->prompt_tokens[i] <= tokens_max) return true;
    return false;
}

/* The context less one token for the answer. Texts to embed were bounded when they were counted. */
static uint32_t prompt_tokens_max(const struct preflight *is) {
    return is->only_embeds ? UINT32_MAX : is->context_tokens - 1;
}

static enum err measure(const struct preflight_options *options, struct preflight *is,
                        const struct request_count *counted, struct error *error) {
    struct sample_run_options sample = {.node = options->node,
                                        .path = options->path,
                                        .prompt_tokens = counted->prompt_tokens,
                                        .answer_tokens = counted->answer_tokens,
                                        .requests = counted->requests,
                                        .prompt_tokens_max = prompt_tokens_max(is),
                                        .lines = options->sample_lines,
                                        .stop = options->stop};
    sample.node.upstream_count = 0;
    say(options, "running a sample");
    enum err err = sample_run(&sample, &is->sample, error);
    if (err != OK) return err;
    is->has_sample = true;
    preflight_fill_time(is, &options->node);
    return OK;
}

enum err preflight_run(const struct preflight_options *options, struct preflight *ret_preflight,
                       struct error *error) {
    struct preflight is = {0};
    struct request_count counted = {0};
    struct line_check check = {.count = 0};
    enum err err = check_lines(options, &is, &check, error);
    if (err == OK) err = count(options, &check, &is, &counted, error);
    line_check_release(&check);
    if (err != OK) return err;
    fill_counted(&is, &counted);
    is.output_tokens.mean = is.output_tokens.high = (double)is.answers_asked;
    if (options->sample_lines > 0 && !is.is_guess &&
        has_any_that_fits(&counted, prompt_tokens_max(&is)))
        err = measure(options, &is, &counted, error);
    request_count_release(&counted);
    if (err != OK) return err;
    preflight_fill_costs(&is, &options->prices);
    *ret_preflight = is;
    return OK;
}

/* --- JSON --- */

static void add_interval(struct buf *buf, const char *name, const struct interval *is, bool there) {
    buf_printf(buf, ",\"%s\":", name);
    if (!there)
        buf_add_text(buf, "null");
    else if (is->is_known)
        buf_printf(buf, "{\"low\":%.6g,\"mean\":%.6g,\"high\":%.6g}", is->low, is->mean, is->high);
    else
        buf_printf(buf, "{\"low\":null,\"mean\":%.6g,\"high\":null}", is->mean);
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

static void add_count(struct buf *buf, const char *name, uint64_t value) {
    buf_printf(buf, ",\"%s\":%llu", name, (unsigned long long)value);
}

static void add_known(struct buf *buf, const char *name, uint64_t value, bool is_known) {
    if (is_known)
        add_count(buf, name, value);
    else
        buf_printf(buf, ",\"%s\":null", name);
}

static void add_faults(struct buf *buf, const struct preflight *is) {
    buf_add_text(buf, ",\"faults\":[");
    for (size_t i = 0; i < LINE_CHECK_FAULTS_MAX && i < is->faulty; i++) {
        buf_printf(buf, "%s{\"line\":%llu,\"code\":", i ? "," : "",
                   (unsigned long long)is->faults[i].number);
        json_write_string(buf, str_from(is->faults[i].code));
        buf_add_text(buf, ",\"message\":");
        json_write_string(buf, str_from(is->faults[i].message));
        buf_add_byte(buf, '}');
    }
    buf_add_byte(buf, ']');
}

static void add_lengths_json(struct buf *buf, const struct lengths *is) {
    buf_printf(buf, ",\"prompt_lengths\":{\"p50\":%u,\"p95\":%u,\"p99\":%u,\"max\":%u,\"bins\":[",
               is->p50, is->p95, is->p99, is->max);
    for (size_t i = 0; i < is->bin_count; i++)
        buf_printf(buf, "%s{\"from\":%u,\"count\":%llu}", i ? "," : "", is->bins[i].from,
                   (unsigned long long)is->bins[i].count);
    buf_add_text(buf, "]}");
}

static void add_sample(struct buf *buf, const struct preflight *is) {
    if (!is->has_sample) {
        buf_add_text(buf, ",\"pilot\":null");
        return;
    }
    buf_printf(buf,
               ",\"pilot\":{\"lines\":%u,\"failed\":%u,\"groups\":%zu,\"load_seconds\":%.3f,"
               "\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"measured\":[",
               is->sample.lines, is->sample.failed, is->sample.groups, is->sample.load_seconds,
               (unsigned long long)is->sample.prompt_tokens,
               (unsigned long long)is->sample.cached_tokens);
    for (size_t i = 0; i < is->sample.groups; i++) {
        const struct sample_group *group = &is->sample.group[i];
        buf_printf(buf,
                   "%s{\"lines\":%u,\"seconds\":%.4f,\"computed_prompt_tokens\":%.0f,"
                   "\"computed_output_tokens\":%.0f}",
                   i ? "," : "", group->lines, group->seconds, group->computed_prompt_tokens,
                   group->computed_output_tokens);
    }
    buf_printf(buf, "],\"wait_share\":%.4f}", is->sample.wait_share);
}

static void add_shapes(struct buf *buf, const struct shape_check_stats *shapes) {
    if (shapes->asked == 0) {
        buf_add_text(buf, ",\"shapes\":null");
        return;
    }
    buf_printf(
        buf,
        ",\"shapes\":{\"lines\":%llu,\"distinct\":%llu,\"refused\":%llu,\"unseen_lines\":%llu,"
        "\"compile_seconds\":%.6f,\"compile_seconds_max\":%.6f,\"compiled_bytes\":%llu,"
        "\"compiled_bytes_max\":%llu}",
        (unsigned long long)shapes->asked, (unsigned long long)shapes->distinct,
        (unsigned long long)shapes->refused, (unsigned long long)shapes->unseen, shapes->seconds,
        shapes->seconds_max, (unsigned long long)shapes->bytes,
        (unsigned long long)shapes->bytes_max);
}

void preflight_write_json(struct buf *buf, const struct preflight *is,
                          const struct prices *prices) {
    bool has_model = !is->is_guess;
    buf_add_text(buf, "{\"object\":\"preflight\",\"model\":");
    json_write_string(buf, str_from(is->model));
    buf_printf(buf, ",\"token_counts\":\"%s\"", is->is_guess ? "estimated" : "exact");
    add_count(buf, "requests", is->requests);
    add_count(buf, "faulty", is->faulty);
    add_count(buf, "refused", is->refused);
    add_faults(buf, is);
    buf_add_text(buf, ",\"file_fault\":");
    if (*is->file_fault.code)
        json_write_string(buf, str_from(is->file_fault.message));
    else
        buf_add_text(buf, "null");
    add_shapes(buf, &is->shapes);
    add_count(buf, "prompt_tokens", is->prompt_tokens);
    add_lengths_json(buf, &is->prompts);
    add_count(buf, "max_tokens_sum", is->answers_asked);
    add_count(buf, "without_max_tokens", is->answers_open);
    add_known(buf, "context_tokens", is->context_tokens, is->context_tokens > 0);
    add_known(buf, "over_context", is->over_context, has_model);
    add_count(buf, "recommended_max_model_len", is->recommended_length);
    add_count(buf, "no_truncation_max_model_len", is->whole_length);
    add_count(buf, "duplicates", is->duplicates);
    buf_printf(buf, ",\"duplicate_share\":%.4f", share(is->duplicates, is->requests));
    add_known(buf, "shared_prefix_tokens", is->shared_tokens, has_model);
    if (has_model)
        buf_printf(buf,
                   ",\"shared_prefix_share\":%.4f,\"late_shared\":{\"requests_share\":%.4f,"
                   "\"tokens_per_request\":%.1f}",
                   share(is->shared_tokens, is->prompt_tokens), is->late_share,
                   is->late_tokens_mean);
    else
        buf_add_text(buf, ",\"shared_prefix_share\":null,\"late_shared\":null");
    add_known(buf, "kv_cache_tokens", is->kv_tokens, has_model);
    add_known(buf, "sequences_fit_mean", is->fit_mean, has_model);
    add_known(buf, "sequences_fit_p95", is->fit_p95, has_model);
    add_sample(buf, is);
    add_interval(buf, "seconds", &is->seconds, is->has_sample);
    add_interval(buf, "output_tokens", &is->output_tokens, is->has_sample);
    add_interval(buf, "kwh", &is->kwh, is->kwh.mean > 0);
    add_interval(buf, "energy_cost", &is->energy_cost, is->energy_cost.mean > 0);
    add_interval(buf, "api_cost", &is->api_cost, is->api_cost.mean > 0);
    buf_add_text(buf, ",\"costs\":");
    costs_write_json(buf, &is->job, prices, &is->costs);
    buf_add_byte(buf, '}');
}
