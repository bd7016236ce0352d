/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/answer_event.h"

#include "answer/answer_text.h"
#include "answer/answer_usage.h"
#include "json/span.h"

static bool is_null(struct str value) {
    return value.bytes == 0 || str_is(value, "null");
}

static void read_choices(struct answer_event *event, struct str choices) {
    struct json_span_iter iter;
    struct answer_text found;
    struct str choice;
    if (choices.bytes == 0 || choices.at[0] != '[' || !json_span_enter(&iter, choices)) return;
    while (json_span_element(&iter, &choice)) {
        if (!json_span_is_object(choice)) continue;
        answer_text_read(&found, choice);
        event->has_text |= found.count > 0 || found.thought.at;
        event->is_finished |= found.finish_reason.at != NULL;
    }
}

static void read_usage(struct answer_event *event, struct str usage) {
    struct answer_usage told;
    answer_usage_read(&told, usage);
    event->has_usage = json_span_is_object(usage);
    event->prompt_tokens = answer_usage_prompt(&told);
    event->completion_tokens = answer_usage_count(told.completion);
    event->has_cached = told.cached.at != NULL;
    event->cached_tokens = answer_usage_count(told.cached);
}

bool answer_event_read(struct answer_event *ret_event, struct str data) {
    struct answer_event event = {.is_end = str_is(str_trim(data), "[DONE]")};
    struct str object;
    if (!event.is_end) {
        if (!json_span_read(data, &object) || !json_span_is_object(object)) return false;
        event.is_error = !is_null(json_span_get(object, "error"));
        read_choices(&event, json_span_get(object, "choices"));
        read_usage(&event, json_span_get(object, "usage"));
    }
    *ret_event = event;
    return true;
}
