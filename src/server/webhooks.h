/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* webhooks: from the operator's options to a running notify (notify/notify.h).
 *
 * Thread: main.  Memory: none kept. */

#include "node/secret.h"
#include "notify/notify.h"

/* Zero: no webhooks, unless the environment has a secret. */
struct webhook_settings {
    const char *url;         /* NULL: batches' own URLs only */
    const char *secret_file; /* NULL: see secret.h; QUERN_WEBHOOK_SECRET, webhook-secret */
    const char *events;      /* names separated by commas; NULL: the ends of batches */
    bool allow_private;
    int64_t retry_s;
};

/* *ret_notify is NULL when there is no secret. ERR_INVALID with a sentence that names the option.
 */
enum err webhooks_open(struct notify **ret_notify, const struct webhook_settings *settings,
                       struct store *store, const struct secret_variables *variables,
                       struct error *error) MUST_CHECK;
