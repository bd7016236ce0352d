/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* serve: the node with its network side: what `quern serve` does from start to end.
 *
 * Thread: main.  Memory: none kept. */

#include "node/node.h"
#include "server/webhooks.h"

struct serve_options {
    struct node_options node;
    const char *host;
    uint16_t port;            /* 0: any free one */
    const char *api_key_file; /* one key a line; NULL: see keys.h */
    const char *env_file;     /* variables for secrets (secret.h); NULL: none */
    struct webhook_settings webhooks;
    uint64_t file_bytes_max;       /* 0: the API's default */
    uint64_t batch_file_bytes_max; /* 0: as other files */
    int64_t preflight_ms;          /* for one that a client asks for; 0: the API's default */
    int64_t drain_ms;              /* for what is in flight, after SIGTERM */
    const volatile bool *stop;
    void *context;
    void (*listening)(void *context, const char *host, uint16_t port); /* once, when ready */
};

/* Sets the limits and the strictness a profile's name stands for: "quern" or "openai". ERR_INVALID
 * for another name. */
enum err serve_set_profile(struct serve_options *options, const char *profile,
                           struct error *error) MUST_CHECK;
/* Serves until *stop. OK: an orderly end. */
enum err serve_run(const struct serve_options *options, struct error *error) MUST_CHECK;
