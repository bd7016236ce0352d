/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/dialect.h"

#include "base/mem.h"
#include "dialects/messages.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <time.h>

#define NS_PER_S 1000000000

struct dialect_call *dialect_read(const struct dialect *dialect, struct str object,
                                  struct refusal *ret_refusal) {
    struct dialect_call *call = mem_new(1, sizeof *call);
    call->dialect = dialect;
    call->tier = TIER_DEFAULT;
    buf_init(&call->body, BUF_UNLIMITED);
    buf_init(&call->model, BUF_UNLIMITED);
    chat_reply_init(&call->reply);
    if (dialect->read(call, object, ret_refusal)) return call;
    dialect_call_free(call);
    return NULL;
}

void dialect_call_free(struct dialect_call *call) {
    if (!call) return;
    if (call->dialect->release) call->dialect->release(call);
    buf_release(&call->body);
    buf_release(&call->model);
    chat_reply_release(&call->reply);
    free(call);
}

enum dialect_errors dialect_errors_of(struct str target) {
    bool is_nearly_openai = str_starts_with(target, STR("/api/v1/"));   /* a base URL too many */
    if (str_starts_with(target, STR("/v1/api/"))) return ERRORS_OLLAMA; /* likewise */
    if (str_starts_with(target, STR("/v1/v1/messages")) ||
        str_starts_with(target, STR("/api/v1/messages")))
        return ERRORS_ANTHROPIC;
    if (str_starts_with(target, STR("/api/")) && !is_nearly_openai) return ERRORS_OLLAMA;
    return str_starts_with(target, STR("/v1/messages")) ? ERRORS_ANTHROPIC : ERRORS_OPENAI;
}

struct str dialect_error_message(struct str error) {
    struct str whole, inside = {NULL, 0}, message = {NULL, 0};
    if (json_span_read(error, &whole) && json_span_is_object(whole))
        inside = json_span_get(whole, "error");
    if (inside.at && json_span_is_object(inside)) message = json_span_get(inside, "message");
    return message.at && json_span_is_string(message) ? message : (struct str){NULL, 0};
}

void dialect_write_error(enum dialect_errors form, int32_t status, struct str error,
                         struct buf *body) {
    struct str message = {NULL, 0};
    if (form != ERRORS_OPENAI) message = dialect_error_message(error);
    if (!message.at) {
        buf_add_str(body, error);
        return;
    }
    if (form == ERRORS_ANTHROPIC) {
        messages_add_error(status, message, body);
        return;
    }
    buf_add_text(body, "{\"error\":");
    buf_add_str(body, message);
    buf_add_byte(body, '}');
}

void dialect_own_error(const struct dialect_call *call, struct str error, struct buf *body) {
    own_words_write(call->dialect->words, error, body);
}

void dialect_add_member(struct buf *body, const char *name, struct str value) {
    buf_printf(body, ",\"%s\":", name);
    buf_add_str(body, value);
}

void dialect_add_time(struct buf *body, int64_t unix_ns) {
    struct tm parts;
    char text[32];
    time_t seconds = (time_t)(unix_ns / NS_PER_S);
    gmtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    buf_printf(body, "\"%s.%06dZ\"", text, (int)(unix_ns % NS_PER_S / 1000));
}
