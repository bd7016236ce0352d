/* SPDX-License-Identifier: Apache-2.0 */
#include "server/reload.h"

#include "base/log.h"
#include "server/certificate.h"

/* All that was read; what is NULL or empty changes nothing. */
struct fresh {
    struct tls *tls;
    struct keys_fixed keys;
    struct webhook_secret webhooks;
    struct node_keys *upstreams;
};

/* The port speaks TLS or plain HTTP from its start to its end. */
static enum err read_certificate(const struct reload *reload, const struct serve_options *wanted,
                                 struct fresh *fresh, struct error *error) {
    if (!reload->tls != !wanted->ssl_certfile) {
        log_warn("event=needs_restart option=ssl-certfile; SIGHUP turns HTTPS neither on nor off");
        return OK;
    }
    if (!reload->tls) return OK;
    return certificate_open(&fresh->tls, wanted->ssl_certfile, wanted->ssl_keyfile, error);
}

static enum err read_webhooks(const struct reload *reload, const struct serve_options *wanted,
                              const struct secret_variables *variables, struct fresh *fresh,
                              struct error *error) {
    enum err err = webhooks_read(&fresh->webhooks, wanted->webhooks.secret_file, variables, error);
    bool has_secret = fresh->webhooks.keys.count > 0 || reload->is_secret_gone;
    if (err == OK && !reload->notify != !has_secret)
        log_warn("event=needs_restart option=webhook-secret-file; SIGHUP turns webhooks neither on "
                 "nor off");
    return err;
}

static enum err read_all(const struct reload *reload, const struct serve_options *wanted,
                         struct fresh *fresh, struct error *error) {
    struct secret_variables variables = {0};
    enum err err =
        wanted->env_file ? secret_variables_read(&variables, wanted->env_file, error) : OK;
    if (err == OK) err = read_certificate(reload, wanted, fresh, error);
    if (err == OK) err = keys_read(&fresh->keys, wanted->keys.file, &variables, error);
    if (err == OK) err = read_webhooks(reload, wanted, &variables, fresh, error);
    if (err == OK) err = node_keys_read(&fresh->upstreams, reload->node_options, error);
    secret_variables_release(&variables);
    return err;
}

enum err reload_take(struct reload *reload, const struct serve_options *wanted,
                     struct error *error) {
    struct fresh fresh = {0};
    enum err err = read_all(reload, wanted, &fresh, error);
    if (err == OK) {
        if (fresh.tls) tls_take(reload->tls, fresh.tls);
        fresh.tls = NULL;
        keys_take(reload->keys, &fresh.keys);
        if (reload->notify && fresh.webhooks.keys.count > 0) {
            notify_set_keys(reload->notify, &fresh.webhooks.keys);
            reload->is_secret_gone = fresh.webhooks.is_gone;
        }
        node_keys_take(reload->node, fresh.upstreams);
        reload->drain_ms = wanted->drain_ms;
    }
    tls_close(fresh.tls);
    keys_fixed_release(&fresh.keys);
    webhook_keys_wipe(&fresh.webhooks.keys);
    node_keys_free(fresh.upstreams);
    return err;
}
