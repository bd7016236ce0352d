/* SPDX-License-Identifier: Apache-2.0 */

/* The audit trail (store/audit.h): entries of handlers that change something, and GET /v1/audit. */

#include "store/audit.h"

#include "api/api_internal.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "json/span.h"

#include <inttypes.h>

#define LIST_DEFAULT 100
#define LIST_MAX 1000

static enum err add(struct api *api, const struct http_request *request,
                    const struct audit_entry *what, struct error *error) {
    const struct key_caller *caller = http_request_caller(request);
    char peer[ADDRESS_TEXT_BYTES];
    struct audit_entry entry = *what;
    entry.unix_s = clock_unix_s();
    entry.actor = *caller->id ? caller->id : caller->is_fixed ? "fixed key" : "no key";
    entry.owner = caller->owner;
    entry.peer = address_write(http_request_peer(request), peer);
    entry.request_id = http_request_id(request);
    enum err err = audit_add(store_dir(api->options.store), &entry, error);
    if (err != ERR_UNAVAILABLE) return err;
    store_disk_filled(api->options.store); /* the ballast makes room for it */
    return audit_add(store_dir(api->options.store), &entry, error);
}

bool api_audit(struct api *api, struct http_request *request, const char *action,
               const char *subject) {
    struct error error;
    enum err err =
        add(api, request, &(struct audit_entry){.action = action, .subject = subject}, &error);
    if (err != OK) api_fail_err(request, err, &error, NULL);
    return err == OK;
}

void api_audit_failed(struct api *api, const struct http_request *request, const char *action,
                      const char *subject, const struct error *reason) {
    struct error error;
    const struct audit_entry entry = {.action = action,
                                      .subject = subject,
                                      .outcome = "failed",
                                      .detail = reason->is_system ? NULL : reason->text};
    if (add(api, request, &entry, &error) != OK)
        log_warn("event=audit_failed action=%s subject=%s error=\"%s\"", action, subject,
                 error.text);
}

/* --- reading --- */

struct listing {
    struct str action, actor, subject; /* at NULL: any */
    int64_t since, until;
    uint64_t before; /* seq */
    size_t limit, count;
    bool has_more;
    struct buf *body;
};

/* True if the member is this text, which needs no escape. */
static bool is_member(struct str line, const char *name, struct str wanted) {
    struct str value = json_span_get(line, name);
    if (!wanted.at) return true;
    return value.bytes == wanted.bytes + 2 &&
           str_equals((struct str){value.at + 1, wanted.bytes}, wanted);
}

static bool take(void *context, struct str line) {
    struct listing *listing = context;
    int64_t created;
    uint64_t seq;
    if (!str_to_u64(json_span_get(line, "seq"), &seq) || seq >= listing->before) return true;
    if (!str_to_i64(json_span_get(line, "created_at"), &created)) return true;
    if (created < listing->since || created > listing->until) return true;
    if (!is_member(line, "action", listing->action) || !is_member(line, "actor", listing->actor) ||
        !is_member(line, "subject", listing->subject))
        return true;
    listing->has_more = listing->count == listing->limit;
    if (listing->has_more) return false;
    if (listing->count++ > 0) buf_add_byte(listing->body, ',');
    buf_add_str(listing->body, line);
    return true;
}

static bool read_number(struct http_request *request, const char *name, int64_t otherwise,
                        int64_t *ret_value) {
    struct str text = http_request_query(request, name);
    *ret_value = otherwise;
    if (!text.at || (str_to_i64(text, ret_value) && *ret_value >= 0)) return true;
    api_fail_param(request, "invalid_type", name,
                   "Invalid type for '%s': expected an integer from 0 on, got '%.40s'.", name,
                   api_text(request, text));
    return false;
}

void audit_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct buf body;
    struct error error;
    int64_t before;
    struct listing listing = {.action = http_request_query(request, "action"),
                              .actor = http_request_query(request, "actor"),
                              .subject = http_request_query(request, "subject"),
                              .body = &body};
    if (!api_read_limit(request, LIST_DEFAULT, LIST_MAX, &listing.limit) ||
        !read_number(request, "since", 0, &listing.since) ||
        !read_number(request, "until", INT64_MAX, &listing.until) ||
        !read_number(request, "before", INT64_MAX, &before))
        return;
    listing.before = (uint64_t)before;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    enum err err = audit_each(store_dir(api->options.store), take, &listing, &error);
    if (err != OK) {
        buf_release(&body);
        api_fail_err(request, err, &error, NULL);
        return;
    }
    buf_printf(&body, "],\"has_more\":%s}", listing.has_more ? "true" : "false");
    api_answer_json(request, &body);
}
