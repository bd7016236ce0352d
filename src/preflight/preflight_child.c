/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/preflight_child.h"

#include "base/arena.h"
#include "base/os.h"
#include "base/spawn.h"
#include "preflight/sample_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_FD 3
#define FILE_PATH "/proc/self/fd/3"
#define SAID_BYTES_MAX ((size_t)1 << 20)
#define READ_BYTES 65536
#define LOOK_MS 50
#define KILL_PATIENCE_MS 10000 /* time between SIGKILL and its end */
#define TERM_PATIENCE_MS 5000  /* for a sample run to remove its state directory */
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
    add_str(arguments, "--quantization", device->quantization);
    add_number(arguments, "--gpu-memory-utilization", device->memory_share);
    add_integer(arguments, "--gpu-memory-limit-mib", device->memory_bytes >> 20);
}

static void add_engine(struct arguments *arguments, const struct engine_settings *engine) {
    add_integer(arguments, "--threads", engine->threads);
    add_integer(arguments, "--max-num-seqs", engine->max_num_seqs);
    add_integer(arguments, "--max-num-batched-tokens", engine->max_num_batched_tokens);
    add_integer(arguments, "--max-model-len", engine->max_model_len);
    add_integer(arguments, "--kv-cache-memory-bytes", engine->kv_bytes);
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

static const struct model_choice *find_choice(const struct node_options *node, const char *model) {
    for (size_t i = 0; i < node->model_count; i++)
        for (size_t j = 0; j < node->models[i].name_count; j++)
            if (strcmp(node->models[i].names[j], model) == 0) return &node->models[i];
    return NULL;
}

/* Adds --model NAME=PATH, or NAME=echo, which guesses lengths, for models of upstreams. */
static enum err add_model(struct arguments *arguments, const struct node_options *node,
                          const char *model, struct error *error) {
    char text[MODEL_NAME_BYTES + PATH_MAX + 8];
    bool is_only = node->model_count + node->upstream_count == 1;
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

struct child {
    pid_t pid;
    int out_fd, err_fd; /* its standard output and error; -1 at their ends */
    struct buf out, err;
};

static enum err start(struct child *child, const struct arguments *arguments, int file_fd,
                      struct error *error) {
    int out[2] = {-1, -1}, err_pipe[2] = {-1, -1};
    enum err err = OK;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err_pipe, O_CLOEXEC) != 0)
        err = err_from_errno(error, errno, "cannot make a pipe for a preflight");
    const struct spawn_options options = {.program = "/proc/self/exe",
                                          .arguments = arguments->at,
                                          .fds = {SPAWN_NULL, out[1], err_pipe[1], file_fd},
                                          .fd_count = FILE_FD + 1};
    if (err == OK) err = spawn_start(&child->pid, &options, error);
    os_close(out[1]);
    os_close(err_pipe[1]);
    child->out_fd = out[0];
    child->err_fd = err_pipe[0];
    return err;
}

/* Reads what the pipe holds now, once; closes it at its end. */
static void read_some(int *fd, struct buf *buf) {
    char bytes[READ_BYTES];
    ssize_t count = read(*fd, bytes, sizeof bytes);
    if (count > 0) buf_add(buf, bytes, (size_t)count);
    if (count > 0 || (count < 0 && errno == EINTR)) return;
    os_close(*fd);
    *fd = -1;
}

/* Reads the child's output to its end; false if the client stopped it. Its own children may keep
 * standard error open, so only the end of standard output counts. */
static bool listen_to(struct child *child, const struct api_preflight *preflight) {
    while (child->out_fd >= 0) {
        if (preflight->stopped(preflight->context)) return false;
        struct pollfd fds[2] = {{.fd = child->out_fd, .events = POLLIN},
                                {.fd = child->err_fd, .events = POLLIN}};
        if (poll(fds, 2, LOOK_MS) <= 0) continue;
        if (fds[0].revents) read_some(&child->out_fd, &child->out);
        if (fds[1].revents) read_some(&child->err_fd, &child->err);
    }
    return true;
}

/* The command's error sentence, or else how the process ended. */
static void find_sentence(const struct child *child, const char *end, char ret_text[300]) {
    struct str said = buf_str(&child->err), mark = STR("quern preflight: ");
    size_t at = str_find(said, mark, 0);
    struct str sentence = str_skip(said, at == SIZE_MAX ? said.bytes : at + mark.bytes);
    size_t line_end = str_find_byte(sentence, '\n', 0);
    if (line_end != SIZE_MAX) sentence.bytes = line_end;
    if (sentence.bytes > 0)
        snprintf(ret_text, 300, "%.*s", (int)(sentence.bytes < 299 ? sentence.bytes : 299),
                 sentence.at);
    else
        snprintf(ret_text, 300, "the preflight %s", end);
}

static enum err run(struct child *child, const struct api_preflight *preflight,
                    struct buf *ret_json, struct error *error) {
    char end[96], sentence[300];
    bool has_ended = listen_to(child, preflight);
    if (!has_ended) kill(child->pid, SIGTERM);
    int status = -1;
    if (!spawn_end(child->pid, TERM_PATIENCE_MS, KILL_PATIENCE_MS, &status, end, sizeof end))
        snprintf(end, sizeof end, "was killed and does not end");
    if (!has_ended) return err_set(error, ERR_CANCELLED, "stopped");
    struct str json = str_trim(buf_str(&child->out));
    bool is_done = status == 0 || status == PREFLIGHT_CHILD_REFUSES_LINES;
    if (is_done && !child->out.overflowed && str_starts_with(json, STR("{"))) {
        buf_add_str(ret_json, json);
        return OK;
    }
    find_sentence(child, end, sentence);
    bool is_input = status == PREFLIGHT_CHILD_USAGE || status == PREFLIGHT_CHILD_UNUSABLE ||
                    status == PREFLIGHT_CHILD_NOT_FOUND;
    return err_set(error, is_input ? ERR_INVALID : ERR_IO, "%s", sentence);
}

enum err preflight_child_run(void *context, const struct api_preflight *preflight,
                             struct buf *ret_json, struct error *error) {
    const struct preflight_child *self = context;
    struct arguments arguments = {.count = 0};
    struct child child = {.out_fd = -1, .err_fd = -1};
    if (preflight->stopped(preflight->context)) return err_set(error, ERR_CANCELLED, "stopped");
    arena_init(&arguments.texts, TEXTS_BYTES_MAX);
    buf_init(&child.out, SAID_BYTES_MAX);
    buf_init(&child.err, SAID_BYTES_MAX);
    enum err err = fill(&arguments, self->node, preflight, error);
    if (err == OK) err = start(&child, &arguments, preflight->fd, error);
    if (err == OK) err = run(&child, preflight, ret_json, error);
    os_close(child.out_fd);
    os_close(child.err_fd);
    buf_release(&child.out);
    buf_release(&child.err);
    arena_release(&arguments.texts);
    return err;
}
