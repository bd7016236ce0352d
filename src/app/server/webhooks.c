/* SPDX-License-Identifier: Apache-2.0 */
#include "server/webhooks.h"

static enum err read_events(const char *names, uint32_t *ret_events, struct error *error) {
    struct str rest = str_from(names);
    uint32_t events = 0;
    while (rest.bytes > 0) {
        size_t comma = str_find_byte(rest, ',', 0);
        struct str name = str_trim((struct str){rest.at, comma == SIZE_MAX ? rest.bytes : comma});
        rest = str_skip(rest, comma == SIZE_MAX ? rest.bytes : comma + 1);
        enum outbox_event event;
        if (!outbox_event_find(name, &event))
            return err_set(error, ERR_INVALID,
                           "--webhook-events: '%.*s' is none of the events, such as %s; the man "
                           "page lists them",
                           (int)(name.bytes < 60 ? name.bytes : 60), name.at,
                           outbox_event_name(OUTBOX_BATCH_COMPLETED));
        events |= 1u << event;
    }
    *ret_events = events;
    return OK;
}

enum err webhooks_read(struct webhook_secret *ret_secret, const char *file,
                       const struct secret_variables *variables, struct error *error) {
    struct secret secret;
    const struct secret_place place = {file, "QUERN_WEBHOOK_SECRET", "webhook-secret"};
    *ret_secret = (struct webhook_secret){0};
    enum err err = secret_read(&secret, &place, variables, error);
    if (err != OK || !secret.text) return err;
    err = webhook_keys_read(&ret_secret->keys, (struct str){secret.text, secret.bytes}, error);
    if (err != OK) err = err_prefix(error, "the webhook secret in %s", secret.where);
    ret_secret->is_gone = secret.is_gone;
    secret_release(&secret);
    return err;
}

enum err webhooks_open(struct notify **ret_notify, bool *ret_is_gone,
                       const struct webhook_settings *settings, struct store *store,
                       const struct secret_variables *variables, struct error *error) {
    struct webhook_secret secret;
    struct notify_options options = {.store = store,
                                     .url = settings->url,
                                     .keys = &secret.keys,
                                     .allow_private = settings->allow_private,
                                     .retry_s = settings->retry_s};
    *ret_notify = NULL;
    enum err err = settings->events ? read_events(settings->events, &options.events, error) : OK;
    if (err == OK) err = webhooks_read(&secret, settings->secret_file, variables, error);
    if (err != OK) return err;
    *ret_is_gone = secret.is_gone;
    if (secret.keys.count == 0) {
        if (!settings->url && !settings->events) return OK;
        return err_set(error, ERR_INVALID,
                       "webhooks need a secret to sign with: give --webhook-secret-file");
    }
    err = notify_open(ret_notify, &options, error);
    webhook_keys_wipe(&secret.keys);
    return err;
}
