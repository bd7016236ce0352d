/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/delivery.h"

#include "notify/address.h"
#include "notify/target.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BODY_BYTES_MAX 1024
#define HEADER_BYTES_MAX 512

/* The ids and types are quern's own: nothing in them needs escaping. */
void delivery_write_event(struct buf *body, const struct store_outbox_row *row) {
    buf_printf(body,
               "{\"id\":\"%s\",\"object\":\"event\",\"created_at\":%" PRId64
               ",\"type\":\"%s\",\"data\":{\"id\":\"%s\"}}",
               row->event_id, row->created_unix_s, row->type, row->subject);
}

/* The library is about to connect to this very address: what a name resolved to when it was checked
 * does not matter. */
static curl_socket_t open_socket(void *context, curlsocktype purpose,
                                 struct curl_sockaddr *address) {
    struct delivery *delivery = context;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
    if (address->family != AF_INET && address->family != AF_INET6) return CURL_SOCKET_BAD;
    if (!delivery->allow_private && !address_is_public(&address->addr, address->addrlen)) {
        delivery->was_refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* The answer's text is of no use; too much of it ends the transfer. */
static size_t drop_reply(char *bytes, size_t size, size_t count, void *context) {
    struct delivery *delivery = context;
    (void)bytes;
    delivery->reply_bytes += size * count;
    return delivery->reply_bytes <= DELIVERY_REPLY_BYTES_MAX ? size * count : 0;
}

static void add_header(struct delivery *delivery, const char *name, const char *value) {
    struct buf line;
    buf_init(&line, HEADER_BYTES_MAX);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(delivery->headers, line.at);
    if (!longer) abort();
    delivery->headers = longer;
    buf_release(&line);
}

static void add_headers(struct delivery *delivery, const struct webhook_keys *keys,
                        int64_t now_unix_s) {
    char timestamp[32];
    struct buf signature;
    buf_init(&signature, HEADER_BYTES_MAX);
    snprintf(timestamp, sizeof timestamp, "%" PRId64, now_unix_s);
    webhook_sign(&signature, keys, str_from(delivery->row.event_id), now_unix_s,
                 buf_str(&delivery->body));
    add_header(delivery, "content-type", "application/json");
    add_header(delivery, "webhook-id", delivery->row.event_id);
    add_header(delivery, "webhook-timestamp", timestamp);
    add_header(delivery, "webhook-signature", signature.at);
    add_header(delivery, "user-agent", "quern/" QUERN_VERSION);
    buf_release(&signature);
}

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (curl_easy_setopt(delivery->easy, option, value) != CURLE_OK) abort();                  \
    } while (0)

static void set_options(struct delivery *delivery) {
    SET(CURLOPT_CURLU, delivery->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, ""); /* also none of the environment */
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)DELIVERY_MS);
    /* A name server that does not answer must not hold up the end of an attempt. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, delivery);
    SET(CURLOPT_WRITEFUNCTION, drop_reply);
    SET(CURLOPT_WRITEDATA, delivery);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDS, delivery->body.at);
    SET(CURLOPT_POSTFIELDSIZE, (long)delivery->body.bytes);
    SET(CURLOPT_HTTPHEADER, delivery->headers);
    SET(CURLOPT_PRIVATE, delivery);
}

enum err delivery_start(struct delivery *delivery, const struct delivery_way *way,
                        const struct store_outbox_row *row, int64_t now_unix_s,
                        struct error *error) {
    *delivery = (struct delivery){.row = *row, .allow_private = way->allow_private};
    buf_init(&delivery->body, BODY_BYTES_MAX);
    const char *url = row->url ? row->url : way->url;
    if (!*url) return err_set(error, ERR_INVALID, "no URL is configured any more");
    enum err err = target_read(&delivery->url, str_from(url), way->allow_private, error);
    if (err != OK) return err;
    delivery_write_event(&delivery->body, &delivery->row);
    add_headers(delivery, way->keys, now_unix_s);
    delivery->easy = curl_easy_init();
    if (!delivery->easy) abort();
    set_options(delivery);
    if (curl_multi_add_handle(way->multi, delivery->easy) != CURLM_OK) abort();
    return OK;
}

static void end_transfer(struct delivery *delivery, CURLM *multi) {
    if (!delivery->easy) return;
    if (curl_multi_remove_handle(multi, delivery->easy) != CURLM_OK) abort();
    curl_easy_cleanup(delivery->easy);
    delivery->easy = NULL;
}

struct delivery_end delivery_finish(struct delivery *delivery, CURLM *multi, CURLcode result) {
    struct delivery_end end = {.was_refused = delivery->was_refused, .text = "answered"};
    bool is_long = result == CURLE_WRITE_ERROR;
    if (curl_easy_getinfo(delivery->easy, CURLINFO_RESPONSE_CODE, &end.status) != CURLE_OK)
        end.status = 0;
    end.is_delivered = (result == CURLE_OK || is_long) && end.status >= 200 && end.status < 300;
    end.is_unreachable = result != CURLE_OK && !is_long;
    if (end.is_unreachable) end.text = curl_easy_strerror(result);
    if (end.was_refused) end.text = "its address is not on the open internet";
    end_transfer(delivery, multi);
    return end;
}

void delivery_release(struct delivery *delivery, CURLM *multi) {
    end_transfer(delivery, multi);
    curl_slist_free_all(delivery->headers);
    curl_url_cleanup(delivery->url);
    if (delivery->body.bytes_max) buf_release(&delivery->body);
    store_outbox_release(&delivery->row);
    *delivery = (struct delivery){0};
}
