/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/chat_reply.h"

#include "base/mem.h"
#include "dialects/members.h"

#include <stdlib.h>

void chat_reply_init(struct chat_reply *reply) {
    *reply = (struct chat_reply){.end = CHAT_REPLY_OPEN};
    buf_init(&reply->id, BUF_UNLIMITED);
    buf_init(&reply->text, BUF_UNLIMITED);
    buf_init(&reply->thought, BUF_UNLIMITED);
    buf_init(&reply->logprobs, BUF_UNLIMITED);
    buf_init(&reply->stop, BUF_UNLIMITED);
}

void chat_reply_release(struct chat_reply *reply) {
    for (size_t i = 0; i < reply->call_count; i++) {
        buf_release(&reply->calls[i].id);
        buf_release(&reply->calls[i].name);
        buf_release(&reply->calls[i].arguments);
    }
    free(reply->calls);
    buf_release(&reply->id);
    buf_release(&reply->text);
    buf_release(&reply->thought);
    buf_release(&reply->logprobs);
    buf_release(&reply->stop);
}

/* Appends the inside of a raw string. */
static void add_inside(struct buf *to, struct str string) {
    if (json_span_is_string(string)) buf_add(to, string.at + 1, string.bytes - 2);
}

/* The call of that index; a new one if it is the next. NULL if it is neither. */
static struct chat_reply_call *call_at(struct chat_reply *reply, size_t index) {
    if (index < reply->call_count) return &reply->calls[index];
    if (index > reply->call_count || index >= CHAT_REPLY_CALLS_MAX) return NULL;
    if (reply->call_count == reply->call_room) {
        reply->call_room = reply->call_room ? reply->call_room * 2 : 4;
        reply->calls = mem_resize(reply->calls, reply->call_room, sizeof *reply->calls);
    }
    struct chat_reply_call *call = &reply->calls[reply->call_count++];
    buf_init(&call->id, BUF_UNLIMITED);
    buf_init(&call->name, BUF_UNLIMITED);
    buf_init(&call->arguments, BUF_UNLIMITED);
    return call;
}

/* Adds a whole call, or a part of one. `place` counts where the part has no index: in a body. */
static void take_call(struct chat_reply *reply, struct str part, size_t place) {
    struct refusal twice;
    struct str index_text, id, function, name = {NULL, 0}, arguments = {NULL, 0};
    const struct member places[] = {{"index", &index_text}, {"id", &id}, {"function", &function}};
    if (!json_span_is_object(part)) return;
    (void)members_read(part, places, 3, &twice);
    uint64_t index = place;
    if (index_text.at && !str_to_u64(index_text, &index)) return;
    struct chat_reply_call *call = call_at(reply, (size_t)index);
    if (!call) return;
    if (json_span_is_object(function)) {
        const struct member inside[] = {{"name", &name}, {"arguments", &arguments}};
        (void)members_read(function, inside, 2, &twice);
    }
    if (call->id.bytes == 0) add_inside(&call->id, id);
    if (call->name.bytes == 0) add_inside(&call->name, name);
    add_inside(&call->arguments, arguments);
}

static enum chat_reply_end end_of(struct str reason) {
    if (json_span_string_is(reason, "length")) return CHAT_REPLY_LENGTH;
    if (json_span_string_is(reason, "tool_calls")) return CHAT_REPLY_CALLS;
    if (json_span_string_is(reason, "function_call")) return CHAT_REPLY_CALLS;
    if (json_span_string_is(reason, "content_filter")) return CHAT_REPLY_FILTERED;
    return CHAT_REPLY_STOP;
}

static void take_usage(struct chat_reply *reply, struct str usage) {
    reply->input_tokens = piece_count(usage, NULL, "prompt_tokens");
    reply->output_tokens = piece_count(usage, NULL, "completion_tokens");
    reply->cached_tokens = piece_count(usage, "prompt_tokens_details", "cached_tokens");
}

void chat_reply_take(struct chat_reply *reply, const struct piece *piece) {
    struct json_span_iter iter;
    struct str element;
    size_t place = 0;
    if (reply->id.bytes == 0) add_inside(&reply->id, piece->id);
    if (reply->created_unix_s == 0 && piece->created.at)
        (void)str_to_i64(piece->created, &reply->created_unix_s);
    add_inside(&reply->text, piece->content);
    add_inside(&reply->thought, piece->thought);
    if (piece->refusal.at) {
        reply->is_refusal = true;
        add_inside(&reply->text, piece->refusal);
    }
    if (piece->calls.at && json_span_enter(&iter, piece->calls))
        while (json_span_element(&iter, &element)) take_call(reply, element, place++);
    if (piece->logprobs.at && json_span_enter(&iter, piece->logprobs))
        while (json_span_element(&iter, &element)) {
            if (reply->logprobs.bytes > 0) buf_add_byte(&reply->logprobs, ',');
            buf_add_str(&reply->logprobs, element);
        }
    if (piece->finish_reason.at) reply->end = end_of(piece->finish_reason);
    if (piece->stop_reason.at && reply->stop.bytes == 0)
        add_inside(&reply->stop, piece->stop_reason);
    if (piece->usage.at) take_usage(reply, piece->usage);
}

void chat_reply_add_id(const struct chat_reply *reply, const char *start, struct buf *out) {
    struct str id = buf_str(&reply->id);
    size_t dash = str_find_byte(id, '-', 0);
    buf_add_text(out, start);
    buf_add_str(out, dash == SIZE_MAX ? id : str_skip(id, dash + 1));
}

void chat_reply_add_string(struct buf *out, const struct buf *inside) {
    buf_add_byte(out, '"');
    buf_add_str(out, buf_str(inside));
    buf_add_byte(out, '"');
}

/* Decodes the arguments into `text`. True if they are a JSON object, or nothing at all. */
static bool read_arguments(const struct chat_reply_call *call, struct buf *text) {
    struct str object;
    struct buf string;
    buf_init(&string, BUF_UNLIMITED);
    buf_init(text, BUF_UNLIMITED);
    chat_reply_add_string(&string, &call->arguments);
    json_span_decode(text, buf_str(&string));
    buf_release(&string);
    if (json_span_trim(buf_str(text)).bytes == 0) {
        buf_clear(text);
        buf_add_text(text, "{}");
    }
    return json_span_read(buf_str(text), &object) && json_span_is_object(object);
}

bool chat_reply_call_is_whole(const struct chat_reply *reply, size_t index) {
    struct buf text;
    if (reply->calls[index].name.bytes == 0) return false;
    bool is_object = read_arguments(&reply->calls[index], &text);
    buf_release(&text);
    return is_object;
}

void chat_reply_add_arguments(const struct chat_reply *reply, size_t index, struct buf *out) {
    struct buf text;
    bool is_object = read_arguments(&reply->calls[index], &text);
    /* Strings of JSON have no raw ends of lines: those that are there are space between members,
     * and an answer stands on one line. */
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] == '\n' || text.at[i] == '\r') text.at[i] = ' ';
    if (is_object)
        json_span_add_ascii(out, json_span_trim(buf_str(&text)));
    else
        buf_add_text(out, "{}");
    buf_release(&text);
}
