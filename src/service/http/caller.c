/* SPDX-License-Identifier: Apache-2.0 */
#include "http/caller.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

static void wipe(struct str text) {
    if (text.bytes > 0) explicit_bzero((char *)(uintptr_t)text.at, text.bytes);
}

/* The key in the form of an Authorization header. Azure's clients send it alone, as `api-key`, and
 * Anthropic's as `x-api-key`. */
static struct str find_key(struct http_request *request) {
    struct str key = http_request_header(request, "authorization");
    struct str alone = http_request_header(request, "api-key");
    if (alone.bytes == 0) alone = http_request_header(request, "x-api-key");
    if (key.bytes > 0 || alone.bytes == 0) return key;
    char *line = arena_alloc(&request->arena, alone.bytes + sizeof "Bearer ");
    if (!line) return key;
    snprintf(line, alone.bytes + sizeof "Bearer ", "Bearer %.*s", STR_ARGS(alone));
    return str_from(line);
}

/* Wipes the key after its check: no handler needs it, and no core file should have it. */
static void forget_key(struct http_request *request, struct str key) {
    wipe(key);
    wipe(http_request_header(request, "authorization"));
    wipe(http_request_header(request, "api-key"));
    wipe(http_request_header(request, "x-api-key"));
}

/* Warns once of a key that everyone on the way could read. */
static void judge_way(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    if (!gate_is_overheard(request->connection)) return;
    if (!options->keys || !key_set_asks(options->keys)) return; /* then none is secret */
    if (atomic_exchange(&request->server->warned_of_open_key, true)) return;
    log_warn(
        "event=key_over_plain_http; a client of another machine sends its API key without TLS: "
        "use --ssl-certfile, or a proxy with TLS on this machine");
}

static bool check_scope(struct http_request *request) {
    enum key_scope scope = request->match.route->scope;
    char text[120];
    if (key_caller_has(&request->caller, scope)) return true;
    atomic_fetch_add(&request->server->keys_scope_total, 1);
    snprintf(text, sizeof text, "This API key may not do that: it lacks the scope '%s'",
             key_scope_name(scope));
    http_request_fail(request, 403, text, "missing_scope");
    return false;
}

/* Counts a wrong key. */
static void judge_guess(struct http_request *request, int64_t now_ms) {
    struct http_server *server = request->server;
    const struct address *peer = gate_peer(request->connection);
    char text[ADDRESS_TEXT_BYTES];
    atomic_fetch_add(&server->keys_wrong_total, 1);
    pthread_mutex_lock(&server->lock);
    bool is_last = key_throttle_count(server->throttle, peer, now_ms);
    pthread_mutex_unlock(&server->lock);
    if (!is_last) return;
    log_warn("event=wrong_keys address=%s; it has sent %d of them and is slowed",
             address_write(peer, text), KEY_THROTTLE_AT_ONCE);
}

/* Asks for the caller whom the key names, and wipes the key. */
static enum key_answer ask_key(struct http_request *request, unsigned manner,
                               uint32_t *ret_retry_s) {
    struct http_server *server = request->server;
    int64_t now_ms = clock_monotonic_ns() / 1000000;
    pthread_mutex_lock(&server->lock);
    bool has_guesses =
        key_throttle_allows(server->throttle, gate_peer(request->connection), now_ms);
    pthread_mutex_unlock(&server->lock);
    if (!has_guesses) manner |= KEY_NO_GUESS;
    struct str key = find_key(request);
    enum key_answer answer =
        key_check(server->options.keys, key, manner, &request->caller, ret_retry_s);
    forget_key(request, key);
    if (answer == KEY_GOOD) judge_way(request);
    if (answer == KEY_WRONG) judge_guess(request, now_ms);
    if (answer == KEY_UNSEEN) atomic_fetch_add(&server->keys_guessed_total, 1);
    return answer;
}

/* An open route needs no key, but tells more to the owner of one. */
static void look_at_key(struct http_request *request) {
    uint32_t retry_s;
    request->is_known = ask_key(request, KEY_LOOK, &retry_s) == KEY_GOOD;
    request->caller = (struct key_caller){0};
}

bool http_caller_find(struct http_request *request) {
    struct http_server *server = request->server;
    uint32_t retry_s = 1;
    if (request->match.route->scope == KEY_SCOPE_OPEN) {
        look_at_key(request);
        return true;
    }
    switch (ask_key(request, 0, &retry_s)) {
    case KEY_GOOD: request->is_known = true; return check_scope(request);
    case KEY_MISSING:
        atomic_fetch_add(&server->keys_missing_total, 1);
        http_request_fail(request, 401,
                          "No API key was given: send it as 'Authorization: Bearer KEY'", NULL);
        return false;
    case KEY_LATER:
        atomic_fetch_add(&server->keys_rate_total, 1);
        http_request_fail_later(request, "This API key has used up its requests per minute",
                                retry_s);
        return false;
    case KEY_UNSEEN:
        http_request_fail_later(request, "This address has sent too many wrong API keys", 1);
        return false;
    case KEY_WRONG: break;
    }
    http_request_fail(request, 401, "Incorrect API key provided: this server does not know it",
                      "invalid_api_key");
    return false;
}
