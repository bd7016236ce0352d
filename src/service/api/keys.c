/* SPDX-License-Identifier: Apache-2.0 */

/* The keys of the server, for admins (an extension): GET and POST /v1/keys, DELETE /v1/keys/{id}.
 * The routes and `quern key` share their functions and the file of keys.
 *
 * The first key of a server locks out every client without a key. `quern key` makes it for a person
 * who may write to the state directory. A request may make it only from this machine, and through
 * no proxy. */

#include "api/api_internal.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keys/key_new.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_BYTES_MAX ((size_t)16 << 20)
#define OWNERS_LOOKED_UP 256 /* owners whose use is read per list, with two queries each */
#define SCOPES_BYTES_MAX 256

/* The body of a create call. */
struct wish {
    struct str name, owner, expires;
    const json_t *scopes;
    int64_t requests_per_minute, queued_tokens_max, batches_max, stored_bytes_max;
};
#define AT(member) offsetof(struct wish, member)
static const struct field rows[] = {
    {"name", FIELD_TEXT, FIELD_ANY, 1, sizeof((struct key_row *)NULL)->name - 1, FIELD_REQUIRED,
     AT(name), NULL, "For people; several keys may have the same."},
    {"owner", FIELD_TEXT, FIELD_ANY, 1, OWNER_BYTES - 1, 0, AT(owner), NULL,
     "Whose files and batches the key sees (default: default)."},
    {"scopes", FIELD_TEXTS, FIELD_ANY, 1, KEY_SCOPE_NAMED_COUNT, 0, AT(scopes), NULL,
     "Rights: files, batches, infer, metrics, admin (default: the first three)."},
    {"expires", FIELD_TEXT, FIELD_ANY, 2, 8, 0, AT(expires), NULL,
     "Lifetime such as 90d, 12h or 30m (default: none)."},
    {"requests_per_minute", FIELD_INTEGER, FIELD_ANY, 0, KEY_LIMIT_MAX, 0, AT(requests_per_minute),
     NULL, "Requests per minute before 429 (default 0: no limit)."},
    {"queued_tokens_max", FIELD_INTEGER, FIELD_ANY, 0, KEY_LIMIT_MAX, 0, AT(queued_tokens_max),
     NULL, "Tokens in the inputs of the owner's open batches, estimated (default 0: no limit)."},
    {"batches_max", FIELD_INTEGER, FIELD_ANY, 0, KEY_LIMIT_MAX, 0, AT(batches_max), NULL,
     "Open batches of the owner (default: 1000; 0: no limit)."},
    {"stored_bytes_max", FIELD_INTEGER, FIELD_ANY, 0, KEY_LIMIT_MAX, 0, AT(stored_bytes_max), NULL,
     "Bytes of the owner's files, results and judgements included (default 0: no limit)."},
};
#undef AT
const struct fields keys_fields = {rows, sizeof rows / sizeof *rows, false, api_field_refuse};

/* The current use of an owner's quotas. */
struct use {
    char owner[OWNER_BYTES];
    bool is_known;
    uint64_t batches, input_bytes, stored_bytes;
};

static struct use read_use(struct api *api, const char *owner) {
    struct error error;
    struct use use = {.is_known = false};
    memcpy(use.owner, owner, strlen(owner) + 1);
    use.is_known =
        store_owner_load(api->options.store, owner, &use.batches, &use.input_bytes, &error) == OK &&
        store_owner_bytes(api->options.store, owner, clock_unix_s(), &use.stored_bytes, &error) ==
            OK;
    return use;
}

/* --- a key as JSON --- */

static void write_time(struct buf *body, const char *name, int64_t unix_s) {
    if (unix_s)
        buf_printf(body, ",\"%s\":%" PRId64, name, unix_s);
    else
        buf_printf(body, ",\"%s\":null", name);
}

/* Appends a limit, or null for 0, which is no limit. */
static void write_limit(struct buf *body, const char *before, const char *name, uint64_t limit) {
    if (limit)
        buf_printf(body, "%s\"%s\":%" PRIu64, before, name, limit);
    else
        buf_printf(body, "%s\"%s\":null", before, name);
}

static void write_use(struct api *api, const struct key_row *row, const struct use *use,
                      struct buf *body) {
    uint64_t left;
    buf_add_text(body, ",\"use\":{\"requests_left\":");
    if (key_set_left(api->options.keys, row->id, &left))
        buf_printf(body, "%" PRIu64, left);
    else
        buf_add_text(body, "null");
    if (use && use->is_known)
        buf_printf(body,
                   ",\"queued_tokens\":%" PRIu64 ",\"batches\":%" PRIu64
                   ",\"stored_bytes\":%" PRIu64 "}",
                   use->input_bytes / BATCH_BYTES_PER_TOKEN, use->batches, use->stored_bytes);
    else
        buf_add_text(body, ",\"queued_tokens\":null,\"batches\":null,\"stored_bytes\":null}");
}

/* Appends a key. `use` NULL: it was not read. `text` is the key itself; NULL: it is not shown. */
static void write_key(struct api *api, const struct key_row *row, const struct use *use,
                      const char *text, struct buf *body) {
    buf_printf(body, "{\"object\":\"api_key\",\"id\":\"%s\",\"name\":", row->id);
    json_write_string(body, str_from(row->name));
    buf_printf(body, ",\"owner\":\"%s\",\"state\":\"%s\",\"scopes\":[",
               *row->owner ? row->owner : "default", key_row_state(row, clock_unix_s()));
    for (int i = 0, count = 0; i < KEY_SCOPE_NAMED_COUNT; i++)
        if (row->scopes >> i & 1)
            buf_printf(body, "%s\"%s\"", count++ ? "," : "", key_scope_name((enum key_scope)i));
    buf_add_byte(body, ']');
    write_time(body, "created_at", row->created_unix_s);
    write_time(body, "expires_at", row->expires_unix_s);
    write_time(body, "revoked_at", row->revoked_unix_s);
    buf_add_text(body, ",\"limits\":{");
    write_limit(body, "", "requests_per_minute", row->requests_per_minute);
    write_limit(body, ",", "queued_tokens", row->queued_tokens_max);
    write_limit(body, ",", "batches", row->batches_max);
    write_limit(body, ",", "stored_bytes", row->stored_bytes_max);
    buf_add_byte(body, '}');
    write_use(api, row, use, body);
    if (text) buf_printf(body, ",\"key\":\"%s\"", text);
    buf_add_byte(body, '}');
}

/* --- listing --- */

/* The use of the row's owner, read once per owner; NULL if too many owners were read before. */
static const struct use *use_of(struct api *api, struct use *uses, size_t *count,
                                const char *owner) {
    for (size_t i = 0; i < *count; i++)
        if (strcmp(uses[i].owner, owner) == 0) return &uses[i];
    if (*count == OWNERS_LOOKED_UP) return NULL;
    uses[*count] = read_use(api, owner);
    return &uses[(*count)++];
}

/* True if the server has a set of keys; else false, with an answer sent. */
static bool has_keys(struct api *api, struct http_request *request) {
    if (api->options.keys) return true;
    api_fail(request, 404, NULL, NULL, "This server keeps no keys");
    return false;
}

void keys_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct key_file file;
    struct error error;
    struct buf body;
    if (!has_keys(api, request)) return;
    enum err err = key_file_list(&file, store_dir(api->options.store), &error);
    if (err != OK) {
        api_fail_err(request, err == ERR_INVALID ? ERR_CORRUPT : err, &error, NULL);
        return;
    }
    struct use *uses = mem_new(OWNERS_LOOKED_UP, sizeof *uses);
    size_t use_count = 0;
    buf_init(&body, KEYS_BYTES_MAX);
    buf_printf(&body, "{\"object\":\"list\",\"asks\":%s,\"data\":[",
               key_set_asks(api->options.keys) ? "true" : "false");
    for (size_t i = 0; i < file.count; i++) {
        const struct key_row *row = &file.rows[i];
        if (i > 0) buf_add_byte(&body, ',');
        write_key(api, row, use_of(api, uses, &use_count, row->owner), NULL, &body);
    }
    buf_add_text(&body, "]}");
    free(uses);
    key_file_release(&file);
    api_answer_json(request, &body);
}

/* --- creating --- */

static bool came_through_proxy(const struct http_request *request) {
    static const char *const names[] = {"forwarded",          "via",
                                        "cdn-loop",           "true-client-ip",
                                        "client-ip",          "fastly-client-ip",
                                        "fly-client-ip",      "proxy-client-ip",
                                        "wl-proxy-client-ip", "remote-addr",
                                        "remote-ip",          "incap-client-ip",
                                        "do-connecting-ip",   "oxylabs-client-ip",
                                        "ali-cdn-real-ip"};
    /* X-Forwarded-For and its kin, X-Real-IP, X-Client-IP, CF-Connecting-IP … */
    static const char *const starts[] = {
        "x-forwarded",   "forwarded-", "x-real",      "x-client", "x-cluster", "x-original",
        "x-originating", "x-remote",   "x-envoy",     "x-proxy",  "x-azure",   "x-arr-",
        "x-amzn-",       "x-amz-cf",   "x-appengine", "x-cloud",  "x-host",    "x-coming-from",
        "x-nginx",       "x-varnish",  "x-sucuri",    "x-vercel", "x-tunnel",  "tailscale-",
        "cf-",           "akamai-"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (http_request_header(request, names[i]).at) return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (http_request_has_header_like(request, starts[i])) return true;
    return false;
}

/* True if this client may make a key. False, with 403 sent, for a first key from elsewhere. */
static bool may_create(struct api *api, struct http_request *request) {
    if (key_set_asks(api->options.keys)) return true;
    if (address_is_loopback(http_request_peer(request)) && !came_through_proxy(request))
        return true;
    api_fail(request, 403, "first_key", NULL,
             "The first key locks out everybody who has none: make it on the server's machine, "
             "with `quern key create --scopes admin,files,batches,infer,metrics --name N`");
    return false;
}

/* Writes the array of scopes as a list with commas. A scope that has one itself, or is empty, would
 * become other scopes there: the list then has a name that no scope has. */
static void join_scopes(const json_t *scopes, struct buf *list) {
    const json_t *scope;
    size_t index;
    json_array_foreach(scopes, index, scope) {
        struct str name = json_str(scope);
        bool is_name = name.bytes > 0 && str_find_byte(name, ',', 0) == SIZE_MAX &&
                       str_trim(name).bytes == name.bytes;
        if (index > 0) buf_add_byte(list, ',');
        buf_add_str(list, is_name ? name : STR("?"));
    }
}

static bool read_row(struct http_request *request, const struct wish *wish, int64_t now_unix_s,
                     struct key_row *ret_row) {
    const char *field;
    struct error error;
    struct buf scopes;
    struct key_new key = {.name = wish->name,
                          .owner = wish->owner,
                          .expires = wish->expires,
                          .requests_per_minute = wish->requests_per_minute,
                          .queued_tokens_max = wish->queued_tokens_max,
                          .batches_max = wish->batches_max,
                          .stored_bytes_max = wish->stored_bytes_max};
    buf_init(&scopes, SCOPES_BYTES_MAX);
    if (wish->scopes) {
        join_scopes(wish->scopes, &scopes);
        key.scopes = scopes.overflowed ? STR("?") : buf_str(&scopes);
    }
    enum err err = key_new_read(&key, now_unix_s, ret_row, &field, &error);
    buf_release(&scopes);
    if (err == OK) return true;
    api_fail_param(request, "invalid_value", field, "Invalid value for '%s': %s.", field,
                   error.text);
    return false;
}

static void answer_created(struct api *api, struct http_request *request, const struct key_row *row,
                           const char *text) {
    const struct use use = read_use(api, row->owner);
    struct buf body;
    buf_init(&body, 8192);
    write_key(api, row, &use, text, &body);
    http_answer(request, &(struct http_answer){.status = 200, .body = buf_str(&body)});
    if (body.at) explicit_bzero(body.at, body.bytes);
    buf_release(&body);
}

void keys_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct wish wish = {.batches_max = KEY_BATCHES_MAX};
    struct key_row row;
    struct error error;
    char text[KEY_TEXT_BYTES];
    json_t *body;
    int64_t now_unix_s = clock_unix_s();
    if (!has_keys(api, request) || !may_create(api, request) || !api_read_object(request, &body))
        return;
    bool is_good = api_fields_read_all(request, &keys_fields, body, &wish) &&
                   read_row(request, &wish, now_unix_s, &row);
    json_decref(body);
    if (!is_good) return;
    enum err err = key_file_add(store_dir(api->options.store), &row, now_unix_s, text, &error);
    if (err != OK) {
        api_fail_err(request, err, &error, NULL);
        return;
    }
    /* Its id is known only now. A key without an entry opens nothing. */
    if (api_audit(api, request, "key.create", row.id)) {
        key_set_look(api->options.keys);
        answer_created(api, request, &row, text);
    } else if (key_file_revoke(store_dir(api->options.store), str_from(row.id), now_unix_s, &row,
                               &error) != OK) {
        log_error("event=key_without_audit key=%s error=\"%s\"", row.id, error.text);
    }
    explicit_bzero(text, sizeof text);
}

/* --- revoking --- */

void keys_revoke(void *context, struct http_request *request) {
    struct api *api = context;
    struct key_row row;
    struct error error;
    struct buf body;
    const char *id = api_text(request, http_request_param(request, 0));
    if (!has_keys(api, request) || !api_audit(api, request, "key.revoke", id)) return;
    enum err err =
        key_file_revoke(store_dir(api->options.store), str_from(id), clock_unix_s(), &row, &error);
    if (err != OK) {
        api_audit_failed(api, request, "key.revoke", id, &error);
        api_fail_err(request, err, &error, "id");
        return;
    }
    key_set_look(api->options.keys);
    buf_init(&body, 8192);
    write_key(api, &row, NULL, NULL, &body);
    api_answer_json(request, &body);
}
