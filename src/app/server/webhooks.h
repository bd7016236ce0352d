/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* webhooks: the sender of events (notify/notify.h), from the operator's options and secrets.
 *
 * Thread: main.
 * Memory: secrets are wiped before the return. */

#include "notify/notify.h"
#include "secrets/secret.h"

/* The options of `quern serve`. Zero: no webhooks, unless a secret exists (secret.h). */
struct webhook_settings {
    const char *url;         /* receiver for all batches; NULL: only the URLs of batches */
    const char *secret_file; /* NULL: the places of QUERN_WEBHOOK_SECRET and webhook-secret */
    const char *events;      /* names separated by commas; NULL: the ends of batches */
    bool allow_private;      /* allow plain http and private addresses */
    int64_t retry_s;         /* wait before the second attempt; 0: notify's default */
};

/* The keys that sign, as their place has them. Zero: no place has a secret. The caller wipes
 * them. */
struct webhook_secret {
    struct webhook_keys keys;
    bool is_gone; /* a later read cannot find it (secret.h) */
};
enum err webhooks_read(struct webhook_secret *ret_secret, const char *file,
                       const struct secret_variables *variables, struct error *error) MUST_CHECK;
/* Opens the sender; *ret_notify is NULL without a secret. *ret_is_gone: that of its secret.
 * ERR_INVALID with a sentence that names the option. */
enum err webhooks_open(struct notify **ret_notify, bool *ret_is_gone,
                       const struct webhook_settings *settings, struct store *store,
                       const struct secret_variables *variables, struct error *error) MUST_CHECK;
