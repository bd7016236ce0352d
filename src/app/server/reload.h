/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reload: what SIGHUP changes in a running server.
 *
 *     the clients' keys of a file or of Secret Manager     from the next request on
 *     the TLS certificate and its key                      for new connections; others go on
 *     the secret that signs webhooks                       from the next attempt on
 *     the keys of upstreams, in the places they had        from the next request on
 *     the time for a drain
 *
 * All of it is read before any of it is taken over, so that a mistake changes nothing.
 *
 * Thread: main.
 * Memory: borrows the parts of the server. */

#include "http/tls.h"
#include "keys/keys.h"
#include "node/node.h"
#include "server/serve.h"

struct reload {
    struct tls *tls; /* NULL: plain HTTP */
    struct keys *keys;
    struct notify *notify; /* NULL: no webhooks */
    bool is_secret_gone;   /* the webhooks' secret, for later reads (secret.h) */
    struct node *node;
    const struct node_options *node_options; /* those that the node was opened with */
    int64_t drain_ms;
};

/* Takes over what `wanted` names. After an error nothing has changed. */
enum err reload_take(struct reload *reload, const struct serve_options *wanted,
                     struct error *error) MUST_CHECK;
