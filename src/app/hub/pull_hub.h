/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_hub: which hub this is, who asks, and where its cache lies.
 *
 * It reads HF_ENDPOINT, HF_TOKEN (or the token file), HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE,
 * HF_HUB_DOWNLOAD_TIMEOUT and SSL_CERT_FILE, as Hugging Face's own tools do.
 *
 * The token is for the hub alone: pull_hub_is_home says whether a URL has the hub's scheme, host
 * and port, and no other server may see the token. URLs are https; http only if the hub's is.
 *
 * Thread: main.
 * Memory: the caller's struct, which pull_hub_release wipes. */

#include "base/err.h"
#include "base/str.h"

#include <limits.h>

#define PULL_TOKEN_BYTES 1024
#define PULL_ENDPOINT_BYTES 512

struct pull_hub {
    char endpoint[PULL_ENDPOINT_BYTES]; /* without a '/' at the end */
    char cache[PATH_MAX];
    char token[PULL_TOKEN_BYTES]; /* empty: none */
    char token_place[PATH_MAX];   /* the token file, whether it exists or not */
    const char *certificates;     /* a file of trusted certificates; NULL: the system's */
    bool is_plain;                /* the endpoint is http */
    bool is_offline;
    uint32_t stall_s; /* longest silence of a server */
};

/* ERR_INVALID with a sentence that names the bad variable. */
enum err pull_hub_read(struct pull_hub *ret_hub, struct error *error) MUST_CHECK;
void pull_hub_release(struct pull_hub *hub);
/* Whether a URL is on the hub itself. */
bool pull_hub_is_home(const struct pull_hub *hub, const char *url);
/* Whether a URL may be asked: https, or also http if the hub's endpoint is. */
bool pull_hub_may_ask(const struct pull_hub *hub, const char *url);
