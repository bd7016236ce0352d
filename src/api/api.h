/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* api: the OpenAI routes over store and runner: files, batches, chat completions, completions,
 * models, health and metrics. Shapes, limits and wording follow the wire contract.
 *
 * What needs the model to be checked (ranges of sampling fields, templates, schemas) is checked by
 * the engine, whose status and body are passed on as they are.
 *
 * Thread: open, drain and close belong to one thread; handlers run on http's worker threads,
 * answers of the runner on its own.  Memory: borrows store, runner and all texts of the options. */

#include "batch/batch.h"
#include "http/http.h"
#include "notify/notify.h"
#include "runner/runner.h"

struct api;

#define API_PREFLIGHT_LINES_MAX 1000 /* of a pilot */

/* What running a file would take: the question of a client. */
struct api_preflight {
    int fd;            /* the file, open for reading; borrowed */
    const char *model; /* as a worker serves it; empty: the only one */
    uint32_t pilot_lines;
    double watts, price_per_kwh, input_price, output_price, batch_discount; /* 0: not known */
    void *context;
    bool (*stopped)(void *context); /* to be asked often: nobody waits for the answer any more */
};

/* Appends the answer, one JSON object. ERR_INVALID: a sentence for the client; ERR_CANCELLED when
 * stopped. Called by one thread at a time, always the same one. */
typedef enum err (*api_preflight_fn)(void *context, const struct api_preflight *preflight,
                                     struct buf *ret_json, struct error *error);

/* Zero means the default behind it, except where a comment says otherwise. */
struct api_options {
    const char *host;              /* "127.0.0.1" */
    uint16_t port;                 /* 0: any free one */
    struct store *store;           /* must be given */
    struct runner *runner;         /* must be given */
    struct notify *notify;         /* NULL: there are no webhooks */
    struct batch_rules rules;      /* lines_max 0: batch_rules_default */
    struct key_set *keys;          /* NULL: no key is asked for */
    uint64_t file_bytes_max;       /* 2 GiB */
    uint64_t batch_file_bytes_max; /* of files with the purpose batch; 0: as others */
    int64_t ping_ms;               /* before a silent stream gets a comment line; 15 s */
    uint32_t connections_max;
    uint32_t worker_threads;
    api_preflight_fn preflight; /* NULL: there are no preflights */
    void *preflight_context;
    int64_t preflight_ms; /* for one of them; 10 minutes */
};

enum err api_open(struct api **ret_api, const struct api_options *options, uint16_t *ret_port,
                  struct error *error) MUST_CHECK;
/* Refuses new work with 503 from now on; reading and health go on, and so does what runs. */
void api_drain(struct api *api);
/* Stops listening, waits up to `deadline_ms` for requests that run, cancels the rest, closes. The
 * runner must still be open. NULL is allowed. */
void api_close(struct api *api, int64_t deadline_ms);
