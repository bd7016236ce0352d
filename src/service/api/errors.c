/* SPDX-License-Identifier: Apache-2.0 */
#include "api/errors.h"

#include "base/log.h"
#include "json/json.h"
#include "json/span.h"

#include <stdio.h>
#include <string.h>

#define RETRY_AFTER_S "2"
#define NOTE_BYTES_MAX ((size_t)16 << 10) /* most of an error object that is read for the log */
#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._[]-"

/* Keeps a text that can be the name of a code or parameter. */
static void keep_name(char *ret_name, size_t bytes_max, const json_t *value) {
    const char *text = json_string_value(value);
    size_t bytes = text ? strlen(text) : 0;
    if (bytes == 0 || bytes >= bytes_max || text[strspn(text, NAME_BYTES)]) return;
    memcpy(ret_name, text, bytes + 1);
}

static void pass(struct http_request *request, int status, struct str body, bool is_final) {
    struct http_header headers[1];
    size_t count = 0;
    if (is_final) headers[count++] = (struct http_header){"x-should-retry", "false"};
    if (status == 429 || status == 503)
        headers[count++] = (struct http_header){"retry-after", RETRY_AFTER_S};
    http_answer(request,
                &(struct http_answer){
                    .status = status, .body = body, .headers = headers, .header_count = count});
}

void api_pass(struct http_request *request, int status, struct str body) {
    /* Clients repeat a 409 by themselves, which cannot help (contract: retries by clients). */
    pass(request, status, body, status == 409);
}

/* Notes the error of a worker's answer for the log. True if clients, which repeat a 5xx by
 * themselves, should not: the same request may get an answer of another form again, and costs the
 * same again. */
static bool note_worker(struct http_request *request, struct str body) {
    struct http_note note = {.is_foreign = true};
    struct error error;
    struct str whole;
    json_t *told = NULL;
    if (!json_span_read(body, &whole)) return false;
    struct str member = json_span_get(whole, "error");
    if (!member.at || member.bytes > NOTE_BYTES_MAX || json_read(&told, member, &error) != OK)
        return false;
    keep_name(note.code, sizeof note.code, json_object_get(told, "code"));
    keep_name(note.param, sizeof note.param, json_object_get(told, "param"));
    const char *sentence = json_string_value(json_object_get(told, "message"));
    snprintf(note.sentence, sizeof note.sentence, "%s", sentence ? sentence : "");
    http_request_note(request, &note);
    json_decref(told);
    return strcmp(note.code, "schema_mismatch") == 0;
}

void api_pass_worker(struct http_request *request, int status, struct str body) {
    bool is_final = status >= 400 && note_worker(request, body);
    pass(request, status, body, is_final || status == 409);
}

void api_refuse(struct http_request *request, const struct refusal *refusal) {
    struct buf body;
    struct http_note note = {.is_foreign = false};
    snprintf(note.code, sizeof note.code, "%s", refusal->code ? refusal->code : "");
    snprintf(note.param, sizeof note.param, "%s", refusal->param);
    snprintf(note.sentence, sizeof note.sentence, "%.255s", refusal->message);
    http_request_note(request, &note);
    buf_init(&body, 65536);
    refusal_write(&body, refusal);
    api_pass(request, refusal->status, buf_str(&body));
    buf_release(&body);
}

void api_fail(struct http_request *request, int status, const char *code, const char *param,
              const char *format, ...) {
    struct refusal refusal;
    va_list args;
    va_start(args, format);
    refuse_args(&refusal, status, code, param, format, args);
    va_end(args);
    api_refuse(request, &refusal);
}

void api_fail_param(struct http_request *request, const char *code, const char *param,
                    const char *format, ...) {
    struct refusal refusal;
    va_list args;
    va_start(args, format);
    refuse_args(&refusal, 400, code, param, format, args);
    va_end(args);
    api_refuse(request, &refusal);
}

static int status_of(enum err err) {
    switch (err) {
    case OK: break;
    case ERR_INVALID: return 400;
    case ERR_NOT_FOUND: return 404;
    case ERR_CONFLICT: return 409;
    case ERR_LIMIT: return 429;
    case ERR_CANCELLED: return 499;
    case ERR_UNAVAILABLE:
    case ERR_EXHAUSTED: return 503;
    case ERR_DENIED: return 403;
    case ERR_IO:
    case ERR_CORRUPT: return 500;
    }
    return 500;
}

/* Notes a reason for the log that the client is not told. */
static void note_reason(struct http_request *request, enum err err, const char *sentence) {
    struct http_note note = {.is_foreign = false};
    snprintf(note.code, sizeof note.code, "%s", err_name(err));
    snprintf(note.sentence, sizeof note.sentence, "%s", sentence);
    http_request_note(request, &note);
}

void api_fail_err(struct http_request *request, enum err err, const struct error *error,
                  const char *param) {
    int status = status_of(err);
    if (status < 500 && error->is_system) status = 500; /* a file that is missing is no 404 */
    if (status < 500) {
        api_fail(request, status, err == ERR_LIMIT ? "rate_limit_exceeded" : NULL, param, "%s",
                 error->text);
        return;
    }
    if (status == 503) /* may come in floods; the access log has a rate */
        note_reason(request, err, error->text);
    else
        log_error("request_id=%s operation=%s err=%s error=\"%s\"", http_request_id(request),
                  http_request_route(request)->operation, err_name(err), error->text);
    api_fail(request, status, NULL, NULL, "%s",
             status == 503 ? "The server cannot take this now; try again later"
                           : "The server failed; its log has the reason under this request's id");
}
