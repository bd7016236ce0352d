/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/delivery.h"

#include "notify/open_internet.h"
#include "notify/target.h"

#include <inttypes.h>
#include <stdio.h>

#define BODY_BYTES_MAX 1024
#define HEADER_BYTES_MAX 512

/* Appends the event's JSON, the bytes that are signed. Ids and types are quern's own, so that no
 * byte needs an escape. */
static void write_event(struct buf *body, const struct store_outbox_row *row) {
    buf_printf(body,
               "{\"id\":\"%s\",\"object\":\"event\",\"created_at\":%" PRId64
               ",\"type\":\"%s\",\"data\":{\"id\":\"%s\"}}",
               row->event_id, row->created_unix_s, row->type, row->subject);
}

bool delivery_may_connect(void *context, void *owner, const struct sockaddr *address,
                          socklen_t bytes) {
    struct delivery *delivery = owner;
    struct address read;
    (void)context;
    if (delivery->allow_private) return true;
    if (address_from_socket(&read, address, bytes) && open_internet_has(&read)) return true;
    delivery->was_refused = true;
    return false;
}

static void send_off(struct delivery *delivery, const struct delivery_way *way,
                     int64_t now_unix_s) {
    const char *id = delivery->row.event_id;
    char id_line[HEADER_BYTES_MAX], time_line[64];
    struct buf text, signature;
    buf_init(&text, BODY_BYTES_MAX);
    buf_init(&signature, HEADER_BYTES_MAX);
    write_event(&text, &delivery->row);
    snprintf(id_line, sizeof id_line, "webhook-id: %s", id);
    snprintf(time_line, sizeof time_line, "webhook-timestamp: %" PRId64, now_unix_s);
    buf_add_text(&signature, "webhook-signature: ");
    webhook_sign(&signature, way->keys, str_from(id), now_unix_s, buf_str(&text));
    const char *const headers[] = {id_line, time_line, signature.at, NULL};
    (void)net_client_start(way->client, &(struct net_request){.owner = delivery,
                                                              .checked_url = delivery->url,
                                                              .headers = headers,
                                                              .body = buf_str(&text),
                                                              .whole_ms = DELIVERY_MS});
    buf_release(&text);
    buf_release(&signature);
}

enum err delivery_start(struct delivery *delivery, const struct delivery_way *way,
                        const struct store_outbox_row *row, int64_t now_unix_s,
                        struct error *error) {
    *delivery = (struct delivery){.row = *row, .allow_private = way->allow_private};
    const char *url = row->url ? row->url : way->url;
    if (!*url) return err_set(error, ERR_INVALID, "no URL is configured any more");
    enum err err = target_read(&delivery->url, str_from(url), way->allow_private, error);
    if (err == OK) send_off(delivery, way, now_unix_s);
    return err;
}

struct delivery_end delivery_read_answer(const struct delivery *delivery,
                                         const struct net_answer *answer) {
    bool has_answered = answer->end == NET_END_WHOLE || answer->end == NET_END_TOO_LONG;
    return (struct delivery_end){
        .is_delivered = has_answered && answer->status / 100 == 2,
        .is_unreachable = !has_answered,
        .was_refused = delivery->was_refused,
        .status = answer->status,
        .text = delivery->was_refused ? "its address is not on the open internet"
                : has_answered        ? "answered"
                                      : answer->fault,
    };
}

void delivery_release(struct delivery *delivery) {
    net_url_free(delivery->url);
    store_outbox_release(&delivery->row);
    *delivery = (struct delivery){0};
}
