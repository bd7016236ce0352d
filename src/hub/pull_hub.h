/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_hub: which hub this is, who asks, and where its cache lies: HF_ENDPOINT, HF_TOKEN (or the
 * token file), HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT and SSL_CERT_FILE, as
 * Hugging Face's own tools read them.
 *
 * The token is for the hub alone: pull_hub_is_home says whether a URL has the hub's scheme, host
 * and port, and nothing else may see it. URLs are https, and http only when the hub itself is.
 *
 * Thread: main.  Memory: a struct of the caller's, wiped by pull_hub_release. */

#include "base/err.h"
#include "base/str.h"

#include <limits.h>

#define PULL_TOKEN_BYTES 1024
#define PULL_ENDPOINT_BYTES 512

struct pull_hub {
    char endpoint[PULL_ENDPOINT_BYTES]; /* without a '/' at the end */
    char cache[PATH_MAX];
    char token[PULL_TOKEN_BYTES]; /* empty: none */
    char token_place[PATH_MAX];   /* where it is, or would be, besides HF_TOKEN */
    const char *certificates;     /* a file; NULL: the system's */
    bool is_plain;                /* http */
    bool is_offline;
    uint32_t stall_s;
};

/* ERR_INVALID names the variable that makes no sense. */
enum err pull_hub_read(struct pull_hub *ret_hub, struct error *error) MUST_CHECK;
void pull_hub_release(struct pull_hub *hub);
/* Whether a URL is the hub's own. */
bool pull_hub_is_home(const struct pull_hub *hub, const char *url);
/* Whether a URL may be asked at all. */
bool pull_hub_may_ask(const struct pull_hub *hub, const char *url);
