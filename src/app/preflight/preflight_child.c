/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/preflight_child.h"

#include "base/arena.h"
#include "base/child.h"
#include "preflight/sample_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_PATH "/proc/self/fd/3"
#define OUTPUT_BYTES_MAX ((size_t)1 << 20)
#define ARGUMENTS_MAX 112
#define TEXTS_BYTES_MAX ((size_t)256 << 10) /* with a chat template of 100,000 bytes */

_Static_assert(API_PREFLIGHT_LINES_MAX <= SAMPLE_RUN_LINES_MAX,
               "the child accepts any number of lines that the API does");

/* --- the child's arguments --- */

struct arguments {
    const char *at[ARGUMENTS_MAX + 1]; /* ends in NULL */
    size_t count;
    struct arena texts;
};

static void add(struct arguments *arguments, const char *text) {
    if (arguments->count == ARGUMENTS_MAX) abort();
    arguments->at[arguments->count++] = text;
}

static void add_text(struct arguments *arguments, const char *name, const char *text) {
    struct str copy = arena_copy(&arguments->texts, str_from(text));
    if (!copy.at) abort();
    add(arguments, name);
    add(arguments, copy.at);
}

/* 0 is the child's default. */
static void add_integer(struct arguments *arguments, const char *name, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    if (value > 0) add_text(arguments, name, text);
}

static void add_number(struct arguments *arguments, const char *name, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    if (value > 0) add_text(arguments, name, text);
}

/* An empty text is the child's default. The texts come from the command line, and end in NUL. */
static void add_str(struct arguments *arguments, const char *name, struct str text) {
    if (text.bytes > 0) add_text(arguments, name, text.at);
}

static void add_device(struct arguments *arguments, const struct wire_device *device) {
    add_str(arguments, "--device", device->name);
    add_str(arguments, "--device-plugin", device->plugin);
    add_str(arguments, "--dtype", device->dtype);
    add_str(arguments, "--kv-cache-dtype", device->kv_cache_dtype);
    add_str(arguments, "--mamba-ssm-cache-dtype", device->state_dtype);
    add_str(arguments, "--quantization", device->quantization);
    add_number(arguments, "--gpu-memory-utilization", device->memory_share);
    add_integer(arguments, "--gpu-memory-limit-mib", device->memory_bytes >> 20);
    add_integer(arguments, "--tensor-parallel-size", device->tensor_parallel_size);
}

static void add_engine(struct arguments *arguments, const struct engine_settings *engine) {
    add_integer(arguments, "--threads", engine->threads);
    add_integer(arguments, "--max-num-seqs", engine->max_num_seqs);
    add_integer(arguments, "--max-num-batched-tokens", engine->max_num_batched_tokens);
    char guesses[32];
    snprintf(guesses, sizeof guesses, "%" PRIu32, engine->num_speculative_tokens);
    add_text(arguments, "--num-speculative-tokens", guesses); /* 0 is not the default */
    if (engine->speculative_model)
        add_text(arguments, "--speculative-model", engine->speculative_model);
    add_integer(arguments, "--max-model-len", engine->max_model_len);
    add_integer(arguments, "--kv-cache-memory-bytes", engine->kv_bytes);
    add_integer(arguments, "--mamba-cache-memory-bytes", engine->state_bytes);
    add_integer(arguments, "--weight-memory-bytes", engine->weight_bytes);
    if (engine->no_prefix_caching) add(arguments, "--no-enable-prefix-caching");
    if (engine->reference) add(arguments, "--reference");
    if (engine->kernels) add_text(arguments, "--kernels", engine->kernels);
    if (engine->pooling) add_text(arguments, "--pooling", engine->pooling);
    if (engine->trust_request_chat_template) add(arguments, "--trust-request-chat-template");
    if (engine->chat_template) add_text(arguments, "--chat-template", engine->chat_template);
    if (engine->tool_call_parser)
        add_text(arguments, "--tool-call-parser", engine->tool_call_parser);
    if (engine->dummy_weights) add_text(arguments, "--load-format", "dummy");
    if (engine->packed_dir)
        add_text(arguments, "--packed-cache-dir", engine->packed_dir);
    else
        add(arguments, "--no-packed-cache");
    add_integer(arguments, "--packed-cache-bytes", engine->packed_bytes_max);
    add_device(arguments, &engine->device);
}

static bool has_name(const struct model_choice *choice, const char *model) {
    for (size_t i = 0; i < choice->name_count; i++)
        if (strcmp(choice->names[i], model) == 0) return true;
    return false;
}

static const struct model_choice *find_choice(const struct node_options *node, const char *model) {
    size_t shelved = node->shelf ? shelf_count(node->shelf) : 0;
    for (size_t i = 0; i < node->model_count; i++)
        if (has_name(&node->models[i], model)) return &node->models[i];
    for (size_t i = 0; i < shelved; i++)
        if (has_name(&shelf_at(node->shelf, i)->choice, model))
            return &shelf_at(node->shelf, i)->choice;
    return NULL;
}

/* Adds --model NAME=PATH, or NAME=echo, which guesses lengths, for models of upstreams. */
static enum err add_model(struct arguments *arguments, const struct node_options *node,
                          const char *model, struct error *error) {
    char text[MODEL_NAME_BYTES + PATH_MAX + 8];
    bool is_only = !node->shelf && node->model_count + node->upstream_count == 1;
    if (!*model && !is_only)
        return err_set(error, ERR_INVALID,
                       "The file names no model and several are served: say in 'model' which one "
                       "to count with.");
    if (!*model) model = node->model_count ? node->models[0].names[0] : node->upstreams[0].name;
    const struct model_choice *choice = find_choice(node, model);
    /* The first '=' ends the name. */
    snprintf(text, sizeof text, "%s=%s", strchr(model, '=') ? "model" : model,
             choice && !choice->is_echo ? choice->path : "echo");
    add_text(arguments, "--model", text);
    /* The server has compared the names of the lines with those that it serves. */
    add(arguments, "--any-model");
    if (!is_only || node->runner.rules.needs_model) add(arguments, "--needs-model");
    if (node->runner.rules.strict_url) add_text(arguments, "--profile", "openai");
    return OK;
}

static void add_price(struct arguments *arguments, const char *name, double price) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", price);
    if (price_is_given(price)) add_text(arguments, name, text);
}

static void add_prices(struct arguments *arguments, const struct prices *prices) {
    add_price(arguments, "--watts", prices->watts);
    add_price(arguments, "--price-per-kwh", prices->per_kwh);
    add_price(arguments, "--rent-per-hour", prices->rent_per_hour);
    add_price(arguments, "--rent-speed", prices->rent_speed);
    add_price(arguments, "--input-price", prices->input_per_million);
    add_price(arguments, "--cached-price", prices->cached_per_million);
    add_price(arguments, "--output-price", prices->output_per_million);
    add_price(arguments, "--batch-discount", prices->batch_discount);
    add_integer(arguments, "--times-per-month", (uint64_t)prices->times_per_month);
    if (prices->currency) add_text(arguments, "--currency", prices->currency);
}

static enum err fill(struct arguments *arguments, const struct node_options *node,
                     const struct api_preflight *preflight, struct error *error) {
    char pilot[16];
    snprintf(pilot, sizeof pilot, "%u", preflight->pilot_lines);
    add(arguments, "quern");
    add(arguments, "preflight");
    add(arguments, FILE_PATH);
    add(arguments, "--json");
    add(arguments, "--end-with-parent");
    /* All options are on this command line; settings files are for the server. */
    add_text(arguments, "--config", "/dev/null");
    enum err err = add_model(arguments, node, preflight->model, error);
    if (err != OK) return err;
    add_engine(arguments, &node->engine);
    if (preflight->endpoint != ENDPOINT_COUNT)
        add_text(arguments, "--endpoint", endpoint_path(preflight->endpoint));
    add_text(arguments, "--pilot", pilot);
    add_prices(arguments, &preflight->prices);
    return OK;
}

/* --- the child --- */

struct reading {
    const struct api_preflight *preflight;
    struct buf out;
};

static bool is_stopped(void *context) {
    const struct reading *reading = context;
    return reading->preflight->stopped(reading->preflight->context);
}

static void take_output(void *context, struct str bytes) {
    struct reading *reading = context;
    buf_add_str(&reading->out, bytes);
}

static enum err judge(const struct reading *reading, const struct child_end *end,
                      struct buf *ret_json, struct error *error) {
    struct str json = str_trim(buf_str(&reading->out));
    bool is_done = end->status == 0 || end->status == PREFLIGHT_CHILD_REFUSES_LINES;
    if (is_done && !reading->out.overflowed && str_starts_with(json, STR("{"))) {
        buf_add_str(ret_json, json);
        return OK;
    }
    bool is_input = end->status == PREFLIGHT_CHILD_USAGE ||
                    end->status == PREFLIGHT_CHILD_UNUSABLE ||
                    end->status == PREFLIGHT_CHILD_NOT_FOUND;
    return err_set(error, is_input ? ERR_INVALID : ERR_IO, "%s", end->sentence);
}

enum err preflight_child_run(void *context, const struct api_preflight *preflight,
                             struct buf *ret_json, struct error *error) {
    const struct preflight_child *self = context;
    struct arguments arguments = {.count = 0};
    struct reading reading = {.preflight = preflight};
    struct child_end end;
    if (is_stopped(&reading)) return err_set(error, ERR_CANCELLED, "stopped");
    arena_init(&arguments.texts, TEXTS_BYTES_MAX);
    buf_init(&reading.out, OUTPUT_BYTES_MAX);
    enum err err = fill(&arguments, self->node, preflight, error);
    const struct child_options options = {.command = "preflight",
                                          .arguments = arguments.at,
                                          .fds = {preflight->fd},
                                          .fd_count = 1,
                                          .context = &reading,
                                          .stopped = is_stopped,
                                          .output = take_output};
    if (err == OK) err = child_run(&options, &end, error);
    if (err == OK) err = judge(&reading, &end, ret_json, error);
    buf_release(&reading.out);
    arena_release(&arguments.texts);
    return err;
}
