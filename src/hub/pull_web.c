/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_web.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "net/client.h"

#include <assert.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONNECT_MS 10000
#define HOPS_MAX 6
#define SLOW_BYTES 1000L /* a second, for */
#define SLOW_S 60L
#define LOOK_NS ((int64_t)100 * 1000000) /* between looks at the clock */
#define HEAD_BYTES_MAX ((size_t)256 << 10)
#define WAIT_FIRST_MS 125
#define WAIT_LAST_MS 30000
#define WAIT_TOLD_MS_MAX (10 * 60 * 1000)

struct pull_exchange {
    struct pull_web *web;
    CURL *easy;
    void *owner;
    bool is_busy, wants_bytes, has_range, was_stopped, is_too_long;
    uint64_t from, to;
    uint32_t hops;
    int64_t heard_ns; /* when it was asked, or last answered something */
    size_t head_bytes;
    struct pull_head head;
    struct pull_answer answer;
    struct buf text;
    char url[PULL_URL_BYTES];
    char reason[CURL_ERROR_SIZE];
};

struct pull_web {
    struct pull_web_options options;
    CURLM *multi;
    struct curl_slist *home_head, *other_head;
    struct pull_exchange *exchanges; /* (exchanges_max) */
    int64_t looked_ns;
};

/* --- what libcurl calls --- */

/* The value of a header line when it is `name`. */
static bool is_header(struct str line, const char *name, struct str *ret_value) {
    size_t bytes = strlen(name);
    if (line.bytes <= bytes || line.at[bytes] != ':' || strncasecmp(line.at, name, bytes) != 0)
        return false;
    *ret_value = str_trim(str_skip(line, bytes + 1));
    return true;
}

static void copy_printable(char *ret_text, size_t room, struct str text) {
    size_t count = text.bytes < room ? text.bytes : room - 1;
    for (size_t i = 0; i < count; i++)
        ret_text[i] = text.at[i] >= ' ' && text.at[i] < 0x7F ? text.at[i] : '?';
    ret_text[count] = '\0';
}

/* "bytes 0-99/1000" or "bytes 0-99" and a star for a length not known. */
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

/* A new head begins: what an earlier one said (of a proxy, or 100 Continue) is of no interest. */
static void forget_head(struct pull_exchange *exchange) {
    exchange->head = (struct pull_head){.status = 0};
    exchange->answer.retry_after_ms = -1;
    exchange->answer.error_code[0] = exchange->answer.error_text[0] = '\0';
    exchange->answer.next[0] = '\0';
}

static size_t on_head(char *bytes, size_t size, size_t count, void *user) {
    struct pull_exchange *exchange = user;
    struct pull_answer *answer = &exchange->answer;
    struct str line = {bytes, size * count}, value;
    exchange->heard_ns = clock_monotonic_ns();
    exchange->head_bytes += line.bytes;
    if (exchange->head_bytes > HEAD_BYTES_MAX) {
        exchange->is_too_long = true;
        return 0;
    }
    if (str_starts_with(line, STR("HTTP/")))
        forget_head(exchange);
    else if (is_header(line, "content-range", &value))
        read_range(&exchange->head, value);
    else if (is_header(line, "x-error-code", &value))
        copy_printable(answer->error_code, sizeof answer->error_code, value);
    else if (is_header(line, "x-error-message", &value))
        copy_printable(answer->error_text, sizeof answer->error_text, value);
    else if (is_header(line, "link", &value))
        (void)pull_next_read(value, answer->next);
    else if (is_header(line, "retry-after", &value))
        answer->retry_after_ms = net_retry_after_ms(STR("retry-after"), value, clock_unix_s());
    return line.bytes;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
    struct pull_exchange *exchange = user;
    const struct pull_web_options *options = &exchange->web->options;
    struct str piece = {bytes, size * count};
    long status = 0;
    exchange->heard_ns = clock_monotonic_ns();
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    exchange->head.status = (int)status;
    if (status / 100 == 3) return piece.bytes; /* we go on elsewhere */
    if (exchange->wants_bytes && (status == 200 || status == 206)) {
        if (options->bytes(options->context, exchange->owner, &exchange->head, piece))
            return piece.bytes;
        exchange->was_stopped = true;
        return 0;
    }
    buf_add_str(&exchange->text, piece);
    exchange->is_too_long = exchange->text.overflowed;
    return exchange->is_too_long ? 0 : piece.bytes;
}

/* --- one request, over all its redirects --- */

static void set_options(struct pull_exchange *exchange) {
    const struct pull_web *web = exchange->web;
    const struct pull_hub *hub = web->options.hub;
    CURL *easy = exchange->easy;
    char range[64];
    exchange->answer.is_home = pull_hub_is_home(hub, exchange->url);
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, exchange->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, hub->is_plain ? "http,https" : "https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, SLOW_S);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER,
                     exchange->answer.is_home ? web->home_head : web->other_head);
    if (hub->certificates) curl_easy_setopt(easy, CURLOPT_CAINFO, hub->certificates);
    if (exchange->has_range) {
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, exchange->from, exchange->to - 1);
        curl_easy_setopt(easy, CURLOPT_RANGE, range);
    }
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->reason);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
}

/* Asks the exchange's URL. */
static void ask(struct pull_exchange *exchange) {
    exchange->heard_ns = clock_monotonic_ns();
    exchange->head_bytes = 0;
    exchange->reason[0] = '\0';
    exchange->answer.why[0] = '\0';
    forget_head(exchange);
    buf_clear(&exchange->text);
    set_options(exchange);
    if (curl_multi_add_handle(exchange->web->multi, exchange->easy) != CURLM_OK) abort();
}

void pull_web_start(struct pull_web *web, const struct pull_request *request) {
    struct pull_exchange *exchange = web->exchanges;
    while (exchange->is_busy) {
        exchange++;
        assert(exchange < web->exchanges + web->options.exchanges_max);
    }
    if (!exchange->easy) exchange->easy = curl_easy_init();
    if (!exchange->easy) abort();
    assert(strlen(request->url) < sizeof exchange->url);
    snprintf(exchange->url, sizeof exchange->url, "%s", request->url);
    exchange->web = web;
    exchange->owner = request->owner;
    exchange->is_busy = true;
    exchange->wants_bytes = request->wants_bytes;
    exchange->has_range = request->has_range;
    exchange->from = request->from;
    exchange->to = request->to;
    exchange->was_stopped = exchange->is_too_long = false;
    exchange->hops = 0;
    ask(exchange);
}

static void refuse(struct pull_answer *answer, const char *why) {
    answer->end = PULL_END_REFUSED;
    snprintf(answer->why, sizeof answer->why, "%s", why);
}

/* True when it goes on elsewhere. */
static bool follow(struct pull_exchange *exchange) {
    char *target = NULL;
    int status = exchange->answer.status;
    if (status != 301 && status != 302 && status != 303 && status != 307 && status != 308)
        return false;
    curl_easy_getinfo(exchange->easy, CURLINFO_REDIRECT_URL, &target);
    if (!target || strlen(target) >= sizeof exchange->url) {
        refuse(&exchange->answer, "a redirect leads nowhere");
        return false;
    }
    if (++exchange->hops > HOPS_MAX || !pull_hub_may_ask(exchange->web->options.hub, target)) {
        refuse(&exchange->answer, exchange->hops > HOPS_MAX ? "too many redirects"
                                                            : "a redirect leads to no https URL");
        return false;
    }
    char url[PULL_URL_BYTES]; /* the library's text goes with the next request */
    snprintf(url, sizeof url, "%s", target);
    memcpy(exchange->url, url, sizeof url);
    ask(exchange);
    return true;
}

static void finish(struct pull_exchange *exchange, CURLcode code) {
    struct pull_answer *answer = &exchange->answer;
    const struct pull_web_options *options = &exchange->web->options;
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(exchange->web->multi, exchange->easy);
    answer->status = (int)status;
    answer->end = PULL_END_WHOLE;
    if (exchange->is_too_long) {
        refuse(answer, "the answer is too long");
    } else if (exchange->was_stopped) {
        answer->end = PULL_END_STOPPED;
    } else if (code != CURLE_OK) {
        /* Another try meets the same certificate. */
        answer->end = code == CURLE_PEER_FAILED_VERIFICATION ? PULL_END_REFUSED : PULL_END_BROKEN;
        snprintf(answer->why, sizeof answer->why, "%.200s",
                 *exchange->reason ? exchange->reason : curl_easy_strerror(code));
    } else if (follow(exchange)) {
        return;
    }
    answer->url = exchange->url;
    answer->text = buf_str(&exchange->text);
    exchange->is_busy = false;
    options->done(options->context, exchange->owner, answer);
}

/* Ends what is silent for too long. */
static void check_clocks(struct pull_web *web) {
    int64_t now_ns = clock_monotonic_ns(), stall_ns = web->options.hub->stall_s * 1000000000ll;
    if (now_ns - web->looked_ns < LOOK_NS) return;
    web->looked_ns = now_ns;
    for (uint32_t i = 0; i < web->options.exchanges_max; i++) {
        struct pull_exchange *exchange = &web->exchanges[i];
        if (!exchange->is_busy || now_ns - exchange->heard_ns < stall_ns) continue;
        snprintf(exchange->reason, sizeof exchange->reason, "nothing came for %u seconds",
                 web->options.hub->stall_s);
        finish(exchange, CURLE_OPERATION_TIMEDOUT);
    }
}

void pull_web_poll(struct pull_web *web, int timeout_ms) {
    int running = 0, left = 0;
    bool ended_one = false;
    if (curl_multi_perform(web->multi, &running) != CURLM_OK) abort();
    for (CURLMsg *message; (message = curl_multi_info_read(web->multi, &left));) {
        struct pull_exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        finish(exchange, code);
        ended_one = true;
    }
    check_clocks(web);
    if (!ended_one) curl_multi_poll(web->multi, NULL, 0, timeout_ms, NULL);
}

/* --- opening --- */

static struct curl_slist *add(struct curl_slist *list, const char *line) {
    struct curl_slist *longer = curl_slist_append(list, line);
    if (!longer) abort();
    return longer;
}

enum err pull_web_open(struct pull_web **ret_web, const struct pull_web_options *options,
                       struct error *error) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(error, ERR_IO, "libcurl does not start");
    struct pull_web *web = mem_new(1, sizeof *web);
    web->options = *options;
    web->exchanges = calloc(options->exchanges_max, sizeof *web->exchanges);
    web->multi = curl_multi_init();
    if (!web->exchanges || !web->multi) abort();
    curl_multi_setopt(web->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS, 2L * (long)options->exchanges_max);
    for (uint32_t i = 0; i < options->exchanges_max; i++)
        buf_init(&web->exchanges[i].text, PULL_TEXT_BYTES_MAX);
    /* Compressed, a range would be one of other bytes. */
    web->other_head = add(NULL, "Accept-Encoding: identity");
    web->home_head = add(NULL, "Accept-Encoding: identity");
    if (*options->hub->token) {
        char line[PULL_TOKEN_BYTES + 32];
        snprintf(line, sizeof line, "Authorization: Bearer %s", options->hub->token);
        web->home_head = add(web->home_head, line);
        explicit_bzero(line, sizeof line);
    }
    *ret_web = web;
    return OK;
}

void pull_web_close(struct pull_web *web) {
    if (!web) return;
    for (uint32_t i = 0; i < web->options.exchanges_max; i++) {
        struct pull_exchange *exchange = &web->exchanges[i];
        if (exchange->is_busy) curl_multi_remove_handle(web->multi, exchange->easy);
        if (exchange->easy) curl_easy_cleanup(exchange->easy);
        buf_release(&exchange->text);
    }
    curl_multi_cleanup(web->multi);
    for (struct curl_slist *line = web->home_head; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(web->home_head);
    curl_slist_free_all(web->other_head);
    free(web->exchanges);
    free(web);
    curl_global_cleanup();
}

/* --- trying again --- */

bool pull_answer_is_passing(const struct pull_answer *answer) {
    if (answer->end == PULL_END_BROKEN) return true;
    if (answer->end != PULL_END_WHOLE) return false;
    return answer->status == 408 || answer->status == 425 || answer->status == 429 ||
           (answer->status >= 500 && answer->status != 501);
}

int64_t pull_answer_wait_ms(const struct pull_answer *answer, uint32_t tries) {
    if (answer->retry_after_ms >= 0)
        return answer->retry_after_ms < WAIT_TOLD_MS_MAX ? answer->retry_after_ms
                                                         : WAIT_TOLD_MS_MAX;
    int64_t wait_ms = WAIT_FIRST_MS;
    for (uint32_t i = 1; i < tries && wait_ms < WAIT_LAST_MS; i++) wait_ms *= 2;
    /* Not all at the same moment: up to a quarter less. */
    return wait_ms - (int64_t)(id_u64() % (uint64_t)(wait_ms / 4));
}
