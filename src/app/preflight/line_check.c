/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/line_check.h"

#include "base/mem.h"
#include "base/os.h"
#include "base/os_pipe.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "batch/validate.h"
#include "json/json.h"
#include "node/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVED_MAX                                                                                 \
    (NODE_MODELS_MAX * MODEL_NAMES_MAX + NODE_UPSTREAMS_MAX * UPSTREAM_FIXED_MODELS_MAX)

/* All names that the node will serve, as a worker, because the tables of names ask workers. */
struct known {
    struct worker worker; /* its operations but `serves` are never called */
    const struct line_check_options *options;
    struct names names;
    struct str served[SERVED_MAX];
    size_t served_count;
    bool serves_all; /* an upstream will tell its names, or they are not to be checked */
    struct line_check *check;
};

/* --- models --- */

static bool serves(struct worker *worker, struct str model) {
    const struct known *known = (const struct known *)worker;
    for (size_t i = 0; i < known->served_count; i++)
        if (str_equals(known->served[i], model)) return true;
    return false;
}

static const struct worker_ops known_ops = {.serves = serves};

static void collect_names(struct known *known) {
    const struct node_options *node = known->options->node;
    known->serves_all = known->options->any_model;
    known->names = (struct names){.aliases = node->aliases, .alias_count = node->alias_count};
    for (size_t i = 0; i < node->model_count; i++)
        for (size_t j = 0; j < node->models[i].name_count; j++)
            known->served[known->served_count++] = str_from(node->models[i].names[j]);
    for (size_t i = 0; i < node->upstream_count; i++) {
        const struct upstream_spec *spec = &node->upstreams[i];
        if (spec->model_count == 0) known->serves_all = true;
        for (size_t j = 0; j < spec->model_count; j++)
            known->served[known->served_count++] = str_from(spec->models[j].name);
    }
}

static bool is_served(void *context, struct str model) {
    struct known *known = context;
    char ignored[MODEL_NAME_BYTES];
    return known->serves_all || names_find(&known->names, &known->worker, model, ignored);
}

static void advise(void *context, struct str model, struct buf *advice) {
    const struct known *known = context;
    names_write_advice(&known->names, advice, model, known->served, known->served_count);
}

static bool has_name(const struct model_choice *choice, const char *served) {
    for (size_t i = 0; i < choice->name_count; i++)
        if (strcmp(choice->names[i], served) == 0) return true;
    return false;
}

/* Whether the upstream serves the name; without a list of models it may serve every name. */
static bool may_serve(const struct upstream_spec *spec, bool is_found, const char *served) {
    bool serves = spec->model_count == 0;
    for (size_t i = 0; i < spec->model_count && is_found; i++)
        serves = serves || strcmp(spec->models[i].name, served) == 0;
    return serves;
}

/* As runner_shapes: an engine holds answers, an upstream and the echo worker do not. */
static enum shape_handling handles_shapes(void *context, struct str model) {
    const struct known *known = context;
    const struct node_options *node = known->options->node;
    char served[MODEL_NAME_BYTES];
    bool is_found = names_find(&known->names, (struct worker *)context, model, served),
         holds = false, passes = false;
    for (size_t i = 0; i < node->upstream_count; i++) {
        if (!may_serve(&node->upstreams[i], is_found, served)) continue;
        if (node->upstreams[i].refuses_shapes) return SHAPES_REFUSED;
        passes = true;
    }
    for (size_t i = 0; i < node->model_count; i++) {
        if (is_found && !has_name(&node->models[i], served)) continue;
        if (node->models[i].is_echo) passes = true;
        holds = true;
    }
    return holds && !passes ? SHAPES_HELD : SHAPES_PASSED_ON;
}

/* As runner_default_model: the first name of the only worker. */
static bool default_model(void *context, char ret_model[MODEL_NAME_BYTES]) {
    const struct known *known = context;
    const struct node_options *node = known->options->node;
    if (known->options->needs_model || node->model_count + node->upstream_count != 1) return false;
    struct str name =
        known->served_count > 0 ? known->served[0] : str_from(node->upstreams[0].name);
    snprintf(ret_model, MODEL_NAME_BYTES, "%.*s", STR_ARGS(name));
    return true;
}

static bool is_stopped(void *context) {
    const struct known *known = context;
    return known->options->stop && *known->options->stop;
}

/* --- faults --- */

static void fill_fault(struct line_fault *fault, uint64_t number, const char *code,
                       const char *message) {
    fault->number = number;
    snprintf(fault->code, sizeof fault->code, "%s", code ? code : "");
    snprintf(fault->message, sizeof fault->message, "%.399s", message ? message : "");
}

static void take_refused(void *context, uint64_t number, const struct refusal *refusal) {
    struct line_check *check = ((struct known *)context)->check;
    if (check->count == check->capacity) {
        check->capacity = check->capacity ? check->capacity * 2 : 64;
        check->numbers = mem_resize(check->numbers, check->capacity, sizeof *check->numbers);
    }
    if (check->count < LINE_CHECK_FAULTS_MAX)
        fill_fault(&check->faults[check->count], number, refusal->code, refusal->message);
    check->numbers[check->count++] = number;
}

/* Takes what the validation says about the file as a whole. */
static enum err take_file_fault(struct line_check *check, const char *errors, struct error *error) {
    json_t *list;
    if (!errors) return OK;
    enum err err = json_read(&list, str_from(errors), error);
    if (err != OK) return err;
    const json_t *first = json_array_get(list, 0);
    fill_fault(&check->file, 0, json_string_value(json_object_get(first, "code")),
               json_string_value(json_object_get(first, "message")));
    json_decref(list);
    return OK;
}

/* --- the file --- */

/* The endpoint of the first line that has one; a client gives the same to the batch. */
static enum endpoint find_endpoint(int fd, uint64_t bytes) {
    struct jsonl_file file;
    struct batch_line line;
    struct str text;
    enum endpoint endpoint = ENDPOINT_CHAT;
    jsonl_file_init(&file);
    jsonl_file_borrow(&file, fd, bytes);
    bool found = false;
    while (!found && jsonl_file_next(&file, &text))
        found = batch_line_read(text, &line) == BATCH_LINE_READ &&
                batch_line_endpoint(&line, &endpoint);
    jsonl_file_close(&file);
    return endpoint;
}

static enum err check_open_file(struct known *known, int fd, const char *index_path,
                                struct error *error) {
    const struct line_check_options *options = known->options;
    struct batch_validation result;
    struct batch_validate_options validate = {.input_fd = fd,
                                              .index_path = index_path,
                                              .endpoint = options->endpoint,
                                              .rules = options->rules,
                                              .context = known,
                                              .serves = is_served,
                                              .default_model = default_model,
                                              .advise = advise,
                                              .handles_shapes = handles_shapes,
                                              .refused = take_refused,
                                              .stopped = is_stopped};
    enum err err = os_file_bytes(fd, &validate.input_bytes, error);
    if (err != OK) return err;
    if (options->endpoint == ENDPOINT_COUNT)
        validate.endpoint = find_endpoint(fd, validate.input_bytes);
    validate.shapes = shape_check_open(SHAPE_CHECK_WORK_MAX);
    err = batch_validate(&validate, &result, error);
    known->check->shapes = shape_check_stats(validate.shapes);
    shape_check_close(validate.shapes);
    if (err == OK) err = take_file_fault(known->check, result.errors, error);
    batch_validation_release(&result);
    return err;
}

enum err line_check_file(const struct line_check_options *options, struct line_check *ret_check,
                         struct error *error) {
    struct line_check check = {.count = 0};
    char folder[PATH_MAX], index_path[PATH_MAX + 16];
    const char *parent = getenv("TMPDIR");
    int fd;
    enum err err = os_open_plain(&fd, options->path, error);
    if (err != OK) return err;
    snprintf(folder, sizeof folder, "%.2000s/quern-check-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(folder)) err = err_from_errno(error, errno, "cannot make %s", folder);
    if (err == OK) {
        struct known *known = mem_new(1, sizeof *known);
        known->worker.ops = &known_ops;
        known->options = options;
        known->check = &check;
        collect_names(known);
        snprintf(index_path, sizeof index_path, "%s/lines.idx", folder);
        err = check_open_file(known, fd, index_path, error);
        folder_remove(folder);
        free(known);
    }
    os_close(fd);
    if (err == OK)
        *ret_check = check;
    else
        line_check_release(&check);
    return err;
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

bool line_check_refuses(const struct line_check *check, uint64_t number) {
    return check->count > 0 &&
           bsearch(&number, check->numbers, check->count, sizeof number, compare_numbers) != NULL;
}

void line_check_release(struct line_check *check) {
    free(check->numbers);
    *check = (struct line_check){.count = 0};
}
