/* SPDX-License-Identifier: Apache-2.0 */
#include "base/no_memory.h"
#include "http/file_body.h"
#include "http/server.h"

#include "base/os.h"
#include "json/envelope.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void http_request_add_header(struct http_request *request, const char *name, struct str value) {
    assert(request->answer_header_count < ANSWER_HEADERS_MAX);
    struct str name_copy = arena_copy(&request->arena, str_from(name));
    struct str value_copy = arena_copy(&request->arena, value);
    if (!name_copy.at || !value_copy.at) return; /* the arena is full of the request itself */
    request->answer_headers[request->answer_header_count++] =
        (struct http_header){name_copy.at, value_copy.at};
}

static void add_header(struct http_request *request, const char *name, const char *value) {
    http_request_add_header(request, name, str_from(value));
}

/* Hands the request with its complete answer to the connection thread. The lock keeps that thread
 * from ending the request between the look at `suspended` and the resume. */
static void hand_over(struct http_request *request, bool handler_done) {
    if (handler_done) http_server_forget_body(request->server, request);
    pthread_mutex_lock(&request->lock);
    assert(!request->answered);
    request->answered = true;
    if (handler_done) request->handler_done = true;
    bool dispatched = request->dispatched;
    if (request->suspended) {
        request->suspended = false;
        MHD_resume_connection(request->mhd);
    }
    pthread_mutex_unlock(&request->lock);
    if (dispatched && handler_done) http_request_drop(request);
}

static void add_answer_headers(struct http_request *request, const struct http_answer *answer) {
    add_header(request, "Content-Type",
               answer->content_type ? answer->content_type : "application/json");
    for (size_t i = 0; i < answer->header_count; i++)
        add_header(request, answer->headers[i].name, answer->headers[i].value);
}

static void answer_bytes(struct http_request *request, const struct http_answer *answer) {
    struct str body = answer->body;
    bool is_small = body.bytes <= HTTP_SMALL_ANSWER_BYTES;
    if (!answer->is_static && !http_server_keep_answer(request->server, body.bytes, is_small)) {
        http_request_fail(request, 503,
                          "The answers that wait for their clients fill the memory that this "
                          "server has for them (--answer-memory-bytes); try again later",
                          NULL);
        return;
    }
    request->kind = ANSWER_BYTES;
    request->status = answer->status;
    add_answer_headers(request, answer);
    request->static_body = answer->is_static ? body : (struct str){NULL, 0};
    if (!answer->is_static) request->answer_kept = body.bytes;
    if (!answer->is_static) buf_add_str(&request->answer_body, body);
    hand_over(request, true);
}

void http_answer(struct http_request *request, const struct http_answer *answer) {
    if (answer->status < 400 && http_request_is_held(request)) return;
    const struct http_options *options = &request->server->options;
    struct http_answer formed = *answer;
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    if (answer->status >= 400 && !answer->content_type && options->error_form &&
        options->error_form(request->target, answer->status, answer->body, &body)) {
        formed.body = buf_str(&body);
        formed.is_static = false;
    }
    answer_bytes(request, &formed);
    buf_release(&body);
}

void http_answer_json(struct http_request *request, struct buf *body) {
    if (http_request_is_held(request)) {
        buf_release(body);
        return;
    }
    bool is_small = body->bytes <= HTTP_SMALL_ANSWER_BYTES;
    if (is_small || !http_server_keep_answer(request->server, body->capacity, false)) {
        /* A small answer is copied, so that it waits without the room that its writer had. */
        http_answer(request, &(struct http_answer){.status = 200, .body = buf_str(body)});
        buf_release(body);
        return;
    }
    request->kind = ANSWER_BYTES;
    request->status = 200;
    add_header(request, "Content-Type", "application/json");
    request->answer_kept = body->capacity;
    request->answer_body = *body;
    buf_init(body, 0);
    hand_over(request, true);
}

/* Brings the server's sum up to date with the memory of the bytes that wait. The caller holds the
 * request's lock, or no other thread has the answer yet. */
static void recount(struct http_request *request) {
    atomic_fetch_add(&request->server->answer_memory,
                     (uint64_t)request->stream.capacity - request->stream_kept);
    request->stream_kept = request->stream.capacity;
}

void http_answer_source(struct http_request *request, const struct http_answer *answer,
                        struct buf *first, const struct http_source *source) {
    assert(first->bytes <= source->bytes);
    if (http_request_is_held(request)) {
        buf_release(first);
        source->release(source->context);
        return;
    }
    request->kind = ANSWER_SOURCE;
    request->status = answer->status;
    request->source = *source;
    request->source_left =
        source->bytes == HTTP_SIZE_UNKNOWN ? HTTP_SIZE_UNKNOWN : source->bytes - first->bytes;
    request->stream = *first;
    buf_init(first, 0);
    recount(request);
    add_answer_headers(request, answer);
    hand_over(request, true);
}

void http_request_note(struct http_request *request, const struct http_note *note) {
    if (request->note) return;
    request->note = arena_alloc(&request->arena, sizeof *note);
    if (request->note) *request->note = *note; /* else the arena is full of the request itself */
}

static void note_refusal(struct http_request *request, const char *code, const char *message) {
    struct http_note note = {.is_foreign = false};
    snprintf(note.code, sizeof note.code, "%s", code ? code : "");
    snprintf(note.sentence, sizeof note.sentence, "%s", message);
    http_request_note(request, &note);
}

void http_request_fail(struct http_request *request, int status, const char *message,
                       const char *code) {
    struct buf body;
    note_refusal(request, code, message);
    buf_init(&body, 8192);
    envelope_write(&body, status, code, NULL, str_from(message));
    struct http_header headers[2];
    size_t count = 0;
    if (status == 401) headers[count++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    if (status == 503) headers[count++] = (struct http_header){"retry-after", "1"};
    if (status == 405) headers[count++] = (struct http_header){"Allow", request->match.allow};
    http_answer(request, &(struct http_answer){.status = status,
                                               .body = buf_str(&body),
                                               .headers = headers,
                                               .header_count = count});
    buf_release(&body);
}

void http_request_fail_later(struct http_request *request, const char *message,
                             uint32_t retry_after_s) {
    struct buf body;
    char seconds[16];
    note_refusal(request, "rate_limit_exceeded", message);
    buf_init(&body, 8192);
    envelope_write(&body, 429, "rate_limit_exceeded", NULL, str_from(message));
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    struct http_header header = {"retry-after", seconds};
    http_answer(request,
                &(struct http_answer){
                    .status = 429, .body = buf_str(&body), .headers = &header, .header_count = 1});
    buf_release(&body);
}

void http_answer_file(struct http_request *request, const struct http_file *file) {
    char text[80];
    if (http_request_is_held(request)) {
        os_close(file->fd);
        return;
    }
    enum range_answer answer =
        range_read(http_request_header(request, "range"), http_request_header(request, "if-range"),
                   http_request_header(request, "if-none-match"), str_from(file->etag), file->bytes,
                   &request->file_range);
    add_header(request, "ETag", file->etag);
    add_header(request, "Accept-Ranges", "bytes");
    if (answer == RANGE_WHOLE || answer == RANGE_PART) {
        request->kind = ANSWER_FILE;
        request->status = answer == RANGE_PART ? 206 : 200;
        request->file_fd = file->fd;
        request->file_damaged = file->damaged;
        request->file_context = file->context;
        if (answer == RANGE_WHOLE && file->sha256_hex)
            snprintf(request->file_sum, sizeof request->file_sum, "%s", file->sha256_hex);
        add_header(request, "Content-Type", file->content_type);
        if (file->disposition) add_header(request, "Content-Disposition", file->disposition);
    } else {
        request->kind = ANSWER_BYTES;
        request->status = answer == RANGE_NOT_MODIFIED ? 304 : 416;
        os_close(file->fd);
    }
    if (answer == RANGE_PART) {
        snprintf(text, sizeof text, "bytes %llu-%llu/%llu",
                 (unsigned long long)request->file_range.offset,
                 (unsigned long long)(request->file_range.offset + request->file_range.bytes - 1),
                 (unsigned long long)file->bytes);
        add_header(request, "Content-Range", text);
    } else if (answer == RANGE_UNSATISFIABLE) {
        snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)file->bytes);
        add_header(request, "Content-Range", text);
        add_header(request, "Content-Type", "application/json");
        envelope_write(&request->answer_body, 416, NULL, NULL,
                       STR("The Range asked for starts after the end of the file"));
    }
    hand_over(request, true);
}

/* --- streams --- */

void http_stream_begin(struct http_request *request) {
    http_stream_begin_as(request, "text/event-stream; charset=utf-8");
}

void http_stream_begin_as(struct http_request *request, const char *content_type) {
    request->is_event_stream = str_starts_with(str_from(content_type), STR("text/event-stream"));
    request->is_line_stream = strcmp(content_type, "application/x-ndjson") == 0;
    request->kind = ANSWER_STREAM;
    request->status = 200;
    add_header(request, "Content-Type", content_type);
    add_header(request, "Cache-Control", "no-cache, no-store");
    add_header(request, "X-Accel-Buffering", "no");
    hand_over(request, false);
}

static void wake_reader(struct http_request *request) {
    if (!request->suspended || request->over) return;
    request->suspended = false;
    MHD_resume_connection(request->mhd);
}

/* True if so many bytes more may wait for the reader of a stream. */
static bool has_room(struct http_request *request, size_t bytes) {
    struct http_server *server = request->server;
    size_t waiting = request->stream.bytes;
    if (bytes > server->options.stream_bytes_max - waiting) return false;
    return waiting + bytes <= HTTP_SMALL_ANSWER_BYTES ||
           atomic_load(&server->answer_memory) + bytes <= server->options.answer_memory_bytes_max;
}

/* Ends a stream whose client reads too slowly, with a last event that says so. */
static void break_slow_stream(struct http_request *request) {
    const struct http_options *options = &request->server->options;
    struct buf error, formed;
    request->stream_broken = true;
    if (!request->is_event_stream && !request->is_line_stream) return;
    buf_init(&error, 4096);
    buf_init(&formed, 4096);
    envelope_write(&error, 503, "slow_client", NULL,
                   STR("The stream ends here because its client reads too slowly: too many bytes "
                       "were waiting for it"));
    request->stream.bytes_max = BUF_UNLIMITED; /* for this event, the last one */
    bool has_form =
        options->error_form && options->error_form(request->target, 503, buf_str(&error), &formed);
    buf_printf(&request->stream, request->is_line_stream ? "%.*s\n" : "data: %.*s\n\n",
               STR_ARGS(buf_str(has_form ? &formed : &error)));
    buf_release(&error);
    buf_release(&formed);
}

bool http_stream_put(struct http_request *request, struct str bytes) {
    bool gone = gate_is_gone(request->connection);
    pthread_mutex_lock(&request->lock);
    if (gone || request->over) request->stream_broken = true;
    if (!request->stream_broken) {
        if (has_room(request, bytes.bytes))
            buf_add_str(&request->stream, bytes);
        else
            break_slow_stream(request);
        recount(request);
        wake_reader(request);
    }
    bool good = !request->stream_broken;
    pthread_mutex_unlock(&request->lock);
    return good;
}

void http_request_tell_quiet(struct http_request *request) {
    void (*quiet)(void *context) = NULL;
    pthread_mutex_lock(&request->lock);
    if (!request->answered) {
        quiet = request->quiet;
    } else if (request->is_event_stream && !request->stream_ended && !request->stream_broken &&
               !request->over && request->stream.bytes == 0) {
        /* Events are put whole, so that this line never splits one. */
        buf_add_text(&request->stream, ": ping\n\n");
        wake_reader(request);
    }
    pthread_mutex_unlock(&request->lock);
    if (quiet) quiet(request->gone_context);
}

void http_stream_on_empty(struct http_request *request, void (*empty)(void *context),
                          void *context) {
    request->empty = empty;
    request->empty_context = context;
}

size_t http_stream_waiting(struct http_request *request) {
    pthread_mutex_lock(&request->lock);
    size_t bytes = request->stream.bytes;
    pthread_mutex_unlock(&request->lock);
    return bytes;
}

static void end_stream(struct http_request *request, bool is_broken) {
    http_server_forget_body(request->server, request);
    pthread_mutex_lock(&request->lock);
    if (is_broken) request->stream_broken = true;
    request->stream_ended = request->handler_done = true;
    wake_reader(request);
    pthread_mutex_unlock(&request->lock);
    http_request_drop(request);
}

void http_stream_end(struct http_request *request) {
    end_stream(request, false);
}

void http_stream_abort(struct http_request *request) {
    end_stream(request, true);
}

/* Moves waiting bytes to libmicrohttpd, at most a piece: it keeps them until they are sent. */
static ssize_t take_waiting(struct http_request *request, char *bytes, size_t bytes_max) {
    size_t count = request->stream.bytes < bytes_max ? request->stream.bytes : bytes_max;
    if (count > HTTP_PIECE_BYTES) count = HTTP_PIECE_BYTES;
    if (count == 0) return 0;
    memcpy(bytes, request->stream.at, count);
    buf_consume(&request->stream, count);
    request->taken += count;
    if (request->stream.bytes == 0) buf_release(&request->stream);
    recount(request);
    return (ssize_t)count;
}

/* Called by libmicrohttpd on the connection thread for the next bytes of a source's body. */
static ssize_t read_source(void *context, uint64_t position, char *bytes, size_t bytes_max) {
    struct http_request *request = context;
    struct http_server *server = request->server;
    (void)position;
    pthread_mutex_lock(&request->lock);
    ssize_t count = take_waiting(request, bytes, bytes_max);
    bool asks = count == 0 && !request->stream_broken && !request->stream_ended &&
                request->source_left > 0 && http_server_begin_piece(server);
    if (count == 0 && !asks)
        count = request->stream_ended ? MHD_CONTENT_READER_END_OF_STREAM
                                      : MHD_CONTENT_READER_END_WITH_ERROR;
    if (asks) {
        request->wants_piece = request->suspended = true;
        MHD_suspend_connection(request->mhd);
        http_request_hold(request);
    }
    pthread_mutex_unlock(&request->lock);
    if (!asks) return count;
    http_server_put(server->work, request);
    return 0;
}

bool http_answer_refill(struct http_request *request) {
    struct http_server *server = request->server;
    pthread_mutex_lock(&request->lock);
    bool wants = request->wants_piece;
    uint64_t left = request->source_left;
    request->wants_piece = false;
    pthread_mutex_unlock(&request->lock);
    if (!wants) return false;
    struct buf piece;
    buf_init(&piece, HTTP_PIECE_BYTES);
    size_t room = left < HTTP_PIECE_BYTES ? (size_t)left : HTTP_PIECE_BYTES;
    buf_reserve(&piece, room); /* not more by doubling */
    bool good = !gate_is_gone(request->connection) &&
                request->source.read(request->source.context, room, &piece) && piece.bytes <= room;
    bool is_end = good && piece.bytes == 0 && left == HTTP_SIZE_UNKNOWN;
    pthread_mutex_lock(&request->lock);
    if (is_end) {
        request->stream_ended = true;
        buf_release(&piece);
    } else if (good && piece.bytes > 0) {
        if (left != HTTP_SIZE_UNKNOWN) request->source_left -= piece.bytes;
        request->stream = piece; /* it was empty and had no memory */
        recount(request);
    } else {
        request->stream_broken = true;
        buf_release(&piece);
    }
    wake_reader(request);
    pthread_mutex_unlock(&request->lock);
    http_server_end_piece(server);
    http_request_drop(request);
    return true;
}

/* Called by libmicrohttpd on the connection thread for the next bytes of a stream. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t bytes_max) {
    struct http_request *request = context;
    (void)position;
    pthread_mutex_lock(&request->lock);
    ssize_t count = take_waiting(request, bytes, bytes_max);
    bool sleeps = count == 0 && !request->stream_broken && !request->stream_ended;
    if (sleeps) {
        request->suspended = true;
        MHD_suspend_connection(request->mhd);
    } else if (count == 0) {
        count = request->stream_broken ? MHD_CONTENT_READER_END_WITH_ERROR
                                       : MHD_CONTENT_READER_END_OF_STREAM;
    }
    pthread_mutex_unlock(&request->lock);
    if (sleeps && request->empty) request->empty(request->empty_context);
    return count;
}

static void stream_response_released(void *context) {
    http_request_drop(context);
}

/* --- on the connection thread --- */

static struct MHD_Response *make_response(struct http_request *request) {
    switch (request->kind) {
    case ANSWER_BYTES:
        /* The bytes live as long as the request, which outlives the sending. */
        if (request->static_body.at)
            return MHD_create_response_from_buffer(request->static_body.bytes,
                                                   (void *)(uintptr_t)request->static_body.at,
                                                   MHD_RESPMEM_PERSISTENT);
        return MHD_create_response_from_buffer(request->answer_body.bytes, request->answer_body.at,
                                               MHD_RESPMEM_PERSISTENT);
    case ANSWER_FILE: return file_body_response(request);
    case ANSWER_SOURCE:
        http_request_hold(request);
        return MHD_create_response_from_callback(request->source.bytes, HTTP_PIECE_BYTES,
                                                 read_source, request, stream_response_released);
    case ANSWER_STREAM: break;
    }
    http_request_hold(request);
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, HTTP_PIECE_BYTES, read_stream,
                                             request, stream_response_released);
}

/* Answers are of one caller and of this moment, and are what their type says. */
static const struct http_header usual_headers[] = {{"Cache-Control", "no-store"},
                                                   {"X-Content-Type-Options", "nosniff"}};
#define USUAL_HEADERS (sizeof usual_headers / sizeof *usual_headers)

static bool has_header(const struct http_request *request, const char *name) {
    for (size_t i = 0; i < request->answer_header_count; i++)
        if (strcasecmp(request->answer_headers[i].name, name) == 0) return true;
    return false;
}

enum MHD_Result http_answer_queue(struct http_request *request) {
    struct MHD_Response *response = make_response(request);
    if (!response) no_memory();
    MHD_add_response_header(response, "x-request-id", request->id);
    for (size_t i = 0; i < USUAL_HEADERS; i++)
        if (!has_header(request, usual_headers[i].name))
            MHD_add_response_header(response, usual_headers[i].name, usual_headers[i].value);
    for (size_t i = 0; i < request->answer_header_count; i++)
        MHD_add_response_header(response, request->answer_headers[i].name,
                                request->answer_headers[i].value);
    enum MHD_Result queued = MHD_queue_response(request->mhd, (unsigned)request->status, response);
    MHD_destroy_response(response); /* the connection has its own hold now */
    return queued;
}

void http_answer_write_message(struct http_request *request, struct buf *buf) {
    assert(request->kind == ANSWER_BYTES);
    buf_printf(buf, "HTTP/1.1 %d %s\r\nx-request-id: %s\r\nContent-Length: %zu\r\n",
               request->status, MHD_get_reason_phrase_for((unsigned)request->status), request->id,
               request->answer_body.bytes);
    for (size_t i = 0; i < USUAL_HEADERS; i++)
        if (!has_header(request, usual_headers[i].name))
            buf_printf(buf, "%s: %s\r\n", usual_headers[i].name, usual_headers[i].value);
    for (size_t i = 0; i < request->answer_header_count; i++)
        buf_printf(buf, "%s: %s\r\n", request->answer_headers[i].name,
                   request->answer_headers[i].value);
    buf_add_text(buf, "Connection: close\r\n\r\n");
    buf_add_str(buf, buf_str(&request->answer_body));
}
