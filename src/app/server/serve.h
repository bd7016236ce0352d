/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* serve: the node with its network side, from start to drain: the work of `quern serve`.
 *
 * Thread: main.
 * Memory: borrows the options. */

#include "costs/prices.h"
#include "http/origin.h"
#include "keys/keys.h"
#include "label_studio/studio_child.h"
#include "node/node.h"
#include "server/webhooks.h"

#include <jansson.h>
#include <signal.h>

struct reload; /* server/reload.h */

/* No shorter than a server that writes nothing may lead a queue (copy_is_fresh). */
#define SERVE_STANDBY_S_MIN 10

struct serve_options {
    struct node_options node;
    const char *host;
    uint16_t port;               /* 0: any free one */
    const char *ssl_certfile;    /* certificate and chain as PEM; NULL: plain HTTP */
    const char *ssl_keyfile;     /* its private key; NULL: in ssl_certfile */
    struct keys_places keys;     /* keys for clients */
    struct origin_rules origins; /* web pages and names that may use the API; `host` is not read */
    uint32_t connections_per_peer_max; /* connections from one address; 0: http's default */
    uint64_t body_memory_bytes_max;    /* memory for all request bodies; 0: http's default */
    uint64_t answer_memory_bytes_max;  /* memory for all waiting answers; 0: http's default */
    bool access_log;                   /* one line per request, not only per refused one */
    bool no_uvicorn_access_log;        /* overrides access_log */
    const char *metrics_compat;        /* "vllm": its names for metrics as well; NULL: none */
    const char *access_log_leaves_out; /* paths without a line, separated by commas; NULL: none */
    bool insecure_no_keys;             /* serve an address of other machines without any key */
    const char *env_file;              /* variables for secrets (secret.h); NULL: none */
    struct webhook_settings webhooks;
    const char *signing_key; /* file of the key that signs manifests; NULL: the state directory's */
    const json_t *settings;  /* as run_record_make takes them */
    struct studio_settings studio;
    uint64_t file_bytes_max;       /* 0: the API's default */
    uint64_t batch_file_bytes_max; /* 0: the limit of other files */
    struct prices prices;          /* for the costs of batches and preflights */
    int64_t preflight_ms;          /* limit of a client's preflight; 0: the API's default */
    const char *copy_to;           /* place for a copy of all that is committed; NULL: none */
    bool is_standby;               /* waits for the end of the server whose copy it is */
    int64_t standby_ms;            /* silence after which it takes over */
    int64_t drain_ms;              /* time for running requests after *stop */
    const volatile bool *stop;     /* becomes true on a signal */
    const volatile sig_atomic_t *reloads; /* grows with each SIGHUP; NULL: none comes */
    void *context;
    /* SIGHUP has come: settings that reload_take knows may change now. */
    void (*reload)(void *context, struct reload *reload);
    void (*listening)(void *context, const char *host, uint16_t port); /* once, when ready */
};

/* Sets the limits and the strictness of a profile, "quern" or "openai". ERR_INVALID for another
 * name. */
enum err serve_set_profile(struct serve_options *options, const char *profile,
                           struct error *error) MUST_CHECK;
/* Serves until *stop, then drains. OK after an orderly end, also if *stop came while loading.
 * ERR_INVALID for a host that other machines reach without a key, unless insecure_no_keys. */
enum err serve_run(const struct serve_options *options, struct error *error) MUST_CHECK;
