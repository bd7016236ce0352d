/* SPDX-License-Identifier: Apache-2.0 */
#include "client/remote.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "client/objects.h"
#include "json/json.h"
#include "net/retry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 10000
#define STALL_MS 120000
#define POLL_MS 50
#define WAIT_FIRST_MS 250 /* before the second attempt, doubled each time */
#define WAIT_LAST_MS 15000
#define WAIT_ASKED_MS_MAX 120000 /* the longest wait that a server may ask for */
#define URL_BYTES 4096
/* An upload's answer comes after its bytes: a line of 20 KB/s and slower is too slow. */
#define UPLOAD_BYTES_PER_MS 20

struct remote {
    struct remote_options options;
    struct net_client *net;
    struct buf body;               /* body of the latest answer */
    struct net_exchange *exchange; /* these four: of the latest attempt */
    const struct remote_call *call;
    struct remote_answer *answer;
    bool is_over;
    int64_t failing_since_ns; /* monotonic time of the first failure in a row; 0: none */
    uint32_t failures;
    bool has_answered;
    char told[256]; /* the latest failure that the user was told */
};

/* --- one attempt --- */

void remote_say(const struct remote *remote, const char *format, ...) {
    struct error note; /* a sentence that cannot command a terminal */
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)(err_set)(&note, ERR_UNAVAILABLE, "%s", text);
    remote->options.say(remote->options.context, note.text);
}

/* The server has answered: its silence is over. */
static void note_answer(struct remote *remote) {
    if (*remote->told) remote_say(remote, "the server answers again");
    remote->has_answered = true;
    remote->told[0] = '\0';
    remote->failing_since_ns = 0;
    remote->failures = 0;
}

static bool take_bytes(void *context, void *owner, struct str piece) {
    struct remote *remote = owner;
    (void)context;
    note_answer(remote);
    return remote->call->bytes(remote->call->context, piece);
}

static enum remote_end end_of(enum net_end end) {
    switch (end) {
    case NET_END_WHOLE: return REMOTE_ANSWERED;
    case NET_END_UNSENT: return REMOTE_UNSENT;
    case NET_END_UNTRUSTED:
    case NET_END_TOO_LONG: return REMOTE_REFUSED;
    case NET_END_STOPPED: return REMOTE_STOPPED;
    case NET_END_TIMEOUT:
    case NET_END_BROKEN: break;
    }
    return REMOTE_LOST;
}

/* Keeps an ETag of 64 hexadecimal digits: quern's is the SHA-256 of the file. */
static void read_sum(struct str etag, struct remote_answer *answer) {
    const size_t digits = sizeof answer->sha256_hex - 1;
    if (etag.bytes != digits + 2 || etag.at[0] != '"' || etag.at[digits + 1] != '"') return;
    for (size_t i = 1; i <= digits; i++) {
        bool is_digit = etag.at[i] >= '0' && etag.at[i] <= '9';
        if (!is_digit && !(etag.at[i] >= 'a' && etag.at[i] <= 'f')) return;
    }
    memcpy(answer->sha256_hex, etag.at + 1, digits);
    answer->sha256_hex[digits] = '\0';
}

/* Reads the headers that a page of results has, and that of a file. */
static void read_headers(struct remote *remote) {
    struct remote_answer *answer = remote->answer;
    struct str value;
    answer->has_last_line = net_exchange_header(remote->exchange, "x-last-line", 0, &value) &&
                            str_to_u64(value, &answer->last_line);
    answer->is_incomplete =
        net_exchange_header(remote->exchange, "x-incomplete", 0, &value) && str_is(value, "true");
    answer->sha256_hex[0] = '\0';
    if (net_exchange_header(remote->exchange, "etag", 0, &value)) read_sum(value, answer);
}

static void take_end(void *context, const struct net_answer *answer) {
    struct remote *remote = answer->owner;
    struct remote_answer *ret = remote->answer;
    (void)context;
    remote->is_over = true;
    buf_clear(&remote->body);
    buf_add_str(&remote->body, answer->body);
    ret->end = end_of(answer->end);
    ret->status = answer->status;
    ret->body = buf_str(&remote->body);
    ret->retry_after_ms = answer->retry_after_ms;
    ret->is_nobody = answer->os_error == ECONNREFUSED;
    snprintf(ret->why, sizeof ret->why, "%s%s%s", answer->what, *answer->fault ? ": " : "",
             answer->fault);
    snprintf(ret->location, sizeof ret->location, "%s", answer->location ? answer->location : "");
    read_headers(remote);
}

static void make_url(const struct remote *remote, const struct remote_call *call,
                     char ret_url[URL_BYTES]) {
    struct str base = str_from(remote->options.base_url);
    if (call->at_root && str_ends_with(base, STR("/v1"))) base.bytes -= 3;
    snprintf(ret_url, URL_BYTES, "%.*s%s", STR_ARGS(base), call->path);
}

static int64_t answer_ms(const struct remote_call *call) {
    int64_t limit_ms = call->answer_ms > 0 ? call->answer_ms : REMOTE_ANSWER_MS;
    if (!call->file) return limit_ms;
    return limit_ms + (int64_t)(call->file->bytes / UPLOAD_BYTES_PER_MS);
}

enum err remote_try(struct remote *remote, const struct remote_call *call,
                    struct remote_answer *ret_answer, struct error *error) {
    char url[URL_BYTES], key_line[256];
    const char *lines[3] = {NULL};
    size_t count = 0;
    if (call->idempotency_key) lines[count++] = key_line;
    if (call->authorization) lines[count++] = call->authorization;
    make_url(remote, call, url);
    snprintf(key_line, sizeof key_line, "Idempotency-Key: %s",
             call->idempotency_key ? call->idempotency_key : "");
    const struct net_request request = {
        .owner = remote,
        .url = url,
        .headers = count > 0 ? lines : NULL,
        .body = call->body,
        .file = call->file,
        .is_delete = call->is_delete,
        .sends_key = call->authorization == NULL,
        .stream = call->bytes ? NET_STREAM_BYTES : NET_STREAM_NONE,
        .range_from = call->range_from,
        .range_to = call->range_to,
        .first_byte_ms = answer_ms(call),
        .stall_ms = STALL_MS,
    };
    *ret_answer = (struct remote_answer){0};
    remote->call = call;
    remote->answer = ret_answer;
    remote->is_over = false;
    remote->exchange = net_client_start(remote->net, &request);
    while (!remote->is_over) {
        if (*remote->options.stop) {
            net_client_abort(remote->net, remote->exchange);
            return err_set(error, ERR_CANCELLED, "stopped");
        }
        net_client_poll(remote->net, POLL_MS);
    }
    if (ret_answer->end == REMOTE_ANSWERED && !remote_may_pass(ret_answer)) note_answer(remote);
    return OK;
}

int remote_status(const struct remote *remote) {
    return net_exchange_status(remote->exchange);
}

/* --- patience --- */

bool remote_may_pass(const struct remote_answer *answer) {
    int status = answer->status;
    switch (answer->end) {
    case REMOTE_UNSENT:
    case REMOTE_LOST: return true;
    case REMOTE_REFUSED:
    case REMOTE_STOPPED: return false;
    case REMOTE_ANSWERED: break;
    }
    return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

/* Writes why there was no good answer, as a predicate of the server. */
static void write_failure(const struct remote_answer *answer, char *ret_text, size_t bytes) {
    char message[160];
    if (answer->end != REMOTE_ANSWERED) {
        snprintf(ret_text, bytes, "%s", answer->why);
        return;
    }
    object_error_message(answer->body, message, sizeof message);
    snprintf(ret_text, bytes, "answers %d%s%s", answer->status, *message ? ": " : "", message);
}

/* True for a URL of this machine. */
static bool is_loopback(const char *url) {
    struct net_url *parts = net_url_read(url);
    const char *host = parts ? net_url_part(parts, NET_URL_HOST) : NULL;
    bool is_own = host && (strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
                           strcmp(host, "[::1]") == 0);
    net_url_free(parts);
    return is_own;
}

/* True if no wait helps: nothing listens on a port of this machine, and nothing has before. */
static bool is_hopeless(const struct remote *remote, const struct remote_answer *answer) {
    return remote->options.expects_server && answer->is_nobody && !remote->has_answered &&
           is_loopback(remote->options.base_url);
}

enum err remote_wait(struct remote *remote, const struct remote_answer *answer,
                     struct error *error) {
    char failure[256];
    int64_t now_ns = clock_monotonic_ns();
    write_failure(answer, failure, sizeof failure);
    if (remote->failing_since_ns == 0) remote->failing_since_ns = now_ns;
    int64_t wait_ms = net_backoff_ms(WAIT_FIRST_MS, WAIT_LAST_MS, remote->failures++);
    if (answer->retry_after_ms > wait_ms)
        wait_ms =
            answer->retry_after_ms < WAIT_ASKED_MS_MAX ? answer->retry_after_ms : WAIT_ASKED_MS_MAX;
    int64_t silent_ms = (now_ns - remote->failing_since_ns) / 1000000;
    if (is_hopeless(remote, answer))
        return err_set(error, ERR_UNAVAILABLE,
                       "%.200s %s. No server listens there: start quern serve, or name another "
                       "server with %s",
                       remote->options.base_url, failure,
                       remote->options.url_option ? remote->options.url_option
                                                  : "--base-url or OPENAI_BASE_URL");
    if (!remote_may_pass(answer) || silent_ms >= remote->options.patience_ms)
        return err_set(error, ERR_UNAVAILABLE, "%.200s %s", remote->options.base_url, failure);
    if (wait_ms > remote->options.patience_ms - silent_ms)
        wait_ms = remote->options.patience_ms - silent_ms;
    if (strcmp(failure, remote->told) != 0) {
        remote_say(remote, "the server %.150s %s; trying again for up to %" PRId64 " s",
                   remote->options.base_url, failure,
                   (remote->options.patience_ms - silent_ms + 999) / 1000);
        snprintf(remote->told, sizeof remote->told, "%s", failure);
    }
    while (wait_ms > 0) {
        if (*remote->options.stop) return err_set(error, ERR_CANCELLED, "stopped");
        int64_t piece_ms = wait_ms < POLL_MS ? wait_ms : POLL_MS;
        clock_sleep_ms(piece_ms);
        wait_ms -= piece_ms;
    }
    return OK;
}

enum err remote_get(struct remote *remote, const struct remote_call *call,
                    struct remote_answer *ret_answer, struct error *error) {
    for (;;) {
        enum err err = remote_try(remote, call, ret_answer, error);
        if (err != OK) return err;
        bool is_good = ret_answer->end == REMOTE_ANSWERED && !remote_may_pass(ret_answer);
        if (is_good || ret_answer->end == REMOTE_STOPPED) return OK;
        err = remote_wait(remote, ret_answer, error);
        if (err != OK) return err;
    }
}

/* --- what an answer means --- */

static enum err err_of_status(int status) {
    switch (status) {
    case 401:
    case 403: return ERR_DENIED;
    case 404:
    case 410: return ERR_NOT_FOUND;
    case 409: return ERR_CONFLICT;
    case 413: return ERR_LIMIT;
    case 408:
    case 425:
    case 429: return ERR_UNAVAILABLE;
    default: return status >= 500 && status != 501 ? ERR_UNAVAILABLE : ERR_INVALID;
    }
}

enum err remote_judge(const struct remote *remote, const struct remote_answer *answer,
                      struct error *error) {
    char message[320];
    const char *base = remote->options.base_url, *option = remote->options.url_option;
    const char *advice = remote->options.key_advice;
    if (answer->end != REMOTE_ANSWERED)
        return err_set(error, ERR_UNAVAILABLE, "%.200s %s", base, answer->why);
    if (answer->status / 100 == 2) return OK;
    if (answer->status / 100 == 3)
        return err_set(error, ERR_INVALID,
                       "%.150s redirects to %.150s; quern takes its key to no other place: give "
                       "the right %s",
                       base, *answer->location ? answer->location : "nowhere",
                       option ? option : "--base-url");
    object_error_message(answer->body, message, sizeof message);
    enum err err = err_of_status(answer->status);
    if (err == ERR_DENIED)
        return err_set(error, err, "%.150s answers %d%s%.200s; a key goes into %s", base,
                       answer->status, *message ? ": " : "", message,
                       advice ? advice : "OPENAI_API_KEY or --api-key-file");
    if (*message) return err_set(error, err, "%s", message);
    return err_set(error, err, "%.200s answers %d", base, answer->status);
}

enum err remote_get_json(struct remote *remote, const struct remote_call *call, json_t **ret_object,
                         struct error *error) {
    struct remote_answer answer;
    enum err err = remote_get(remote, call, &answer, error);
    if (err == OK) err = remote_judge(remote, &answer, error);
    return err == OK ? object_read(answer.body, ret_object, error) : err;
}

/* --- opening and closing --- */

enum err remote_open(struct remote **ret_remote, const struct remote_options *options,
                     struct error *error) {
    struct remote *remote = mem_new(1, sizeof *remote);
    const struct net_client_options net = {.exchanges_max = 1,
                                           .text_bytes_max = REMOTE_TEXT_BYTES_MAX,
                                           .connect_ms = CONNECT_MS,
                                           .key = options->key,
                                           .certificates = options->certificates,
                                           .proxy_from_environment = true,
                                           .context = remote,
                                           .bytes = take_bytes,
                                           .done = take_end};
    remote->options = *options;
    remote->options.key = NULL;
    buf_init(&remote->body, BUF_UNLIMITED);
    enum err err = net_client_open(&remote->net, &net, error);
    if (err != OK) {
        remote_close(remote);
        return err;
    }
    *ret_remote = remote;
    return OK;
}

void remote_close(struct remote *remote) {
    if (!remote) return;
    net_client_close(remote->net);
    buf_release(&remote->body);
    free(remote);
}

void remote_set_patience_at_least(struct remote *remote, int64_t patience_ms) {
    if (remote->options.patience_ms < patience_ms) remote->options.patience_ms = patience_ms;
}
