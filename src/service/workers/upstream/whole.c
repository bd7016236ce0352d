/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/whole.h"

#include "json/span.h"

#include <stdarg.h>
#include <stdio.h>

static bool PRINTF_LIKE(2, 3) lacks(char ret_lack[UPSTREAM_LACK_BYTES], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(ret_lack, UPSTREAM_LACK_BYTES, format, args);
    va_end(args);
    return false;
}

static bool is_array(struct str value) {
    return value.bytes > 0 && *value.at == '[';
}

/* True for a value that says nothing: absent, null, [] or {}. */
static bool is_nothing(struct str value) {
    struct json_span_iter iter;
    struct str key, member;
    if (!value.at || str_is(value, "null")) return true;
    if (is_array(value)) return json_span_enter(&iter, value) && !json_span_element(&iter, &member);
    return json_span_is_object(value) && json_span_enter(&iter, value) &&
           !json_span_member(&iter, &key, &member);
}

bool upstream_has_elements(struct str list) {
    return is_array(list) && !is_nothing(list);
}

static uint64_t count_elements(struct str list) {
    struct json_span_iter iter;
    struct str element;
    uint64_t count = 0;
    bool inside = is_array(list) && json_span_enter(&iter, list);
    while (inside && json_span_element(&iter, &element)) count++;
    return count;
}

static uint64_t count_members(struct str object) {
    struct json_span_iter iter;
    struct str key, value;
    uint64_t count = 0;
    bool inside = json_span_is_object(object) && json_span_enter(&iter, object);
    while (inside && json_span_member(&iter, &key, &value)) count++;
    return count;
}

/* --- how many a request asks for; 0: it does not say clearly --- */

/* `n` of a chat or a completion. */
static uint64_t asked_choices(struct str request) {
    uint64_t count = 0;
    struct str n = json_span_get(request, "n");
    if (!n.at || str_is(n, "null")) return 1;
    return str_to_u64(n, &count) ? count : 0;
}

/* Texts of a `prompt` or an `input`: one, or a list of texts or of lists of token ids. */
static uint64_t asked_texts(struct str texts) {
    struct json_span_iter iter;
    struct str first;
    if (json_span_is_string(texts)) return 1;
    if (!is_array(texts) || !json_span_enter(&iter, texts) || !json_span_element(&iter, &first))
        return 0;
    if (*first.at == '"' || *first.at == '[') return count_elements(texts);
    return *first.at == '{' ? 0 : 1;
}

/* Pairs of a score: one text with each of a list, or two lists in step. */
static uint64_t asked_pairs(struct str request) {
    struct str documents = json_span_get(request, "documents");
    if (!is_nothing(json_span_get(request, "top_n"))) return 0;
    if (documents.at) return asked_texts(documents);
    uint64_t left = asked_texts(json_span_get(request, "text_1"));
    uint64_t right = asked_texts(json_span_get(request, "text_2"));
    if (left == 0 || right == 0) return 0;
    return left > right ? left : right;
}

/* --- what an answer has --- */

/* True if a message has a text, which may be empty, or anything else that a model says. */
static bool says_something(struct str message) {
    static const char *const names[] = {"tool_calls", "function_call", "refusal",
                                        "audio",      "images",        "reasoning_content",
                                        "reasoning",  "thinking",      "reasoning_details"};
    struct str content = json_span_get(message, "content");
    if (json_span_is_string(content) || upstream_has_elements(content)) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct str value = json_span_get(message, names[i]);
        if (!is_nothing(value) && !str_is(value, "\"\"")) return true;
    }
    return false;
}

/* True for an end after which no text need have come. */
static bool is_cut(struct str choice) {
    struct str reason = json_span_get(choice, "finish_reason");
    return json_span_is_string(reason) &&
           (json_span_string_is(reason, "length") || json_span_string_is(reason, "content_filter"));
}

static bool is_broken_off(struct str choice) {
    struct str reason = json_span_get(choice, "finish_reason");
    return json_span_is_string(reason) &&
           (json_span_string_is(reason, "error") || json_span_string_is(reason, "abort"));
}

static bool is_whole_choice(enum endpoint endpoint, struct str choice, unsigned number,
                            char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct str message = json_span_get(choice, "message"), text = json_span_get(choice, "text");
    if (!json_span_is_object(choice))
        return lacks(ret_lack, "with choice %u that is no object", number);
    if (is_broken_off(choice)) return lacks(ret_lack, "with choice %u broken off", number);
    if (endpoint == ENDPOINT_COMPLETIONS)
        return json_span_is_string(text) || lacks(ret_lack, "with no text in choice %u", number);
    if (!json_span_is_object(message))
        return lacks(ret_lack, "with no message in choice %u", number);
    return is_cut(choice) || says_something(message) ||
           lacks(ret_lack, "with an empty message in choice %u", number);
}

static bool has_choices(enum endpoint endpoint, struct str request, struct str answer,
                        char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct json_span_iter iter;
    struct str choice, choices = json_span_get(answer, "choices");
    uint64_t asked = asked_choices(request);
    unsigned count = 0;
    if (!upstream_has_elements(choices)) return lacks(ret_lack, "without choices");
    if (endpoint == ENDPOINT_COMPLETIONS) asked *= asked_texts(json_span_get(request, "prompt"));
    bool inside = json_span_enter(&iter, choices);
    while (inside && json_span_element(&iter, &choice))
        if (!is_whole_choice(endpoint, choice, count++, ret_lack)) return false;
    return count >= asked || /* more than was asked for is no loss: the record keeps them all */
           lacks(ret_lack, "with %u of %llu choices", count, (unsigned long long)asked);
}

/* Whether an embedding has numbers, or lists of them, and no null among them. */
static bool is_vector(struct str vector) {
    struct json_span_iter iter;
    struct str value;
    if (json_span_is_string(vector)) return vector.bytes > 2;
    if (json_span_is_object(vector)) return !is_nothing(vector);
    if (!upstream_has_elements(vector)) return false;
    bool inside = json_span_enter(&iter, vector);
    while (inside && json_span_element(&iter, &value))
        if (is_nothing(value)) return false;
    return true;
}

static bool has_vectors(struct str request, struct str answer, char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct json_span_iter iter;
    struct str one, data = json_span_get(answer, "data");
    uint64_t asked = asked_texts(json_span_get(request, "input"));
    unsigned count = 0;
    if (!upstream_has_elements(data)) return lacks(ret_lack, "without embeddings");
    bool inside = json_span_enter(&iter, data);
    for (; inside && json_span_element(&iter, &one); count++)
        if (!json_span_is_object(one) || !is_vector(json_span_get(one, "embedding")))
            return lacks(ret_lack, "with no numbers in embedding %u", count);
    return asked == 0 || asked == count ||
           lacks(ret_lack, "with %u of %llu embeddings", count, (unsigned long long)asked);
}

/* Each element has the data of its text. */
static bool has_pooled(struct str request, struct str answer, const char *member,
                       char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct json_span_iter iter;
    struct str one, data = json_span_get(answer, "data");
    uint64_t asked = asked_texts(json_span_get(request, "input"));
    unsigned count = 0;
    if (!upstream_has_elements(data)) return lacks(ret_lack, "without data");
    bool inside = json_span_enter(&iter, data);
    for (; inside && json_span_element(&iter, &one); count++)
        if (!json_span_is_object(one) || !is_vector(json_span_get(one, member)))
            return lacks(ret_lack, "with no numbers in element %u", count);
    return asked == 0 || asked == count ||
           lacks(ret_lack, "with %u of %llu elements", count, (unsigned long long)asked);
}

static bool has_scores(struct str request, struct str answer, char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct json_span_iter iter;
    struct str one, list = json_span_get(answer, "data");
    uint64_t asked = asked_pairs(request);
    unsigned count = 0;
    if (!upstream_has_elements(list)) list = json_span_get(answer, "results");
    if (!upstream_has_elements(list)) return lacks(ret_lack, "without scores");
    bool inside = json_span_enter(&iter, list);
    for (; inside && json_span_element(&iter, &one); count++)
        if (!json_span_is_object(one) || (is_nothing(json_span_get(one, "score")) &&
                                          is_nothing(json_span_get(one, "relevance_score"))))
            return lacks(ret_lack, "with no number in score %u", count);
    return asked == 0 || asked == count ||
           lacks(ret_lack, "with %u of %llu scores", count, (unsigned long long)asked);
}

static bool has_answers(struct str request, struct str answer, char ret_lack[UPSTREAM_LACK_BYTES]) {
    struct str answers = json_span_get(answer, "answers");
    struct str questions = json_span_get(request, "questions");
    uint64_t asked = count_elements(questions) + count_members(questions);
    uint64_t count = count_elements(answers) + count_members(answers);
    if (count == 0) return lacks(ret_lack, "without answers");
    return asked == 0 || asked == count ||
           lacks(ret_lack, "with %llu of %llu answers", (unsigned long long)count,
                 (unsigned long long)asked);
}

bool upstream_is_whole(enum endpoint endpoint, struct str request, struct str answer,
                       char ret_lack[UPSTREAM_LACK_BYTES]) {
    switch (endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_COMPLETIONS: return has_choices(endpoint, request, answer, ret_lack);
    case ENDPOINT_EMBEDDINGS: return has_vectors(request, answer, ret_lack);
    case ENDPOINT_POOLING: return has_pooled(request, answer, "data", ret_lack);
    case ENDPOINT_CLASSIFY: return has_pooled(request, answer, "probs", ret_lack);
    case ENDPOINT_SCORE:
    case ENDPOINT_RERANK: return has_scores(request, answer, ret_lack);
    case ENDPOINT_DECISIONS:
    case ENDPOINT_SYSTEMONE: return has_answers(request, answer, ret_lack);
    default: break;
    }
    return is_nothing(json_span_get(answer, "error")) || lacks(ret_lack, "with an error");
}
