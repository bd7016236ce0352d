/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/piece.h"

#include "dialects/members.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

static void drop_empty(struct str *text) {
    if (!json_span_is_string(*text) || text->bytes == 2) *text = (struct str){NULL, 0};
}

static void read_message(struct str message, struct piece *piece) {
    struct refusal twice;
    struct str reasoning = {NULL, 0};
    const struct member places[] = {{"content", &piece->content},
                                    {"reasoning_content", &piece->thought},
                                    {"reasoning", &reasoning},
                                    {"refusal", &piece->refusal},
                                    {"tool_calls", &piece->calls}};
    (void)members_read(message, places, COUNT(places), &twice);
    drop_empty(&piece->thought);
    if (!piece->thought.at) piece->thought = reasoning;
    if (!member_is_array(piece->calls)) piece->calls = (struct str){NULL, 0};
}

static void read_choice(struct str choice, struct piece *piece) {
    struct refusal twice;
    struct str delta, message, text, logprobs;
    const struct member places[] = {{"delta", &delta},
                                    {"message", &message},
                                    {"text", &text},
                                    {"logprobs", &logprobs},
                                    {"finish_reason", &piece->finish_reason},
                                    {"stop_reason", &piece->stop_reason}};
    (void)members_read(choice, places, COUNT(places), &twice);
    if (json_span_is_object(delta)) read_message(delta, piece);
    if (json_span_is_object(message)) read_message(message, piece);
    if (text.at) piece->content = text;
    if (json_span_is_object(logprobs)) piece->logprobs = json_span_get(logprobs, "content");
    if (!member_is_array(piece->logprobs)) piece->logprobs = (struct str){NULL, 0};
}

/* The choice of index 0, or one without an index. */
static struct str first_choice(struct str choices) {
    struct json_span_iter iter;
    struct str choice;
    if (!member_is_array(choices) || !json_span_enter(&iter, choices)) return (struct str){NULL, 0};
    while (json_span_element(&iter, &choice)) {
        if (!json_span_is_object(choice)) continue;
        struct str index = json_span_get(choice, "index");
        if (!index.at || str_is(index, "0")) return choice;
    }
    return (struct str){NULL, 0};
}

bool piece_read(struct str text, struct piece *ret_piece) {
    struct refusal twice;
    struct str object, choices;
    *ret_piece = (struct piece){.id = {NULL, 0}};
    if (!json_span_read(text, &object) || !json_span_is_object(object)) return false;
    const struct member places[] = {{"id", &ret_piece->id},
                                    {"created", &ret_piece->created},
                                    {"choices", &choices},
                                    {"usage", &ret_piece->usage}};
    (void)members_read(object, places, COUNT(places), &twice);
    struct str choice = first_choice(choices);
    if (choice.at) read_choice(choice, ret_piece);
    drop_empty(&ret_piece->content);
    drop_empty(&ret_piece->thought);
    drop_empty(&ret_piece->refusal);
    drop_empty(&ret_piece->finish_reason);
    drop_empty(&ret_piece->stop_reason);
    if (!json_span_is_object(ret_piece->usage)) ret_piece->usage = (struct str){NULL, 0};
    return choices.at || ret_piece->usage.at;
}

uint64_t piece_count(struct str usage, const char *inside, const char *name) {
    uint64_t count = 0;
    if (inside && json_span_is_object(usage)) usage = json_span_get(usage, inside);
    if (!json_span_is_object(usage)) return 0;
    struct str value = json_span_get(usage, name);
    return value.at && str_to_u64(value, &count) ? count : 0;
}
