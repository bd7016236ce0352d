/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* api: the OpenAI routes over store and runner: files, batches, chat completions, completions,
 * models, health and metrics. Shapes, limits and wording follow the wire contract.
 *
 * The engine checks the members that depend on the model (ranges of sampling fields, templates,
 * schemas); its status and body are passed on unchanged.
 *
 * Thread: open, drain and close belong to one thread; handlers run on http's worker threads,
 * answers of the runner on the runner's.
 * Memory: borrows store, runner and all texts of the options. */

#include "batch/parameters.h"
#include "copy/copy.h"
#include "costs/prices.h"
#include "dialects/ollama_preset.h"
#include "http/http.h"
#include "notify/notify.h"
#include "protocol/card.h"
#include "protocol/nodes.h"
#include "runner/runner.h"

struct api;

#define API_PREFLIGHT_LINES_MAX 1000 /* requests of a sample run */

/* A client's question: what running a file would take. */
struct api_preflight {
    int fd;                 /* the file, open for reading; borrowed */
    const char *model;      /* the name under which a worker serves it; empty: the only model */
    enum endpoint endpoint; /* the batch's; ENDPOINT_COUNT: that of the first line */
    uint32_t pilot_lines;
    struct prices prices;
    void *context;
    bool (*stopped)(void *context); /* ask often; true: no client waits for the answer */
};

/* Appends the answer, one JSON object. ERR_INVALID: a sentence for the client; ERR_CANCELLED:
 * `stopped` said so. One thread makes all calls. */
typedef enum err (*api_preflight_fn)(void *context, const struct api_preflight *preflight,
                                     struct buf *ret_json, struct error *error);

/* A model to fetch and to serve from then on. */
struct api_pull {
    const char *name; /* as the client wrote it: letters, digits and "._-:/" */
    void *context;
    bool (*stopped)(void *context);
    void (*progress)(void *context, uint64_t completed, uint64_t total); /* bytes */
};

/* An error's sentence is for the client; ERR_CANCELLED: `stopped` said so. One thread makes all
 * calls of one pull. */
typedef enum err (*api_pull_fn)(void *context, const struct api_pull *pull, struct error *error);

/* Gives a model a further name; takes one away, or deletes a model. An error's sentence is for the
 * client: ERR_NOT_FOUND, ERR_INVALID. Several threads call them. */
typedef enum err (*api_copy_fn)(void *context, struct str source, struct str destination,
                                struct error *error);
typedef enum err (*api_delete_fn)(void *context, struct str name, struct error *error);

/* Fills what a Modelfile says for a name of a model; false if none does. Several threads call
 * it. */
typedef bool (*api_preset_fn)(void *context, struct str name, struct ollama_preset *ret_preset);

/* One job of Label Studio: a batch on its way there, back, or both. The files are borrowed. */
struct api_studio {
    const char *batch_id, *action; /* push, pull or sync */
    const char *link;              /* file of the link (label_studio/link.h) */
    int requests_fd, results_fd;   /* one JSON object per line, as in the batch's files */
    int judgements_fd;             /* the newest ones of the batch, as the API shows them */
    void *context;
    bool (*stopped)(void *context); /* ask often; true: end soon */
    /* Takes each event, a JSON object; empty: a judgement that is too long to be handed over. */
    void (*event)(void *context, struct str event);
};

/* ERR_CANCELLED: `stopped` said so; else a sentence for the client. Several threads call it. */
typedef enum err (*api_studio_fn)(void *context, const struct api_studio *studio,
                                  struct error *error);

/* Zero or NULL means the default that the comment names. */
struct api_options {
    const char *host;              /* numeric address (default "127.0.0.1") */
    uint16_t port;                 /* 0: any free port */
    struct tls *tls;               /* NULL: plain HTTP */
    struct store *store;           /* must be given */
    struct runner *runner;         /* must be given */
    struct notify *notify;         /* NULL: no webhooks */
    struct batch_rules rules;      /* lines_max 0: batch_rules_default */
    struct key_set *keys;          /* NULL: routes need no key */
    struct origin_rules origins;   /* `host` is not read */
    uint64_t file_bytes_max;       /* the largest file (default 2 GiB) */
    uint64_t batch_file_bytes_max; /* the largest of purpose batch; 0: file_bytes_max */
    int64_t ping_ms;               /* before a silent stream gets a comment line (default 15 s) */
    uint32_t connections_max;
    uint32_t connections_per_peer_max; /* 0: http's default */
    uint64_t body_memory_bytes_max;    /* what all bodies may cost together; 0: http's default */
    uint64_t answer_memory_bytes_max;  /* what all waiting answers may take; 0: http's default */
    uint32_t worker_threads;
    const struct prices *prices; /* for the costs of batches and preflights; NULL: none given */
    api_preflight_fn preflight;  /* NULL: no preflights */
    void *preflight_context;
    int64_t preflight_ms; /* for one preflight (default 10 minutes) */
    api_pull_fn pull;     /* NULL: this server fetches no models */
    api_copy_fn copy_model;
    api_delete_fn delete_model;
    api_preset_fn preset; /* NULL: there are no Modelfiles */
    void *pull_context;   /* for the four about models */
    api_studio_fn studio; /* NULL: no Label Studio */
    void *studio_context;
    const char *studio_url; /* address of the Label Studio, without '/' at its end */
    bool vllm_metrics;      /* writes vLLM's names for metrics next to quern's own */
    bool no_access_log;     /* only refused requests leave a line of level info */
    /* Paths, separated by commas, whose requests leave no line. NULL: none. */
    const char *access_log_leaves_out;
    /* The cards that engines have run on, for the metrics; any thread. NULL: nothing is told. */
    size_t (*cards)(void *context, struct card_status ret_cards[CARDS_MAX]);
    void *cards_context;
    /* The nodes on other machines and the queue between; any thread. NULL: there is no queue. */
    size_t (*nodes)(void *context, struct fleet_status *ret_queue,
                    struct fleet_node_status *ret_nodes, size_t nodes_max);
    void *nodes_context;
    /* Appends the manifest of a batch that has ended; any thread. NULL: there are none. */
    enum err (*manifest)(void *context, const struct store_batch *batch, struct buf *out,
                         struct error *error);
    /* Likewise its salts (proof/run_salts.h); ERR_NOT_FOUND: it has none. */
    enum err (*manifest_salts)(void *context, const struct store_batch *batch, struct buf *out,
                               struct error *error);
    void *manifest_context;
    /* The copy that is waited for before an answer tells of a change; NULL: there is none. */
    struct copy *copy;
};

enum err api_open(struct api **ret_api, const struct api_options *options, uint16_t *ret_port,
                  struct error *error) MUST_CHECK;
/* Refuses new work with 503 from now on; running requests, reading and health go on. */
void api_drain(struct api *api);
/* Stops listening, waits up to `deadline_ms` for running requests, cancels the rest, closes. The
 * runner must still be open. NULL is allowed. */
void api_close(struct api *api, int64_t deadline_ms);
