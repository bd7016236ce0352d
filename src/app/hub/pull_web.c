/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_web.h"

#include "base/id.h"
#include "base/mem.h"
#include "hub/hub_internal.h"
#include "net/client.h"
#include "net/retry.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 10000
#define HOPS_MAX 6
#define SLOW_BYTES_PER_S 1000
#define WAIT_FIRST_MS 125
#define WAIT_LAST_MS 30000
#define WAIT_TOLD_MS_MAX (10 * 60 * 1000)

/* One request over all its redirects. */
struct hops {
    struct pull_web *web;
    struct net_exchange *exchange; /* the current one; NULL: the place is free */
    struct pull_request request;
    uint32_t count;
    bool is_home; /* the current URL is the hub's own */
    struct pull_head head;
    char url[PULL_URL_BYTES]; /* the current one */
};

struct pull_web {
    struct pull_web_options options;
    struct net_client *client;
    struct hops *hops; /* (exchanges_max) */
};

/* --- the head of an answer --- */

/* "bytes 0-99/1000", or a star in place of an unknown length. */
static void read_range(struct pull_head *head, struct str value) {
    uint64_t from, to, total = UINT64_MAX;
    size_t dash = str_find_byte(value, '-', 0), slash = str_find_byte(value, '/', 0);
    if (!str_starts_with(value, STR("bytes ")) || dash == SIZE_MAX || slash == SIZE_MAX ||
        slash < dash)
        return;
    struct str first = {value.at + 6, dash - 6}, last = {value.at + dash + 1, slash - dash - 1};
    struct str whole = str_skip(value, slash + 1);
    if (!str_to_u64(first, &from) || !str_to_u64(last, &to) || to < from) return;
    if (!str_is(whole, "*") && !str_to_u64(whole, &total)) return;
    head->has_range = true;
    head->from = from;
    head->total = total;
}

static bool on_bytes(void *context, void *owner, struct str piece) {
    struct pull_web *web = context;
    struct hops *hops = owner;
    struct str range;
    if (hops->head.status == 0) {
        hops->head.status = net_exchange_status(hops->exchange);
        if (net_exchange_header(hops->exchange, "content-range", 0, &range))
            read_range(&hops->head, range);
    }
    return web->options.bytes(web->options.context, hops->request.owner, &hops->head, piece);
}

static void copy_header(const struct hops *hops, const char *name, char *ret_text, size_t room) {
    struct str text = {NULL, 0};
    (void)net_exchange_header(hops->exchange, name, 0, &text);
    hub_copy_printable(ret_text, room, text);
}

/* --- one request --- */

/* Asks the current URL. */
static void ask(struct hops *hops) {
    const struct pull_hub *hub = hops->web->options.hub;
    int64_t stall_ms = hub->stall_s * 1000;
    hops->is_home = pull_hub_is_home(hub, hops->url);
    hops->head = (struct pull_head){.status = 0};
    hops->exchange = net_client_start(
        hops->web->client,
        &(struct net_request){
            .owner = hops,
            .url = hops->url,
            .sends_key = hops->is_home,
            .stream = hops->request.wants_bytes ? NET_STREAM_BYTES : NET_STREAM_NONE,
            .range_from = hops->request.from,
            .range_to = hops->request.to,
            .first_byte_ms = stall_ms,
            .stall_ms = stall_ms,
        });
}

void pull_web_start(struct pull_web *web, const struct pull_request *request) {
    struct hops *hops = web->hops;
    while (hops->exchange) {
        hops++;
        assert(hops < web->hops + web->options.exchanges_max);
    }
    assert(strlen(request->url) < sizeof hops->url);
    hops->web = web;
    hops->request = *request;
    hops->count = 0;
    snprintf(hops->url, sizeof hops->url, "%s", request->url);
    ask(hops);
}

/* True if the answer is a redirect that was followed. *ret_why is the reason against following;
 * NULL: the answer is no redirect. */
static bool follow(struct hops *hops, const struct net_answer *answer, const char **ret_why) {
    int status = answer->status;
    *ret_why = NULL;
    if (status != 301 && status != 302 && status != 303 && status != 307 && status != 308)
        return false;
    if (!answer->location || strlen(answer->location) >= sizeof hops->url)
        *ret_why = "a redirect leads nowhere";
    else if (++hops->count > HOPS_MAX)
        *ret_why = "too many redirects";
    else if (!pull_hub_may_ask(hops->web->options.hub, answer->location))
        *ret_why = "a redirect leads to no https URL";
    if (*ret_why) return false;
    memcpy(hops->url, answer->location, strlen(answer->location) + 1);
    ask(hops);
    return true;
}

static enum pull_end read_end(const struct net_answer *answer) {
    switch (answer->end) {
    case NET_END_WHOLE: return PULL_END_WHOLE;
    case NET_END_STOPPED: return PULL_END_STOPPED;
    case NET_END_TOO_LONG: return PULL_END_REFUSED;
    case NET_END_UNTRUSTED: return PULL_END_REFUSED; /* another try meets the same certificate */
    case NET_END_UNSENT:
    case NET_END_TIMEOUT:
    case NET_END_BROKEN: break;
    }
    return PULL_END_BROKEN;
}

static void on_done(void *context, const struct net_answer *net_answer) {
    struct pull_web *web = context;
    struct hops *hops = net_answer->owner;
    const char *why =
        net_answer->end == NET_END_TOO_LONG ? "the answer is too long" : net_answer->why;
    struct pull_answer answer = {.end = read_end(net_answer),
                                 .status = net_answer->status,
                                 .text = net_answer->body,
                                 .url = hops->url,
                                 .is_home = hops->is_home,
                                 .retry_after_ms = net_answer->retry_after_ms};
    struct str link;
    snprintf(answer.why, sizeof answer.why, "%.200s", why);
    if (net_answer->end == NET_END_TIMEOUT)
        snprintf(answer.why, sizeof answer.why, "nothing came for %u seconds",
                 web->options.hub->stall_s);
    copy_header(hops, "x-error-code", answer.error_code, sizeof answer.error_code);
    copy_header(hops, "x-error-message", answer.error_text, sizeof answer.error_text);
    for (size_t i = 0; net_exchange_header(hops->exchange, "link", i, &link); i++)
        (void)pull_next_read(link, answer.next);
    if (answer.end == PULL_END_WHOLE) {
        if (follow(hops, net_answer, &why)) return;
        if (why) {
            answer.end = PULL_END_REFUSED;
            snprintf(answer.why, sizeof answer.why, "%s", why);
        }
    }
    void *owner = hops->request.owner;
    hops->exchange = NULL;
    web->options.done(web->options.context, owner, &answer);
}

void pull_web_poll(struct pull_web *web, int timeout_ms) {
    net_client_poll(web->client, timeout_ms);
}

/* --- opening and closing --- */

enum err pull_web_open(struct pull_web **ret_web, const struct pull_web_options *options,
                       struct error *error) {
    /* In a compressed answer, a range would be one of other bytes. */
    static const char *const headers[] = {"Accept-Encoding: identity", NULL};
    const struct pull_hub *hub = options->hub;
    struct pull_web *web = mem_new(1, sizeof *web);
    web->options = *options;
    web->hops = mem_new(options->exchanges_max, sizeof *web->hops);
    const struct net_client_options client = {
        .exchanges_max = options->exchanges_max + 1, /* a redirect is followed from `done` */
        .text_bytes_max = PULL_TEXT_BYTES_MAX,
        .connect_ms = hub->stall_s * 1000 < CONNECT_MS ? hub->stall_s * 1000 : CONNECT_MS,
        .key = *hub->token ? hub->token : NULL,
        .headers = headers,
        .certificates = hub->certificates,
        .proxy_from_environment = true,
        .slow_bytes_per_s = SLOW_BYTES_PER_S,
        .context = web,
        .bytes = on_bytes,
        .done = on_done,
    };
    enum err err = net_client_open(&web->client, &client, error);
    if (err != OK) {
        pull_web_close(web);
        return err;
    }
    *ret_web = web;
    return OK;
}

void pull_web_close(struct pull_web *web) {
    if (!web) return;
    net_client_close(web->client);
    free(web->hops);
    free(web);
}

/* --- trying again --- */

bool pull_answer_is_passing(const struct pull_answer *answer) {
    if (answer->end == PULL_END_BROKEN) return true;
    if (answer->end != PULL_END_WHOLE) return false;
    return answer->status == 408 || answer->status == 425 || answer->status == 429 ||
           (answer->status >= 500 && answer->status != 501);
}

int64_t pull_answer_wait_ms(const struct pull_answer *answer, uint32_t tries) {
    int64_t told_ms = answer->retry_after_ms;
    if (told_ms >= 0) return told_ms < WAIT_TOLD_MS_MAX ? told_ms : WAIT_TOLD_MS_MAX;
    int64_t wait_ms = net_backoff_ms(WAIT_FIRST_MS, WAIT_LAST_MS, tries - 1);
    /* Not all at the same moment: up to a quarter less. */
    return wait_ms - (int64_t)(id_u64() % (uint64_t)(wait_ms / 4));
}
