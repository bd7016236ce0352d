/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* node: the server without its network side.
 *
 * It is the store, the runner, and one worker per model and per upstream, opened in this order and
 * closed in reverse. `quern serve` puts the API in front of it; `quern run` and the sample run of a
 * preflight drive it directly. It knows no HTTP route and no key of a client.
 *
 * Thread: main.
 * Memory: owns the store, the runner and the device; the runner owns the workers. */

#include "agent/agent.h"
#include "copy/copy.h"
#include "dialects/ollama_preset.h"
#include "node/queue.h"
#include "node/shelf.h"
#include "protocol/card.h"
#include "protocol/wire_messages.h"
#include "runner/runner.h"
#include "store/store.h"
#include "workers/upstream/spec.h"

#define NODE_MODELS_MAX 16
#define NODE_ENGINES_MAX RUNNER_WORKERS_MAX /* those of a shelf, too */
#define NODE_UPSTREAMS_MAX 32
#define NODE_ALIASES_MAX 64

struct node;

/* The options of an engine; zero leaves the choice to the engine. */
struct engine_settings {
    uint32_t threads;
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens;
    uint32_t num_speculative_tokens; /* 0: none */
    const char *speculative_model;   /* path of a model that guesses them; NULL: the text alone */
    uint32_t max_model_len;
    uint64_t kv_bytes;
    uint64_t state_bytes;  /* memory for the states of recurrent layers */
    uint64_t weight_bytes; /* memory for weights; experts beyond it stay in the file */
    bool no_prefix_caching;
    bool reference;
    const char *kernels; /* NULL: the best of this CPU */
    const char *pooling; /* NULL: the model's own */
    int64_t hang_ms;     /* time without a step until a kill; 0: by the longest step seen */
    bool trust_request_chat_template;
    const char *chat_template;    /* text of a template for chats; NULL: the model's */
    const char *tool_call_parser; /* as vLLM names it; NULL: the template tells */
    bool dummy_weights;           /* make weights up, for folders with only a config.json */
    const char *packed_dir;       /* folder of packed weights (node/packed_folder.h); NULL: none */
    uint64_t packed_bytes_max;    /* size of that folder */
    struct wire_device device;    /* the texts are borrowed */
};

struct node_options {
    struct store_options store;
    struct runner_options runner;
    struct model_choice models[NODE_MODELS_MAX];
    size_t model_count;
    /* Further models, loaded on demand; NULL: none. With it, the options outlive the node. */
    const struct shelf *shelf;
    struct engine_settings engine;
    struct upstream_spec *upstreams; /* (upstream_count), borrowed for node_open */
    size_t upstream_count;
    struct copy *copy;                           /* takes all that is committed; NULL: none */
    struct queue_options *queue;                 /* NULL: no nodes; outlives the node */
    struct name_alias aliases[NODE_ALIASES_MAX]; /* --alias; the texts are borrowed */
    size_t alias_count;
    int64_t model_stay_s; /* least time of a loaded model before another one takes its place */
    int64_t keep_ms;      /* a model leaves after this time without a job; 0 or less: it stays */
    uint32_t data_parallel_size; /* engines per model; 0: ranks.h chooses */
    uint32_t loaded_models_max;  /* models in memory at a time; 0: as many as fit */
    bool watches_cards;          /* node_cards tells about the GPUs that engines run on */
};

/* The HELLO for an engine of the model; its texts are borrowed. */
struct wire_hello node_hello(const struct model_choice *choice,
                             const struct engine_settings *settings);
/* Opens the store and starts one engine per model, or those that fit; no batch runs yet. */
enum err node_open(struct node **ret_node, const struct node_options *options,
                   struct error *error) MUST_CHECK;
/* Opens the engines and upstreams as workers of an agent instead of a runner: no store, no batches.
 * Of the functions below only node_wait_ready, node_agent and node_close may follow. */
enum err node_open_remote(struct node **ret_node, const struct node_options *options,
                          const struct agent_options *agent, struct error *error) MUST_CHECK;
struct agent *node_agent(struct node *node);
/* The nodes on other machines; NULL: no queue. */
struct fleet *node_fleet(struct node *node);
/* Waits until every engine has its model (of engines that take turns, the first ones), and a moment
 * until upstreams have told theirs; an upstream that is down is waited for while the server runs.
 * ERR_INVALID with the engine's own sentence if an engine cannot load its model; ERR_CANCELLED if
 * *stop has become true. */
enum err node_wait_ready(struct node *node, const volatile bool *stop,
                         struct error *error) MUST_CHECK;
/* Starts the runner, which resumes every batch that is not terminal. */
enum err node_start(struct node *node, struct error *error) MUST_CHECK;
/* Begins no more lines, waits at most `drain_ms` for those that have begun, and stops the workers:
 * then the counters of batches are final. Only node_close and reading batches may follow. */
void node_halt(struct node *node, int64_t drain_ms);
/* Waits at most `drain_ms` for the lines in flight, then closes everything. NULL is allowed. */
void node_close(struct node *node, int64_t drain_ms);

/* The keys of a node's upstreams, read once more from the places that its options name. */
struct node_keys;
enum err node_keys_read(struct node_keys **ret_keys, const struct node_options *options,
                        struct error *error) MUST_CHECK;
void node_keys_free(struct node_keys *keys); /* NULL is allowed; wipes them */
/* Requests to upstreams that are sent later have these keys. `keys` is of the options that the node
 * was opened with. */
void node_keys_take(struct node *node, const struct node_keys *keys);

/* Serves a model that has come to this machine since the node was opened with a shelf; a model that
 * is served already stays as it is. Any thread, until node_close. ERR_LIMIT: no seat is left. */
enum err node_adopt(struct node *node, const char *name, struct error *error) MUST_CHECK;

/* Gives the model of the name `source` the further name `destination`, durably. The sentences are
 * for a client. ERR_NOT_FOUND; ERR_INVALID: the destination is a model's own name, or an alias of
 * the operator. Any thread, as node_remove. */
enum err node_copy(struct node *node, struct str source, struct str destination,
                   struct error *error) MUST_CHECK;
/* Takes a further name away; or deletes a model's files in quern's own folder, once its engine is
 * retired. ERR_NOT_FOUND; ERR_INVALID: the model is not this server's to delete. */
enum err node_remove(struct node *node, struct str name, struct error *error) MUST_CHECK;
/* What a Modelfile of Ollama's store says for that name of a model (hub/modelfile.h); false if none
 * does. Any thread. */
bool node_preset(struct node *node, struct str name, struct ollama_preset *ret_preset);

struct store *node_store(struct node *node);
struct runner *node_runner(struct node *node);
/* The GPUs that engines have run on, at most CARDS_MAX; returns their number. Any thread. */
size_t node_cards(struct node *node, struct card_status ret_cards[CARDS_MAX]);
