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

static enum err read_keys(struct webhook_keys *ret_keys, const struct secret *secret,
                          struct error *error) {
    enum err err = webhook_keys_read(ret_keys, (struct str){secret->text, secret->bytes}, error);
    return err == OK ? OK : err_prefix(error, "the webhook secret in %s", secret->where);
}

enum err webhooks_open(struct notify **ret_notify, const struct webhook_settings *settings,
                       struct store *store, const struct secret_variables *variables,
                       struct error *error) {
    struct secret secret;
    struct webhook_keys keys;
    struct notify_options options = {.store = store,
                                     .url = settings->url,
                                     .keys = &keys,
                                     .allow_private = settings->allow_private,
                                     .retry_s = settings->retry_s};
    const struct secret_place place = {settings->secret_file, "QUERN_WEBHOOK_SECRET",
                                       "webhook-secret"};
    *ret_notify = NULL;
    enum err err = settings->events ? read_events(settings->events, &options.events, error) : OK;
    if (err == OK) err = secret_read(&secret, &place, variables, error);
    if (err != OK) return err;
    if (!secret.text) {
        if (!settings->url && !settings->events) return OK;
        return err_set(error, ERR_INVALID,
                       "webhooks need a secret to sign with: give --webhook-secret-file");
    }
    err = read_keys(&keys, &secret, error);
    secret_release(&secret);
    if (err == OK) err = notify_open(ret_notify, &options, error);
    webhook_keys_wipe(&keys);
    return err;
}
