/* SPDX-License-Identifier: Apache-2.0 */

/* A request on the connection thread: its row of the table, its key and its body, up to the worker
 * thread that takes it, or to an early answer. */

#include "base/clock.h"
#include "base/mem.h"
#include "http/caller.h"
#include "http/head.h"
#include "http/server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DISCARD_BYTES_MAX ((uint64_t)64 << 10)

/* --- its beginning --- */

static enum MHD_Result keep_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   size_t name_bytes, const char *value, size_t value_bytes) {
    struct http_request *request = context;
    (void)kind;
    if (request->header_count == REQUEST_HEADERS_MAX) return MHD_NO;
    struct route_pair *pair = &request->headers[request->header_count];
    pair->name = arena_copy(&request->arena, (struct str){name, name_bytes});
    pair->value = arena_copy(&request->arena, (struct str){value, value_bytes});
    if (pair->name.at && pair->value.at) request->header_count++;
    return MHD_YES;
}

/* Takes over the id of a client or proxy, for logs and answer, if it is harmless there. */
static void take_client_id(struct http_request *request) {
    struct str id = http_request_header(request, "x-request-id");
    if (id.bytes == 0 || id.bytes > 64) return;
    for (size_t i = 0; i < id.bytes; i++) {
        char c = id.at[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && c != '.' && c != '_' && c != '-') return;
    }
    memcpy(request->id, id.at, id.bytes);
    request->id[id.bytes] = '\0';
}

/* Answers OPTIONS with the methods of a path; a path without rows gets 404. */
static void answer_options(struct http_request *request) {
    char allow[sizeof request->match.allow + 16];
    bool reads = strstr(request->match.allow, "GET") != NULL;
    snprintf(allow, sizeof allow, "%s%s, OPTIONS", request->match.allow, reads ? ", HEAD" : "");
    const struct http_header header = {"Allow", allow};
    http_answer(request,
                &(struct http_answer){.status = 204, .headers = &header, .header_count = 1});
}

static void fail_route(struct http_request *request, enum route_found found, struct str path) {
    const struct http_options *options = &request->server->options;
    struct str shown = {path.at, path.bytes < 200 ? path.bytes : 200};
    struct buf text;
    int status = 400;
    buf_init(&text, 2048);
    switch (found) {
    case ROUTE_NO_METHOD:
        status = 405;
        buf_printf(&text, "Method %s is not allowed for %.*s; allowed: %s", request->method,
                   STR_ARGS(shown), request->match.allow);
        break;
    case ROUTE_MALFORMED:
        buf_add_text(
            &text, "The request path has a broken percent-encoding, a control character, or bytes "
                   "that are not UTF-8");
        break;
    default:
        status = 404;
        buf_printf(&text, "Unknown request URL: %s %.*s", request->method, STR_ARGS(shown));
        size_t before = text.bytes;
        if (options->hint && path.bytes == shown.bytes) options->hint(request->method, path, &text);
        if (text.bytes == before) buf_add_text(&text, ". Check the URL for typos");
        break;
    }
    http_request_fail(request, status, text.at, NULL);
    buf_release(&text);
}

/* The target that counts: the one that was sent, or the one that it is another name of. */
static struct str read_alias(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    struct str target = request->target;
    struct buf other;
    buf_init(&other, HEAD_TARGET_BYTES_MAX);
    if (options->alias && options->alias(target, &other))
        target = arena_copy(&request->arena, buf_str(&other));
    buf_release(&other);
    return target.at ? target : request->target;
}

/* A parameter that is left out would be a filter or a limit that does not hold. */
static bool read_query(struct http_request *request, struct str query) {
    char text[100];
    size_t count = route_query(query, &request->arena, request->query);
    if (count <= ROUTE_QUERY_MAX) {
        request->query_count = count;
        return true;
    }
    snprintf(text, sizeof text, "The request has too many query parameters: at most %d are read",
             ROUTE_QUERY_MAX);
    http_request_fail(request, 400, text, "too_many_parameters");
    return false;
}

/* True if the request names a row that its client may use; else it has been answered. */
static bool find_route(struct http_request *request) {
    struct http_server *server = request->server;
    struct str target = read_alias(request);
    size_t question = str_find_byte(target, '?', 0);
    struct str path = {target.at, question == SIZE_MAX ? target.bytes : question};
    enum route_found found = route_find(server->options.routes, server->options.route_count,
                                        request->method, path, &request->arena, &request->match);
    request->has_route = found == ROUTE_FOUND;
    if (found == ROUTE_FOUND) {
        return question == SIZE_MAX || read_query(request, str_skip(target, question + 1));
    }
    if (found == ROUTE_NO_METHOD && strcmp(request->method, "OPTIONS") == 0) {
        answer_options(request);
        return false;
    }
    fail_route(request, found, path);
    return false;
}

/* Finds out whether a web page sent the request, and lets an allowed page read the answer. */
static void judge_page(struct http_request *request) {
    struct str origin = http_request_header(request, "origin");
    struct str asked = http_request_header(request, "access-control-request-headers");
    request->page = origin_judge(&request->server->options.origins, origin,
                                 http_request_header(request, "sec-fetch-site"),
                                 http_request_header(request, "host"));
    if (request->page != ORIGIN_ALLOWED) return;
    http_request_add_header(request, "Access-Control-Allow-Origin", origin);
    http_request_add_header(request, "Access-Control-Expose-Headers", STR("*"));
    http_request_add_header(request, "Vary", STR("Origin"));
    if (strcmp(request->method, "OPTIONS") != 0) return;
    http_request_add_header(request, "Access-Control-Allow-Methods", STR("GET, POST, DELETE"));
    http_request_add_header(request, "Access-Control-Max-Age", STR("600"));
    if (asked.bytes > 0) http_request_add_header(request, "Access-Control-Allow-Headers", asked);
    if (http_request_header(request, "access-control-request-private-network").bytes > 0)
        http_request_add_header(request, "Access-Control-Allow-Private-Network", STR("true"));
}

/* True if no foreign web page sent the request; else it has been answered. */
static bool check_page(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    struct str origin = http_request_header(request, "origin");
    struct str host = http_request_header(request, "host");
    char text[400];
    if (request->match.route->scope == KEY_SCOPE_OPEN) return true;
    if (request->page == ORIGIN_FOREIGN) {
        snprintf(text, sizeof text,
                 "A web page of another site (%.*s) may not use this server; --allowed-origin "
                 "names sites that may",
                 origin.bytes > 200 ? 200 : (int)origin.bytes, origin.at ? origin.at : "");
        http_request_fail(request, 403, text, "origin_not_allowed");
        return false;
    }
    bool asks = options->keys && key_set_asks(options->keys);
    if (asks || request->page == ORIGIN_ALLOWED || origin_host_is_known(&options->origins, host))
        return true;
    snprintf(text, sizeof text,
             "Without API keys this server answers to its own names only, and '%.*s' is none: use "
             "localhost, or name it with --allowed-host",
             host.bytes > 200 ? 200 : (int)host.bytes, host.at);
    http_request_fail(request, 421, text, "host_not_allowed");
    return false;
}

/* A web page can send any text to any site, but application/json only where it is allowed to. */
static bool check_content_type(struct http_request *request) {
    struct str type = http_request_header(request, "content-type");
    struct str length = http_request_header(request, "content-length");
    bool has_body = http_request_header(request, "transfer-encoding").bytes > 0 ||
                    (length.bytes > 0 && !str_is(length, "0"));
    char text[300];
    const struct http_upload *upload = request->match.route->upload;
    if (!has_body || (upload && !upload->is_plain)) return true;
    size_t end = str_find_byte(type, ';', 0);
    struct str media = str_trim((struct str){type.at, end == SIZE_MAX ? type.bytes : end});
    if (media.bytes == 16 && strncasecmp(media.at, "application/json", 16) == 0) return true;
    const struct http_options *options = &request->server->options;
    if (request->page == ORIGIN_NO_PAGE && options->is_lenient &&
        options->is_lenient(request->target))
        return true;
    snprintf(text, sizeof text,
             "The body must be JSON, sent with 'Content-Type: application/json', not with %s%.*s",
             media.bytes ? "" : "none", media.bytes > 100 ? 100 : (int)media.bytes,
             media.at ? media.at : "");
    http_request_fail(request, 415, text, "unsupported_media_type");
    return false;
}

/* A packed body would be read as it is, and refused for a fault that it does not have. */
static bool check_content_coding(struct http_request *request) {
    struct str coding = str_trim(http_request_header(request, "content-encoding"));
    char text[300];
    if (coding.bytes == 0 ||
        (coding.bytes == strlen("identity") && strncasecmp(coding.at, "identity", 8) == 0))
        return true;
    snprintf(
        text, sizeof text,
        "The body is sent with 'Content-Encoding: %.*s'; this server takes bodies as they are, "
        "without a content coding",
        coding.bytes > 100 ? 100 : (int)coding.bytes, coding.at);
    http_request_add_header(request, "Accept-Encoding", STR("identity"));
    http_request_fail(request, 415, text, "unsupported_content_encoding");
    return false;
}

static void fail_too_large(struct http_request *request) {
    char text[120];
    snprintf(text, sizeof text, "The request body is larger than the limit of %" PRIu64 " bytes",
             request->body_bytes_max);
    http_request_fail(request, 413, text, NULL);
}

static void fail_without_memory(struct http_request *request) {
    http_request_fail(request, 503,
                      "The request bodies that are being worked on fill the memory that this "
                      "server has for them (--body-memory-bytes); try again later",
                      NULL);
}

/* True if a large body of that length may begin while `free_bytes` are left; else its owner has a
 * claim. */
static bool admit_large(const struct http_request *request, uint64_t bytes, uint64_t free_bytes) {
    struct http_server *server = request->server;
    char owner[CLAIM_OWNER_BYTES];
    http_server_owner(request, owner);
    pthread_mutex_lock(&server->lock);
    bool may = body_memory_claims_admit(&server->claims, owner, bytes * request->body_cost,
                                        free_bytes, clock_monotonic_ns() / 1000000);
    pthread_mutex_unlock(&server->lock);
    return may;
}

/* True if a body of that length would not fit next to the bodies that the server has now. Then it
 * is refused before a byte of it is kept. Small bodies wait for no claim. */
static bool is_without_memory(const struct http_request *request, uint64_t bytes) {
    uint64_t most = request->server->options.body_memory_bytes_max;
    uint64_t used = atomic_load(&request->server->body_memory);
    uint64_t free_bytes = used < most ? most - used : 0;
    if (bytes > HTTP_PLAIN_BODY_BYTES_MAX) return !admit_large(request, bytes, free_bytes);
    return bytes * request->body_cost > free_bytes;
}

static bool part_begin(void *context, const struct multipart_part *part) {
    struct http_request *request = context;
    request->match.route->upload->part(request->upload, request, part);
    return !http_request_is_answered(request);
}

static bool part_data(void *context, struct str bytes) {
    struct http_request *request = context;
    request->match.route->upload->data(request->upload, request, bytes);
    return !http_request_is_answered(request);
}

static bool part_end(void *context) {
    struct http_request *request = context;
    request->match.route->upload->part_end(request->upload, request);
    return !http_request_is_answered(request);
}

static void begin_upload(struct http_request *request) {
    struct error error = {0};
    struct multipart_events events = {request, part_begin, part_data, part_end};
    const struct http_upload *upload = request->match.route->upload;
    if (!upload->is_plain) {
        request->multipart = mem_new(1, sizeof *request->multipart);
        if (multipart_init(request->multipart, http_request_header(request, "content-type"),
                           &events, &error) != OK) {
            http_request_fail(request, 400, error.text, NULL);
            return;
        }
    }
    request->upload = upload->begin(request->server->options.context, request);
    request->upload_begun = true;
}

/* The largest body that the route takes; one that the memory of all bodies could never hold is
 * refused for good. */
static uint64_t most_body_bytes(const struct http_request *request, bool is_large) {
    const struct http_options *options = &request->server->options;
    uint64_t most = options->body_memory_bytes_max / request->body_cost;
    if (most > options->body_bytes_max) most = options->body_bytes_max;
    return is_large || most < HTTP_PLAIN_BODY_BYTES_MAX ? most : HTTP_PLAIN_BODY_BYTES_MAX;
}

/* Fills in the members that the headers determine. May answer. */
static void begin_request(struct http_request *request, struct MHD_Connection *mhd,
                          const char *method) {
    const struct http_options *options = &request->server->options;
    request->mhd = mhd;
    request->stage = REQUEST_BODY;
    request->method = arena_copy(&request->arena, str_from(method)).at;
    request->body_bytes_max = options->body_bytes_max;
    buf_init(&request->body, (size_t)options->body_bytes_max);
    buf_init(&request->stream, (size_t)options->stream_bytes_max);
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, keep_header, request);
    take_client_id(request);
    judge_page(request);
    if (!find_route(request) || !check_page(request) || !http_caller_find(request) ||
        !check_content_coding(request) || !check_content_type(request))
        return;
    bool is_large = request->match.route->kind == HTTP_LARGE_BODY;
    request->body_cost = is_large ? HTTP_LARGE_BODY_COST : HTTP_PLAIN_BODY_COST;
    const struct http_upload *upload = request->match.route->upload;
    request->body_bytes_max = !upload             ? most_body_bytes(request, is_large)
                              : upload->bytes_max ? upload->bytes_max
                                                  : options->upload_bytes_max;
    uint64_t bytes = 0;
    str_to_u64(http_request_header(request, "content-length"), &bytes);
    if (bytes > request->body_bytes_max)
        fail_too_large(request);
    else if (upload)
        begin_upload(request);
    else if (is_without_memory(request, bytes))
        fail_without_memory(request);
}

/* --- its body --- */

/* Its body passed the memory of all bodies: its owner is next. */
static void claim_memory(const struct http_request *request) {
    uint64_t bytes = 0; /* what has come so far of a chunked body */
    str_to_u64(http_request_header(request, "content-length"), &bytes);
    if (bytes < request->body_kept) bytes = request->body_kept;
    if (bytes > HTTP_PLAIN_BODY_BYTES_MAX) (void)admit_large(request, bytes, 0);
}

/* Keeps a piece of the body. The request whose body passes the memory of all bodies is refused, so
 * that many large bodies cannot fill the machine; what it has sent is given back at once. */
static void keep_body(struct http_request *request, struct str bytes) {
    struct http_server *server = request->server;
    uint64_t cost = bytes.bytes * request->body_cost;
    request->body_kept += bytes.bytes;
    atomic_fetch_add(&server->body_bytes, bytes.bytes);
    uint64_t before = atomic_fetch_add(&server->body_memory, cost);
    if (before + cost <= server->options.body_memory_bytes_max) {
        buf_add_str(&request->body, bytes);
        return;
    }
    claim_memory(request);
    buf_release(&request->body);
    atomic_fetch_sub(&server->body_bytes, request->body_kept);
    atomic_fetch_sub(&server->body_memory, request->body_kept * request->body_cost);
    request->body_kept = 0;
    fail_without_memory(request);
}

static void take_body(struct http_request *request, struct str bytes) {
    struct error error = {0};
    request->body_seen += bytes.bytes;
    if (request->stage == REQUEST_DISCARD) return;
    if (request->body_seen > request->body_bytes_max) {
        fail_too_large(request);
    } else if (!request->upload_begun) {
        keep_body(request, bytes);
    } else if (!request->multipart) {
        request->match.route->upload->data(request->upload, request, bytes);
    } else {
        enum err err = multipart_feed(request->multipart, bytes, &error);
        if (err != OK && err != ERR_CANCELLED) http_request_fail(request, 400, error.text, NULL);
    }
}

/* True if the rest of the body is small and sure to come: reading it keeps the connection. */
static bool is_cheap_to_discard(const struct http_request *request) {
    uint64_t bytes = 0;
    if (http_request_header(request, "transfer-encoding").bytes > 0 ||
        http_request_header(request, "expect").bytes > 0)
        return false;
    str_to_u64(http_request_header(request, "content-length"), &bytes);
    return bytes <= DISCARD_BYTES_MAX && request->body_seen == 0;
}

/* Sends an answer that a step gave before the body was complete, if one did. libmicrohttpd can
 * answer only at the end of a body; an answer that cannot wait goes through the gate, which ends
 * the connection. */
static enum MHD_Result settle_early_answer(struct http_request *request) {
    if (request->stage == REQUEST_DISCARD || !http_request_is_answered(request)) return MHD_YES;
    if (is_cheap_to_discard(request)) {
        request->stage = REQUEST_DISCARD;
        return MHD_YES;
    }
    struct buf message;
    buf_init(&message, 65536);
    http_answer_write_message(request, &message);
    gate_refuse(request->connection, buf_str(&message));
    buf_release(&message);
    return MHD_NO;
}

/* Hands a request with a complete body to a worker thread; the connection sleeps. */
static void dispatch(struct http_request *request) {
    request->stage = REQUEST_WHOLE;
    http_request_hold(request);
    pthread_mutex_lock(&request->lock);
    request->dispatched = true;
    request->suspended = true;
    MHD_suspend_connection(request->mhd);
    pthread_mutex_unlock(&request->lock);
    struct http_server *server = request->server;
    struct fair_queue *queue = server->work;
    if (request->match.route->kind == HTTP_QUICK) queue = server->quick;
    if (request->body.bytes > HTTP_PLAIN_BODY_BYTES_MAX) {
        char owner[CLAIM_OWNER_BYTES];
        http_server_owner(request, owner);
        pthread_mutex_lock(&server->lock);
        body_memory_claims_end(&server->claims, owner);
        pthread_mutex_unlock(&server->lock);
        queue = server->large;
    }
    http_server_put(queue, request);
}

enum MHD_Result http_intake(void *context, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *bytes,
                            size_t *byte_count, void **request_context) {
    struct http_request *request = *request_context;
    (void)context, (void)url, (void)version;
    if (!request) return MHD_NO;
    if (request->stage == REQUEST_NEW) {
        begin_request(request, mhd, method);
        return settle_early_answer(request);
    }
    if (*byte_count > 0) {
        take_body(request, (struct str){bytes, *byte_count});
        *byte_count = 0;
        return settle_early_answer(request);
    }
    if (request->stage == REQUEST_BODY) {
        struct error error = {0};
        if (request->multipart && multipart_end(request->multipart, &error) != OK)
            http_request_fail(request, 400, error.text, NULL);
        else
            dispatch(request);
    }
    return http_request_is_answered(request) ? http_answer_queue(request) : MHD_YES;
}
