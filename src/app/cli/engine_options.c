/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/engine_options.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "checkpoint/config.h"
#include "cli/file_quantization.h"
#include "cli/pull_show.h"
#include "engine/served_model.h"
#include "gpu/gpu_settings.h"
#include "gpu/table.h"
#include "hub/pull_package.h"
#include "scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most that a preflight's child takes as one argument is 128 KiB. */
#define CHAT_TEMPLATE_BYTES_MAX ((size_t)100000)

/* Tokens guessed per sequence and step: of more, the last ones are seldom right. */
#define SPECULATIVE_TOKENS_DEFAULT 8

#define AT(field) offsetof(struct engine_choice, field)
const struct option engine_option_rows[] = {
    /* Models and their names. */
    {"config", OPTION_TEXT, AT(config), "F",
     .help = "settings file, `name = value` per line, instead of the usual ones",
     .only_flag = true},
    {"model", OPTION_LIST, AT(models), "[ALIAS=]M",
     .help = "model to run: a name, FILE.gguf or a folder; repeatable", .letter = 'm'},
    {"pull", OPTION_SWITCH, AT(pull),
     .help = "fetch missing models from a Hugging Face hub, as `quern pull` does"},
    {"upstream", OPTION_LIST, AT(upstreams), "NAME=URL",
     .help = "server with an OpenAI-compatible /v1 to send requests to; repeatable"},
    {"served-model-name", OPTION_WORDS, AT(served_names), "NAME...",
     .help = "names instead of the model's own; answers carry the first"},
    {"alias", OPTION_LIST, AT(aliases), "NAME=MODEL",
     .help = "additional name for a served model; repeatable"},
    {"max-loaded-models", OPTION_INTEGER, AT(loaded_models_max), "N",
     .help = "models in memory at a time; others wait (default 0: as many as fit)",
     .max = NODE_MODELS_MAX},
    {"model-stay-seconds", OPTION_INTEGER, AT(model_stay_s), "N",
     .help = "time a loaded model with work keeps its place (default 10 s)", .max = 86400},

    /* Computing. */
    {"threads", OPTION_INTEGER, AT(threads), "N",
     .help = "computing threads (default 0: one per core)", .max = 1024},
    {"max-model-len", OPTION_INTEGER, AT(max_model_len), "N",
     .help = "tokens of prompt and answer together (default 0: the model's context)",
     .max = 1 << 24, .is_size = true},
    {"max-num-seqs", OPTION_INTEGER, AT(max_num_seqs), "N",
     .help = "sequences that run at a time; interactive requests add 16 (default 128, on a GPU up "
             "to 1024)",
     .max = 1 << 16, .is_size = true},
    {"max-num-batched-tokens", OPTION_INTEGER, AT(max_num_batched_tokens), "N",
     .help = "tokens computed per step (default by trials: 128 to 512, on a GPU 512 to 2048)",
     .max = 1 << 20, .is_size = true},
    {"num-speculative-tokens", OPTION_INTEGER, AT(num_speculative_tokens), "N",
     .help =
         "tokens guessed from a text's own repetitions, per sequence and step of few sequences, "
         "on the CPU (default 8; 0: none); the answers are the same",
     .max = SCHEDULER_DRAFT_TOKENS_MAX},
    {"speculative-model", OPTION_TEXT, AT(speculative_model), "M",
     .help = "small model with the same vocabulary that guesses the next tokens of one or two "
             "chats, on the CPU: a name, FILE.gguf or a folder; the answers are the same"},
    {"kv-cache-memory-bytes", OPTION_INTEGER, AT(kv_bytes), "N",
     .help = "memory of the KV cache (default 1 GiB, on a GPU all that is left)", .max = 1e15,
     .is_size = true},
    {"mamba-cache-memory-bytes", OPTION_INTEGER, AT(state_bytes), "N",
     .help = "memory for the states of recurrent layers, of running sequences and of shared "
             "prefixes (default 2 GiB; on a GPU as many as sequences run)",
     .max = 1e15, .is_size = true},
    {"weight-memory-bytes", OPTION_INTEGER, AT(weight_bytes), "N",
     .help =
         "memory for weights on the CPU; experts beyond it stay in the file and are read as they "
         "are met; with a GPU, the host's memory for experts that it has no room for (default: "
         "what is free)",
     .max = 1e15, .is_size = true},
    {"enable-prefix-caching", OPTION_SWITCH, AT(prefix_caching),
     .help = "share computed prompt prefixes (default on; off: --no-enable-prefix-caching)"},
    {"result-cache-bytes", OPTION_INTEGER, AT(result_cache_bytes), "N",
     .help = "answers kept for equal requests, in bytes (default 256 MiB; 0: none)",
     .max = (double)((int64_t)1 << 36), .is_size = true},
    {"reference", OPTION_SWITCH, AT(reference), .help = "compute in plain C, float32: exact, slow"},
    {"kernels", OPTION_TEXT, AT(kernels), "NAME",
     .help = "kernels: ref, avx2, avx512 or avx512-bf16 (default: the best of this CPU)",
     .words = "ref|avx2|avx512|avx512-bf16"},
    {"pooling", OPTION_TEXT, AT(pooling), "NAME",
     .help = "pooling of embeddings: mean, cls or last (default: the model's)",
     .words = "mean|cls|last"},

    /* Devices. */
    {"device", OPTION_TEXT, AT(device), "D",
     .help = "auto (a GPU if one can be used), cpu, cuda, cuda:N or cuda:UUID (default auto)",
     .words = "auto|cpu|cuda"},
    {"gpu-memory-utilization", OPTION_NUMBER, AT(gpu_memory_share), "X",
     .help = "share of a GPU's memory to take (default 0.9, then at most what is free)",
     .min = 0.01, .max = 1},
    {"gpu-memory-limit-mib", OPTION_INTEGER, AT(gpu_memory_limit_mib), "N",
     .help = "memory of a GPU to take, in MiB, instead of a share", .min = 1, .max = 1 << 28,
     .is_size = true},
    {"dtype", OPTION_TEXT, AT(dtype), "NAME",
     .help = "numbers between operations: auto, or bfloat16 on a GPU (default auto)",
     .words = "auto|bfloat16"},
    {"kv-cache-dtype", OPTION_TEXT, AT(kv_cache_dtype), "NAME",
     .help = "numbers of the KV cache: auto, on a GPU bfloat16 or fp8, on the CPU "
             "int8_per_token_head (default auto)",
     .words = "auto|bfloat16|fp8|int8_per_token_head"},
    {"mamba-ssm-cache-dtype", OPTION_TEXT, AT(state_dtype), "NAME",
     .help = "numbers of the states of recurrent layers: auto (float32), or on a GPU bfloat16",
     .words = "auto|float32|bfloat16"},
    {"quantization", OPTION_TEXT, AT(quantization), "NAME",
     .help =
         "weights: auto, on a GPU none, fp8, int8, or file: as the files have them (default auto)",
     .words = "auto|none|fp8|int8|file|awq|awq_marlin|gptq|gptq_marlin|compressed-tensors|gguf"},
    {"data-parallel-size", OPTION_INTEGER, AT(data_parallel_size), "N",
     .help =
         "engines per model, each on a GPU of its own (default: with --device cuda one per GPU, "
         "else 1)",
     .brief = "dp", .max = RUNNER_WORKERS_MAX},
    {"tensor-parallel-size", OPTION_INTEGER, AT(tensor_parallel_size), "N",
     .help = "GPUs that compute each step of an engine together, for models that one does not hold "
             "(default 1)",
     .brief = "tp", .min = 1, .max = GPU_RANKS_MAX},
    {"block-size", OPTION_INTEGER, AT(block_size), "N",
     .help = "tokens per KV block, only 16 (default 16)"},
    {"device-plugin", OPTION_TEXT, AT(device_plugin), "FILE",
     .help = "plugin that drives the GPUs (default: the one next to quern)"},

    /* Reading models. */
    {"packed-cache", OPTION_SWITCH, AT(packed_cache),
     .help = "keep packed weights for the next load (default on; off: --no-packed-cache)"},
    {"packed-cache-dir", OPTION_TEXT, AT(packed_dir), "DIR",
     .help = "folder of packed weights (default ${XDG_CACHE_HOME:-~/.cache}/quern/packed)"},
    {"packed-cache-bytes", OPTION_INTEGER, AT(packed_bytes_max), "N",
     .help = "size of that folder; the longest unused files go (default 64 GiB)", .max = 1e15,
     .is_size = true},
    {"trust-request-chat-template", OPTION_SWITCH, AT(trust_request_chat_template),
     .help = "allow requests to bring a chat_template"},
    {"chat-template", OPTION_TEXT, AT(chat_template), "F",
     .help = "file of a Jinja template for chats, or its text (default: the model's)"},
    {"tool-call-parser", OPTION_TEXT, AT(tool_call_parser), "NAME",
     .help =
         "form of the model's calls, as vLLM names it: hermes, qwen3_coder, mistral, llama3_json, "
         "pythonic … (default: by the chat template)"},
    {"load-format", OPTION_TEXT, AT(load_format), "FORMAT",
     .help = "weights: auto, or dummy to make them up from a config.json (default auto)",
     .words = "auto|dummy"},

    /* This program. */
    {"log-level", OPTION_TEXT, AT(log_level), "LEVEL",
     .help = "least level of the log: error, warn, info or debug (default: info; run warn, "
             "preflight error)",
     .words = "error|warn|info|debug", .reloads = true},
    {"log-format", OPTION_TEXT, AT(log_format), "FORMAT",
     .help = "lines of the log: text, or json for one object per line (default text)",
     .words = "text|json"},
    {0},
};

void engine_options_set_defaults(struct engine_choice *choice) {
    choice->prefix_caching = true;
    choice->num_speculative_tokens = SPECULATIVE_TOKENS_DEFAULT;
    choice->result_cache_bytes = RESULT_CACHE_BYTES_DEFAULT;
    choice->packed_cache = true;
    choice->packed_bytes_max = PACKED_FOLDER_BYTES_DEFAULT;
    choice->model_stay_s = 10;
    choice->tensor_parallel_size = 1;
    choice->block_size = GPU_PAGE_TOKENS;
}

/* --- checking --- */

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

static enum err check_served_names(const struct engine_choice *choice, struct error *error) {
    const struct option_list *names = &choice->served_names;
    if (names->count == 0) return OK;
    if (choice->models.count != 1)
        return err_set(error, ERR_INVALID,
                       "--served-model-name names the one model; with several, write "
                       "--model NAME=MODEL for each");
    if (names->count > MODEL_NAMES_MAX)
        return err_set(error, ERR_LIMIT, "--served-model-name: %zu names, at most %d", names->count,
                       MODEL_NAMES_MAX);
    for (size_t i = 0; i < names->count; i++) {
        size_t bytes = strlen(names->values[i]);
        if (bytes == 0 || bytes >= MODEL_NAME_BYTES)
            return err_set(error, ERR_INVALID,
                           "--served-model-name: a name has %zu bytes, not 1 to %d", bytes,
                           MODEL_NAME_BYTES - 1);
    }
    return OK;
}

/* Cuts each NAME=MODEL in two; the node borrows both parts. */
static enum err read_aliases(struct engine_choice *choice, struct node_options *node,
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
    /* vLLM's formats that name a way to read the files, or a kind of file that is read anyway. */
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

/* Reads the template: the file of that name, or, as vLLM has it, the text itself if it looks like a
 * template and no file has its name. */
static enum err read_template(struct engine_choice *choice, struct error *error) {
    const char *given = choice->chat_template;
    size_t bytes;
    if (!given) return OK;
    enum err err =
        os_read_file(given, CHAT_TEMPLATE_BYTES_MAX, &choice->chat_template_text, &bytes, error);
    if (err != OK && strpbrk(given, "{}\n") && strlen(given) < CHAT_TEMPLATE_BYTES_MAX) {
        choice->chat_template_text = mem_text(given);
        return OK;
    }
    if (err != OK) return err_prefix(error, "--chat-template");
    os_drop_mark(choice->chat_template_text, &bytes);
    if (bytes > 0 && !memchr(choice->chat_template_text, '\0', bytes)) return OK;
    return err_set(error, ERR_INVALID, "--chat-template: %s is no template", given);
}

/* The folder of packed weights, or NULL. */
static const char *packed_dir_of(struct engine_choice *choice) {
    if (!choice->packed_cache || choice->packed_bytes_max == 0) return NULL;
    if (choice->packed_dir) return *choice->packed_dir ? choice->packed_dir : NULL;
    return packed_folder_usual(choice->packed_dir_usual) ? choice->packed_dir_usual : NULL;
}

/* Fills the options about a device, after the same check that the engine process makes. */
static enum err fill_device(const struct engine_choice *choice, struct wire_device *ret_device,
                            struct error *error) {
    if (choice->block_size != GPU_PAGE_TOKENS)
        return err_set(error, ERR_INVALID, "--block-size %lld is not supported (%u is)",
                       (long long)choice->block_size, GPU_PAGE_TOKENS);
    const struct gpu_texts texts = {
        .device = str_from(choice->device),
        .plugin = str_from(choice->device_plugin),
        .dtype = str_from(choice->dtype),
        .kv_cache_dtype = str_from(choice->kv_cache_dtype),
        .state_dtype = str_from(choice->state_dtype),
        .quantization =
            str_from(file_quantization_is(choice->quantization) ? "file" : choice->quantization),
        .memory_share = choice->gpu_memory_share,
        .memory_bytes = (uint64_t)choice->gpu_memory_limit_mib << 20,
        .tensor_parallel_size = (uint32_t)choice->tensor_parallel_size,
    };
    struct gpu_settings settings;
    enum err err = gpu_settings_read(&settings, &texts, error);
    if (err != OK) return err;
    if (choice->data_parallel_size > 1 && settings.card.bytes > 0)
        return err_set(error, ERR_INVALID,
                       "--data-parallel-size %lld: --device %.64s is one GPU; write --device cuda, "
                       "and choose GPUs by CUDA_VISIBLE_DEVICES",
                       (long long)choice->data_parallel_size, choice->device);
    *ret_device = (struct wire_device){.name = texts.device,
                                       .plugin = texts.plugin,
                                       .dtype = texts.dtype,
                                       .kv_cache_dtype = texts.kv_cache_dtype,
                                       .state_dtype = texts.state_dtype,
                                       .quantization = texts.quantization,
                                       .memory_share = texts.memory_share,
                                       .memory_bytes = texts.memory_bytes,
                                       .tensor_parallel_size = texts.tensor_parallel_size};
    if (!choice->reference && !choice->kernels) return OK;
    if (settings.choice == GPU_CHOICE_CARD)
        return err_set(error, ERR_INVALID,
                       "--reference and --kernels choose the CPU; --device %.64s does not",
                       choice->device);
    ret_device->name = STR("cpu");
    settings.choice = GPU_CHOICE_CPU;
    return gpu_settings_check_cpu(&settings, error);
}

static enum err fill_engine(struct engine_choice *choice, struct engine_settings *ret_engine,
                            struct error *error) {
    bool is_dummy;
    enum pooling pooling;
    if (choice->pooling && !pooling_of_name(str_from(choice->pooling), &pooling))
        return err_set(error, ERR_INVALID, "--pooling is not mean, cls or last");
    enum err err = engine_options_is_dummy(choice->load_format, &is_dummy, error);
    if (err == OK) err = served_model_check_parser(choice->tool_call_parser, error);
    struct wire_device device;
    if (err == OK) err = fill_device(choice, &device, error);
    if (err == OK) err = read_template(choice, error);
    if (err != OK) return err;
    *ret_engine = (struct engine_settings){
        .threads = (uint32_t)choice->threads,
        .max_num_seqs = (uint32_t)choice->max_num_seqs,
        .max_num_batched_tokens = (uint32_t)choice->max_num_batched_tokens,
        .num_speculative_tokens = (uint32_t)choice->num_speculative_tokens,
        .max_model_len = (uint32_t)choice->max_model_len,
        .kv_bytes = (uint64_t)choice->kv_bytes,
        .state_bytes = (uint64_t)choice->state_bytes,
        .weight_bytes = (uint64_t)choice->weight_bytes,
        .no_prefix_caching = !choice->prefix_caching,
        .reference = choice->reference,
        .kernels = choice->kernels,
        .pooling = choice->pooling,
        .trust_request_chat_template = choice->trust_request_chat_template,
        .chat_template = choice->chat_template_text,
        .tool_call_parser = choice->tool_call_parser,
        .dummy_weights = is_dummy,
        .packed_dir = packed_dir_of(choice),
        .packed_bytes_max = (uint64_t)choice->packed_bytes_max,
        .device = device,
    };
    return OK;
}

enum err engine_options_check(struct engine_choice *choice, struct node_options *node,
                              struct error *error) {
    if (choice->models.count == 0 && choice->upstreams.count == 0 && !choice->may_have_none)
        return err_set(error, ERR_INVALID,
                       "--model is missing; `quern models` lists what is there");
    if (choice->models.count > NODE_MODELS_MAX)
        return err_set(error, ERR_INVALID, "--model: %zu models, at most %d", choice->models.count,
                       NODE_MODELS_MAX);
    if (choice->log_level && !log_set_level_by_name(choice->log_level))
        return err_set(error, ERR_INVALID, "--log-level '%.64s' is not error, warn, info or debug",
                       choice->log_level);
    if (choice->log_format && !log_set_format_by_name(choice->log_format))
        return err_set(error, ERR_INVALID, "--log-format '%.64s' is not text or json",
                       choice->log_format);
    node->runner.result_cache_bytes = (uint64_t)choice->result_cache_bytes;
    node->model_stay_s = choice->model_stay_s;
    node->loaded_models_max = (uint32_t)choice->loaded_models_max;
    node->data_parallel_size = (uint32_t)choice->data_parallel_size;
    enum err err = read_upstreams(choice, node, error);
    if (err == OK) err = check_served_names(choice, error);
    if (err == OK) err = read_aliases(choice, node, error);
    return err == OK ? fill_engine(choice, &node->engine, error) : err;
}

void engine_options_release(struct engine_choice *choice, struct node_options *node) {
    free(choice->chat_template_text);
    free(node->upstreams);
}

/* --- models --- */

/* Finds a model, with --pull after fetching it. */
static enum err find_model(const struct engine_choice *choice, const char *argument,
                           struct model_choice *ret_model, const volatile bool *stop,
                           struct error *error) {
    struct pull_show show = {.command = "--pull", .quiet = log_is_json()};
    struct pull_summary summary;
    const struct pull_options options = {.name = catalog_name_of(argument),
                                         .stop = stop,
                                         .context = &show,
                                         .progress = pull_show_progress,
                                         .note = pull_show_note};
    enum err err = catalog_choose(argument, ret_model, error);
    if (err != ERR_NOT_FOUND || !choice->pull) return err;
    terminal_init(&show.terminal);
    if (log_is_json())
        log_info("event=pull model=%s", options.name);
    else
        fprintf(stderr, "quern --pull: fetching %s\n", options.name);
    err = pull_run(&options, &summary, error);
    pull_show_end(&show);
    char path[PATH_MAX];
    if (err != OK && err != ERR_CANCELLED && pull_package_knows(options.name))
        err = pull_package_run(options.name, stop, path, error);
    if (err != OK) return err_prefix(error, "--pull");
    return catalog_choose(argument, ret_model, error);
}

/* Finds the model that guesses. */
static enum err find_draft(struct engine_choice *choice, struct node_options *node,
                           const volatile bool *stop, struct error *error) {
    struct model_choice *model = &choice->draft;
    enum err err = find_model(choice, choice->speculative_model, model, stop, error);
    if (err == OK && model->is_echo)
        err = err_set(error, ERR_INVALID, "echo is no model that can guess");
    if (err != OK) return err_prefix(error, "--speculative-model");
    node->engine.speculative_model = model->path;
    return OK;
}

enum err engine_options_find_models(struct engine_choice *choice, struct node_options *node,
                                    const volatile bool *stop, struct error *error) {
    const struct option_list *names = &choice->served_names;
    for (size_t i = 0; i < choice->models.count; i++) {
        struct model_choice *model = &node->models[i];
        enum err err = find_model(choice, choice->models.values[i], model, stop, error);
        if (err == OK && !model->is_echo && file_quantization_is(choice->quantization))
            err = file_quantization_check(choice->quantization, model->path, error);
        if (err != OK) return err;
    }
    node->model_count = choice->models.count;
    if (choice->speculative_model) {
        enum err err = find_draft(choice, node, stop, error);
        if (err != OK) return err;
    }
    if (names->count > 0) node->models[0].name_count = names->count;
    for (size_t i = 0; i < names->count; i++)
        snprintf(node->models[0].names[i], MODEL_NAME_BYTES, "%s", names->values[i]);
    return OK;
}
