/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* node: the server without its network side: the store, the runner, and a worker for each model and each
 * upstream, opened in this order and closed in reverse. `quern serve` puts the API in front of it,
 * `quern run` drives it itself.
 *
 * Thread: main.  Memory: owns all of it. */

#include "hub/catalog.h"
#include "protocol/wire_messages.h"
#include "runner/runner.h"
#include "store/store.h"
#include "workers/upstream/spec.h"

#define NODE_MODELS_MAX 16
#define NODE_UPSTREAMS_MAX 32
#define NODE_ALIASES_MAX 64

struct node;

/* What an engine is started with; zero means: the engine chooses. */
struct engine_settings {
    uint32_t threads;
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens;
    uint32_t max_model_len;
    uint64_t kv_bytes;
    bool no_prefix_caching;
    bool reference;
    const char *kernels; /* NULL: the best of this CPU */
    const char *pooling; /* NULL: as the model says */
    int64_t hang_ms;     /* without a step until it is killed; 0: by the longest step seen */
    bool trust_request_chat_template;
    bool dummy_weights;        /* made up, for folders with a config.json alone */
    const char *packed_dir;    /* the folder of packed weights (node/packed_folder.h); NULL: none */
    uint64_t packed_bytes_max; /* of all in it */
};

struct node_options {
    struct store_options store;
    struct runner_options runner;
    struct model_choice models[NODE_MODELS_MAX];
    size_t model_count;
    struct engine_settings engine;
    struct upstream_spec *upstreams; /* (upstream_count), borrowed for node_open */
    size_t upstream_count;
    struct name_alias aliases[NODE_ALIASES_MAX]; /* the operator's; texts are borrowed */
    size_t alias_count;
    int64_t model_stay_s; /* at least, once loaded, before another's request takes its place */
    uint32_t loaded_models_max; /* in memory at a time; 0: as many as fit */
};

/* How many models can be loaded at a time, when the largest come together: their files, and
 * `extra_bytes` for each, within three quarters of the memory. At least one. */
uint32_t node_models_that_fit(const uint64_t *model_bytes, size_t count, uint64_t extra_bytes,
                              uint64_t memory_bytes);

/* What an engine for the model is told; texts are borrowed. */
struct wire_hello node_hello(const struct model_choice *choice,
                             const struct engine_settings *settings);
/* Opens the store and starts an engine for each model; batches are not taken up yet. */
enum err node_open(struct node **ret_node, const struct node_options *options,
                   struct error *error) MUST_CHECK;
/* Waits until every engine has its model (of engines that take turns, the first ones), and a moment
 * until upstreams have told theirs; an upstream that is down is waited for while the server runs.
 * ERR_INVALID with the engine's own sentence if an engine cannot load its model; ERR_CANCELLED if
 * *stop has become true. */
enum err node_wait_ready(struct node *node, const volatile bool *stop,
                         struct error *error) MUST_CHECK;
/* Starts the runner: every batch that is not terminal goes on. */
enum err node_start(struct node *node, struct error *error) MUST_CHECK;
/* Finishes what is in flight within `drain_ms`, then closes all. NULL is allowed. */
void node_close(struct node *node, int64_t drain_ms);

struct store *node_store(struct node *node);
struct runner *node_runner(struct node *node);
