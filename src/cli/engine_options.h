/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_options: the options that start engines and name upstreams, the same for `quern run` and
 * `quern serve`, under the names vLLM's users know.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "cli/options.h"
#include "node/node.h"
#include "node/packed_folder.h"
#include "store/result_cache.h"

/* What the command line says, before it is checked. */
struct engine_choice {
    struct option_list models;    /* [ALIAS=]M */
    bool pull;                    /* what is not here is fetched */
    struct option_list upstreams; /* NAME=URL[,KEY=VALUE]... */
    const char *config;           /* settings.h has read it */
    struct option_list served_names;
    struct option_list aliases; /* NAME=MODEL */
    int64_t loaded_models_max, model_stay_s;
    int64_t threads, max_num_seqs, max_num_batched_tokens, max_model_len, kv_bytes;
    int64_t result_cache_bytes;
    bool prefix_caching;
    bool reference;
    const char *kernels, *pooling;
    bool trust_request_chat_template;
    const char *load_format;
    bool packed_cache;
    const char *packed_dir;
    int64_t packed_bytes_max;
    char packed_dir_usual[PATH_MAX];
    char alias_names[OPTION_LIST_MAX][MODEL_NAME_BYTES]; /* what the node borrows */
};

#define ENGINE_CHOICE_DEFAULT                                                                      \
    ((struct engine_choice){.prefix_caching = true,                                                \
                            .result_cache_bytes = RESULT_CACHE_BYTES_DEFAULT,                      \
                            .packed_cache = true,                                                  \
                            .packed_bytes_max = PACKED_FOLDER_BYTES_DEFAULT,                       \
                            .model_stay_s = 10})

/* Rows for an option table. */
#define ENGINE_OPTION_COUNT 23
void engine_options_fill(struct option *ret_options, struct engine_choice *choice);

/* Whether --load-format (NULL: it was not given) asks for made-up weights. ERR_INVALID for a format
 * that is not read. */
enum err engine_options_is_dummy(const char *load_format, bool *ret_is_dummy,
                                 struct error *error) MUST_CHECK;
/* Finds the models, fetching what is not here when that was asked for, and fills the node's
 * options. ERR_INVALID or ERR_NOT_FOUND with a sentence. `node->upstreams` is the caller's to
 * free, also after an error. */
enum err engine_options_apply(struct engine_choice *choice, struct node_options *node,
                              struct error *error) MUST_CHECK;
/* The exit status for what that returns. */
int engine_options_exit(enum err err);
