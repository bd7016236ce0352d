/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_options: the options that start engines and name upstreams, shared by `quern run`,
 * `quern serve` and `quern preflight`, under the names that vLLM's users know.
 *
 * First the texts are checked, without a look at the disk; then the models are found, which may
 * fetch them.
 *
 * Thread: main.
 * Memory: the caller's struct; node options borrow its texts. */

#include "cli/options.h"
#include "node/node.h"
#include "node/packed_folder.h"
#include "store/result_cache.h"

/* The options as the command line has them. */
struct engine_choice {
    struct option_list models;    /* [ALIAS=]M */
    bool may_have_none;           /* neither a model nor an upstream need be named */
    bool pull;                    /* fetch models that are not here */
    struct option_list upstreams; /* NAME=URL[,KEY=VALUE]... */
    const char *config;           /* read by settings.h */
    struct option_list served_names;
    struct option_list aliases; /* NAME=MODEL */
    int64_t loaded_models_max, model_stay_s;
    int64_t threads, max_num_seqs, max_num_batched_tokens, max_model_len, kv_bytes, state_bytes,
        weight_bytes;
    int64_t num_speculative_tokens;
    const char *speculative_model;
    struct model_choice draft; /* the model of that name, once it is found */
    int64_t result_cache_bytes;
    bool prefix_caching;
    bool reference;
    const char *kernels, *pooling;
    const char *device, *device_plugin, *dtype, *kv_cache_dtype, *state_dtype, *quantization;
    double gpu_memory_share;
    int64_t gpu_memory_limit_mib, data_parallel_size, tensor_parallel_size, block_size;
    bool trust_request_chat_template;
    const char *chat_template; /* a file, or the text itself */
    char *chat_template_text;  /* owned */
    const char *tool_call_parser;
    const char *log_level, *log_format;
    const char *load_format;
    bool packed_cache;
    const char *packed_dir;
    int64_t packed_bytes_max;
    char packed_dir_usual[PATH_MAX];
    char alias_names[OPTION_LIST_MAX][MODEL_NAME_BYTES];
};

/* The rows, and the defaults of their struct. */
extern const struct option engine_option_rows[];
void engine_options_set_defaults(struct engine_choice *choice);

/* Whether --load-format (NULL: not given) asks for made-up weights. ERR_INVALID for an unknown
 * format. */
enum err engine_options_is_dummy(const char *load_format, bool *ret_is_dummy,
                                 struct error *error) MUST_CHECK;
/* Checks every option and fills the node's options but for the models. ERR_INVALID or ERR_LIMIT.
 * After this, also if it failed, the caller calls engine_options_release. */
enum err engine_options_check(struct engine_choice *choice, struct node_options *node,
                              struct error *error) MUST_CHECK;
/* Finds the models, with --pull fetching those that are not here, and fills node->models. Errors of
 * catalog_choose and pull_run. */
enum err engine_options_find_models(struct engine_choice *choice, struct node_options *node,
                                    const volatile bool *stop, struct error *error) MUST_CHECK;
/* Frees node->upstreams and what the choice owns. */
void engine_options_release(struct engine_choice *choice, struct node_options *node);
