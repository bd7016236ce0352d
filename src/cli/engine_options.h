/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_options: the options that start engines and name upstreams, the same for `quern run` and
 * `quern serve`, under the names vLLM's users know.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "cli/options.h"
#include "server/house.h"
#include "store/result_cache.h"

/* What the command line says, before it is checked. */
struct engine_choice {
    struct option_list models;    /* [ALIAS=]M */
    struct option_list upstreams; /* NAME=URL[,KEY=VALUE]... */
    int64_t threads, max_num_seqs, max_num_batched_tokens, max_model_len, kv_bytes;
    int64_t result_cache_bytes;
    bool prefix_caching;
    bool reference;
    const char *kernels;
    bool trust_request_chat_template;
};

#define ENGINE_CHOICE_DEFAULT                                                                      \
    ((struct engine_choice){.prefix_caching = true,                                                \
                            .result_cache_bytes = RESULT_CACHE_BYTES_DEFAULT})

/* Rows for an option table. */
#define ENGINE_OPTION_COUNT 12
void engine_options_fill(struct option *ret_options, struct engine_choice *choice);

/* Finds the models and fills the house's options. ERR_INVALID or ERR_NOT_FOUND with a sentence.
 * `house->upstreams` is the caller's to free, also after an error. */
enum err engine_options_apply(const struct engine_choice *choice, struct house_options *house,
                              struct error *error) MUST_CHECK;
