/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/answer_event.h"

#include "json/span.h"

static bool is_null(struct str value) {
    return value.bytes == 0 || str_is(value, "null");
}

/* A string with at least one character. */
static bool has_characters(struct str value) {
    return json_span_is_string(value) && value.bytes > 2;
}

/* Whether a delta, a message or a choice of completions has text. */
static bool has_text(struct str of) {
    static const char *const names[] = {"content", "text", "reasoning_content", "reasoning",
                                        "refusal"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_characters(json_span_get(of, names[i]))) return true;
    struct str calls = json_span_get(of, "tool_calls");
    return calls.bytes > 2 && calls.at[0] == '[';
}

static void read_choices(struct answer_event *event, struct str choices) {
    struct json_span_iter iter;
    struct str choice;
    if (choices.bytes == 0 || choices.at[0] != '[' || !json_span_enter(&iter, choices)) return;
    while (json_span_element(&iter, &choice)) {
        if (!json_span_is_object(choice)) continue;
        event->has_text |= has_text(choice) || has_text(json_span_get(choice, "delta")) ||
                           has_text(json_span_get(choice, "message"));
        event->is_finished |= !is_null(json_span_get(choice, "finish_reason"));
    }
}

static uint64_t count_of(struct str usage, const char *name, const char *other) {
    uint64_t count = 0;
    struct str value = json_span_get(usage, name);
    if (value.bytes == 0) value = json_span_get(usage, other);
    return str_to_u64(value, &count) ? count : 0;
}

static void read_usage(struct answer_event *event, struct str usage) {
    event->has_usage = json_span_is_object(usage);
    if (!event->has_usage) return;
    struct str details = json_span_get(usage, "prompt_tokens_details");
    event->prompt_tokens = count_of(usage, "prompt_tokens", "input_tokens");
    event->completion_tokens = count_of(usage, "completion_tokens", "output_tokens");
    event->has_cached = json_span_get(details, "cached_tokens").at != NULL;
    event->cached_tokens = count_of(details, "cached_tokens", "cached_tokens");
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
