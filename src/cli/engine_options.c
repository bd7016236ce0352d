/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/engine_options.h"

#include <stdlib.h>
#include <string.h>

void engine_options_fill(struct option *ret_options, struct engine_choice *choice) {
    const struct option rows[ENGINE_OPTION_COUNT] = {
        {.name = "model",
         .letter = 'm',
         .kind = OPTION_LIST,
         .target = &choice->models,
         .value = "[ALIAS=]M",
         .help = "a name or FILE.gguf; may be given several times"},
        {.name = "upstream",
         .kind = OPTION_LIST,
         .target = &choice->upstreams,
         .value = "NAME=URL",
         .help = "a server that speaks /v1; may be given several times"},
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
        {.name = "trust-request-chat-template",
         .kind = OPTION_SWITCH,
         .target = &choice->trust_request_chat_template,
         .help = "requests may bring a chat_template"},
    };
    memcpy(ret_options, rows, sizeof rows);
}

static enum err read_upstreams(const struct engine_choice *choice, struct house_options *house,
                               struct error *error) {
    enum err err = OK;
    _Static_assert(OPTION_LIST_MAX <= HOUSE_UPSTREAMS_MAX, "every --upstream has a place");
    struct upstream_spec *specs = calloc(choice->upstreams.count + 1, sizeof *specs);
    if (!specs) abort();
    house->upstreams = specs;
    for (size_t i = 0; i < choice->upstreams.count && err == OK; i++) {
        err = upstream_spec_read(choice->upstreams.values[i], &specs[i], error);
        for (size_t j = 0; j < i && err == OK; j++)
            if (strcmp(specs[j].name, specs[i].name) == 0)
                err = err_set(error, ERR_INVALID, "two upstreams are called %s", specs[i].name);
        if (err != OK) err = err_prefix(error, "--upstream");
        house->upstream_count = i + 1;
    }
    return err;
}

enum err engine_options_apply(const struct engine_choice *choice, struct house_options *house,
                              struct error *error) {
    if (choice->models.count == 0 && choice->upstreams.count == 0)
        return err_set(error, ERR_INVALID,
                       "--model is missing; `quern models` lists what is there");
    if (choice->models.count > HOUSE_MODELS_MAX)
        return err_set(error, ERR_INVALID, "--model: %zu models, at most %d", choice->models.count,
                       HOUSE_MODELS_MAX);
    for (size_t i = 0; i < choice->models.count; i++) {
        enum err err = catalog_choose(choice->models.values[i], &house->models[i], error);
        if (err != OK) return err;
    }
    house->runner.result_cache_bytes = (uint64_t)choice->result_cache_bytes;
    house->model_count = choice->models.count;
    enum err err = read_upstreams(choice, house, error);
    if (err != OK) return err;
    house->engine = (struct engine_settings){
        .threads = (uint32_t)choice->threads,
        .max_num_seqs = (uint32_t)choice->max_num_seqs,
        .max_num_batched_tokens = (uint32_t)choice->max_num_batched_tokens,
        .max_model_len = (uint32_t)choice->max_model_len,
        .kv_bytes = (uint64_t)choice->kv_bytes,
        .no_prefix_caching = !choice->prefix_caching,
        .reference = choice->reference,
        .kernels = choice->kernels,
        .trust_request_chat_template = choice->trust_request_chat_template,
    };
    return OK;
}
