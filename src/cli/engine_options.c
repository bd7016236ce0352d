/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/engine_options.h"

#include "base/mem.h"
#include "checkpoint/config.h"
#include "cli/command.h"
#include "cli/pull_show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_ROWS 8
#define ENGINE_ROWS 10
#define LOADING_ROWS 5
_Static_assert(MODEL_ROWS + ENGINE_ROWS + LOADING_ROWS == ENGINE_OPTION_COUNT,
               "room for every row");

/* What is served, and under which names. */
static void fill_model_rows(struct option *ret_options, struct engine_choice *choice) {
    const struct option rows[MODEL_ROWS] = {
        {.name = "config",
         .kind = OPTION_TEXT,
         .target = &choice->config,
         .value = "F",
         .help = "settings, `name = value` a line, instead of the usual files",
         .only_flag = true},
        {.name = "model",
         .letter = 'm',
         .kind = OPTION_LIST,
         .target = &choice->models,
         .value = "[ALIAS=]M",
         .help = "a name, FILE.gguf or a folder; may be given several times"},
        {.name = "pull",
         .kind = OPTION_SWITCH,
         .target = &choice->pull,
         .help = "fetch from a Hugging Face hub what is not here yet, as `quern pull` does"},
        {.name = "upstream",
         .kind = OPTION_LIST,
         .target = &choice->upstreams,
         .value = "NAME=URL",
         .help = "a server that speaks /v1; may be given several times"},
        {.name = "served-model-name",
         .kind = OPTION_WORDS,
         .target = &choice->served_names,
         .value = "NAME...",
         .help = "instead of the model's own names; answers say the first"},
        {.name = "alias",
         .kind = OPTION_LIST,
         .target = &choice->aliases,
         .value = "NAME=MODEL",
         .help = "one more name for a served model; may be given several times"},
        {.name = "max-loaded-models",
         .kind = OPTION_INTEGER,
         .target = &choice->loaded_models_max,
         .value = "N",
         .help = "in memory at a time, the others wait their turn; as many as fit",
         .min = 0,
         .max = NODE_MODELS_MAX},
        {.name = "model-stay-seconds",
         .kind = OPTION_INTEGER,
         .target = &choice->model_stay_s,
         .value = "N",
         .help = "of a loaded model with work, before a request for another; 10",
         .min = 0,
         .max = 86400},
    };
    memcpy(ret_options, rows, sizeof rows);
}

/* How it is computed. */
static void fill_engine_rows(struct option *ret_options, struct engine_choice *choice) {
    const struct option rows[ENGINE_ROWS] = {
        {.name = "threads",
         .kind = OPTION_INTEGER,
         .target = &choice->threads,
         .value = "N",
         .help = "that compute; one for each core",
         .min = 0,
         .max = 1024},
        {.name = "max-model-len",
         .kind = OPTION_INTEGER,
         .target = &choice->max_model_len,
         .value = "N",
         .help = "tokens of prompt and answer; as the model says",
         .min = 0,
         .max = 1 << 24},
        {.name = "max-num-seqs",
         .kind = OPTION_INTEGER,
         .target = &choice->max_num_seqs,
         .value = "N",
         .help = "sequences that run at a time; chats have 16 more",
         .min = 0,
         .max = 1 << 16},
        {.name = "max-num-batched-tokens",
         .kind = OPTION_INTEGER,
         .target = &choice->max_num_batched_tokens,
         .value = "N",
         .help = "tokens of one step",
         .min = 0,
         .max = 1 << 20},
        {.name = "kv-cache-memory-bytes",
         .kind = OPTION_INTEGER,
         .target = &choice->kv_bytes,
         .value = "N",
         .help = "for keys and values",
         .min = 0,
         .max = 1e15},
        {.name = "enable-prefix-caching",
         .kind = OPTION_SWITCH,
         .target = &choice->prefix_caching,
         .help = "on; --no-enable-prefix-caching turns it off"},
        {.name = "result-cache-bytes",
         .kind = OPTION_INTEGER,
         .target = &choice->result_cache_bytes,
         .value = "N",
         .help = "for answers that equal requests get again; 256 MiB; 0: each runs",
         .min = 0,
         .max = (int64_t)1 << 36},
        {.name = "reference",
         .kind = OPTION_SWITCH,
         .target = &choice->reference,
         .help = "plain C in float32: exact and slow"},
        {.name = "kernels",
         .kind = OPTION_TEXT,
         .target = &choice->kernels,
         .value = "NAME",
         .help = "ref, avx2, avx512, avx512-bf16; the best this CPU has"},
        {.name = "pooling",
         .kind = OPTION_TEXT,
         .target = &choice->pooling,
         .value = "NAME",
         .help = "of embeddings: mean, cls, last; as the model says"},
    };
    memcpy(ret_options, rows, sizeof rows);
}

/* What of a model's files is read, kept and overridden. */
static void fill_loading_rows(struct option *ret_options, struct engine_choice *choice) {
    const struct option rows[LOADING_ROWS] = {
        {.name = "packed-cache",
         .kind = OPTION_SWITCH,
         .target = &choice->packed_cache,
         .help = "keep packed weights for the next load; --no-packed-cache does not"},
        {.name = "packed-cache-dir",
         .kind = OPTION_TEXT,
         .target = &choice->packed_dir,
         .value = "D",
         .help = "for them; ${XDG_CACHE_HOME:-~/.cache}/quern/packed"},
        {.name = "packed-cache-bytes",
         .kind = OPTION_INTEGER,
         .target = &choice->packed_bytes_max,
         .value = "N",
         .help = "of all in there, the longest unused go first; 64 GiB",
         .min = 0,
         .max = 1e15},
        {.name = "trust-request-chat-template",
         .kind = OPTION_SWITCH,
         .target = &choice->trust_request_chat_template,
         .help = "requests may bring a chat_template"},
        {.name = "load-format",
         .kind = OPTION_TEXT,
         .target = &choice->load_format,
         .value = "FORMAT",
         .help = "auto, or dummy: made-up weights for a folder's config.json"},
    };
    memcpy(ret_options, rows, sizeof rows);
}

void engine_options_fill(struct option *ret_options, struct engine_choice *choice) {
    fill_model_rows(ret_options, choice);
    fill_engine_rows(ret_options + MODEL_ROWS, choice);
    fill_loading_rows(ret_options + MODEL_ROWS + ENGINE_ROWS, choice);
}

static enum err read_upstreams(const struct engine_choice *choice, struct node_options *node,
                               struct error *error) {
    enum err err = OK;
    _Static_assert(OPTION_LIST_MAX <= NODE_UPSTREAMS_MAX, "every --upstream has a place");
    struct upstream_spec *specs = mem_new(choice->upstreams.count + 1, sizeof *specs);
    node->upstreams = specs;
    for (size_t i = 0; i < choice->upstreams.count && err == OK; i++) {
        err = upstream_spec_read(choice->upstreams.values[i], &specs[i], error);
        for (size_t j = 0; j < i && err == OK; j++)
            if (strcmp(specs[j].name, specs[i].name) == 0)
                err = err_set(error, ERR_INVALID, "two upstreams are called %s", specs[i].name);
        if (err != OK) err = err_prefix(error, "--upstream");
        node->upstream_count = i + 1;
    }
    return err;
}

/* The names are the caller's own, so they are all there is. */
static enum err apply_served_names(const struct engine_choice *choice, struct node_options *node,
                                   struct error *error) {
    const struct option_list *names = &choice->served_names;
    struct model_choice *model = &node->models[0];
    if (names->count == 0) return OK;
    if (node->model_count != 1)
        return err_set(error, ERR_INVALID,
                       "--served-model-name names the one model; with several, write "
                       "--model NAME=MODEL for each");
    if (names->count > MODEL_NAMES_MAX)
        return err_set(error, ERR_LIMIT, "--served-model-name: %zu names, at most %d", names->count,
                       MODEL_NAMES_MAX);
    model->name_count = 0;
    for (size_t i = 0; i < names->count; i++) {
        size_t bytes = strlen(names->values[i]);
        if (bytes == 0 || bytes >= MODEL_NAME_BYTES)
            return err_set(error, ERR_INVALID,
                           "--served-model-name: a name has %zu bytes, not 1 to %d", bytes,
                           MODEL_NAME_BYTES - 1);
        memcpy(model->names[model->name_count++], names->values[i], bytes + 1);
    }
    return OK;
}

/* Cuts each NAME=MODEL in two; the texts are the table's own. */
static enum err apply_aliases(struct engine_choice *choice, struct node_options *node,
                              struct error *error) {
    for (size_t i = 0; i < choice->aliases.count; i++) {
        const char *text = choice->aliases.values[i], *equals = strchr(text, '=');
        size_t bytes = equals ? (size_t)(equals - text) : 0;
        if (bytes == 0 || bytes >= MODEL_NAME_BYTES || !equals[1])
            return err_set(error, ERR_INVALID, "--alias '%.200s' is not NAME=MODEL", text);
        for (size_t j = 0; j < i; j++)
            if (strlen(choice->alias_names[j]) == bytes &&
                memcmp(choice->alias_names[j], text, bytes) == 0)
                return err_set(error, ERR_INVALID, "--alias: '%.*s' is given twice", (int)bytes,
                               text);
        memcpy(choice->alias_names[i], text, bytes);
        choice->alias_names[i][bytes] = '\0';
        node->aliases[node->alias_count++] =
            (struct name_alias){choice->alias_names[i], equals + 1};
    }
    return OK;
}

enum err engine_options_is_dummy(const char *load_format, bool *ret_is_dummy, struct error *error) {
    /* Those of vLLM that only say how files are read, or which of those that are read anyway. */
    static const char *const ways[] = {"auto",    "safetensors",    "gguf",
                                       "mistral", "runai_streamer", "fastsafetensors"};
    *ret_is_dummy = load_format && strcmp(load_format, "dummy") == 0;
    if (!load_format || *ret_is_dummy) return OK;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(load_format, ways[i]) == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "--load-format '%.64s' is not supported (auto, safetensors, gguf and dummy are)",
                   load_format);
}

/* Finds a model; with --pull it may come from a hub first. */
static enum err choose_model(const struct engine_choice *choice, const char *argument,
                             struct model_choice *ret_model, struct error *error) {
    struct pull_show show = {.command = "--pull", .terminal = isatty(STDERR_FILENO)};
    struct pull_summary summary;
    const struct pull_options options = {.name = catalog_name_of(argument),
                                         .context = &show,
                                         .progress = pull_show_progress,
                                         .note = pull_show_note};
    enum err err = catalog_choose(argument, ret_model, error);
    if (err != ERR_NOT_FOUND || !choice->pull) return err;
    fprintf(stderr, "quern --pull: fetching %s\n", options.name);
    err = pull_run(&options, &summary, error);
    pull_show_end(&show);
    if (err != OK) return err_prefix(error, "--pull");
    return catalog_choose(argument, ret_model, error);
}

int engine_options_exit(enum err err) {
    bool is_machine = err == ERR_IO || err == ERR_UNAVAILABLE || err == ERR_CORRUPT;
    return is_machine ? EXIT_MACHINE : EXIT_WRONG_INPUT;
}

/* NULL: none. */
static const char *packed_dir_of(struct engine_choice *choice) {
    if (!choice->packed_cache || choice->packed_bytes_max == 0) return NULL;
    if (choice->packed_dir) return *choice->packed_dir ? choice->packed_dir : NULL;
    return packed_folder_usual(choice->packed_dir_usual) ? choice->packed_dir_usual : NULL;
}

enum err engine_options_apply(struct engine_choice *choice, struct node_options *node,
                              struct error *error) {
    if (choice->models.count == 0 && choice->upstreams.count == 0)
        return err_set(error, ERR_INVALID,
                       "--model is missing; `quern models` lists what is there");
    if (choice->models.count > NODE_MODELS_MAX)
        return err_set(error, ERR_INVALID, "--model: %zu models, at most %d", choice->models.count,
                       NODE_MODELS_MAX);
    for (size_t i = 0; i < choice->models.count; i++) {
        enum err err = choose_model(choice, choice->models.values[i], &node->models[i], error);
        if (err != OK) return err;
    }
    node->runner.result_cache_bytes = (uint64_t)choice->result_cache_bytes;
    node->model_count = choice->models.count;
    enum err err = read_upstreams(choice, node, error);
    if (err == OK) err = apply_served_names(choice, node, error);
    if (err == OK) err = apply_aliases(choice, node, error);
    enum pooling pooling;
    if (err == OK && choice->pooling && !pooling_of_name(str_from(choice->pooling), &pooling))
        err = err_set(error, ERR_INVALID, "--pooling is not mean, cls or last");
    if (err != OK) return err;
    bool is_dummy;
    err = engine_options_is_dummy(choice->load_format, &is_dummy, error);
    if (err != OK) return err;
    node->model_stay_s = choice->model_stay_s;
    node->loaded_models_max = (uint32_t)choice->loaded_models_max;
    node->engine = (struct engine_settings){
        .threads = (uint32_t)choice->threads,
        .max_num_seqs = (uint32_t)choice->max_num_seqs,
        .max_num_batched_tokens = (uint32_t)choice->max_num_batched_tokens,
        .max_model_len = (uint32_t)choice->max_model_len,
        .kv_bytes = (uint64_t)choice->kv_bytes,
        .no_prefix_caching = !choice->prefix_caching,
        .reference = choice->reference,
        .kernels = choice->kernels,
        .pooling = choice->pooling,
        .trust_request_chat_template = choice->trust_request_chat_template,
        .dummy_weights = is_dummy,
        .packed_dir = packed_dir_of(choice),
        .packed_bytes_max = (uint64_t)choice->packed_bytes_max,
    };
    return OK;
}
