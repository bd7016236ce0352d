/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/choice.h"

#include "base/mem.h"
#include "base/min_max.h"
#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>

void choice_init(struct choice *choice, const struct request *request) {
    *choice = (struct choice){.shown = 0};
    buf_init(&choice->raw, CHOICE_TEXT_BYTES_MAX);
    struct thought_marks marks = request->thought_marks;
    if (request->shape.param) marks.may_lack_begin = false; /* its grammar opens each thought */
    thought_init(&choice->thought, marks, request->thought_start);
    if (request->tool_format < TOOL_FORMAT_HERMES) return;
    choice->tools = mem_alloc(sizeof *choice->tools);
    bool reads_calls = request->tool_choice != TOOL_CHOICE_NONE;
    tool_reader_init(choice->tools, request->tool_format, request->one_tool_call,
                     reads_calls ? request->tools : NULL);
    if (request->tool_format == TOOL_FORMAT_HARMONY)
        choice->tools->messages = choice->thought.messages; /* where the answer begins */
}

void choice_release(struct choice *choice) {
    buf_release(&choice->raw);
    logprobs_release(&choice->logprobs);
    ids_release(&choice->token_ids);
    if (choice->tools) tool_reader_release(choice->tools);
    free(choice->tools);
    choice->tools = NULL;
}

/* Looks for a stop string that ends in the bytes that were not searched yet, and cuts raw there. */
static bool find_stop(struct choice *choice, const struct request *request) {
    size_t from = choice->stop_searched;
    choice->stop_searched = choice->raw.bytes;
    size_t best_end = SIZE_MAX, best_at = 0;
    for (uint32_t i = 0; i < request->stop_count; i++) {
        struct str stop = request->stops[i];
        size_t start = from > stop.bytes - 1 ? from - (stop.bytes - 1) : 0;
        if (start < choice->stop_from) start = choice->stop_from;
        size_t at = str_find(buf_str(&choice->raw), stop, start);
        if (at == SIZE_MAX) continue;
        size_t end = at + stop.bytes;
        if (end < best_end || (end == best_end && at < best_at)) {
            best_end = end;
            best_at = at;
            choice->stop_index = i;
        }
    }
    if (best_end == SIZE_MAX) return false;
    buf_truncate(&choice->raw, request->include_stop ? best_end : best_at);
    return true;
}

/* Stop strings are looked for in the answer. With channels that is the bodies of messages that are
 * no thoughts; their headers have words that no client knows. */
static bool may_stop(struct choice *choice) {
    const struct thought *thought = &choice->thought;
    const struct harmony *messages = &thought->messages;
    size_t begin = thought->marks.has_channels ? messages->body : thought->answer;
    bool is_answer = thought->marks.has_channels
                         ? messages->state == HARMONY_IN_BODY && messages->kind != HARMONY_THOUGHT
                         : begin != SIZE_MAX;
    if (is_answer && choice->stop_from < begin) choice->stop_from = begin;
    return is_answer;
}

static bool shows_token(const struct request *request, int32_t token) {
    if (!request->skip_special_tokens) return true;
    for (uint32_t i = 0; i < request->shown_token_count; i++)
        if (request->shown_tokens[i] == token) return true;
    return false;
}

bool choice_add(struct choice *choice, const struct request *request,
                const struct tokenizer *tokenizer, const struct sample *sample, bool is_end) {
    assert(!choice->stopped && !choice->is_done);
    choice->token_count++;
    choice->last_token = sample->token;
    choice->logprob_sum += (double)sample->logprob;
    if (request->return_token_ids) ids_add(&choice->token_ids, sample->token);
    if (is_end) {
        choice->ended_by_token = true;
        if (!request->include_stop) return false;
    }
    if (request->logprobs) logprobs_add(&choice->logprobs, sample, buf_str(&choice->raw));
    size_t from = choice->raw.bytes;
    tokenizer_decode(tokenizer, sample->token, shows_token(request, sample->token), &choice->raw);
    if (choice->is_closing) choice->closing_count++;
    choice->is_closing = false;
    thought_add(&choice->thought, buf_str(&choice->raw), from);
    if (choice->token_count <= (uint64_t)request->min_tokens) {
        choice->stop_from = choice->stop_searched = choice->raw.bytes;
        return false;
    }
    if (!is_end && may_stop(choice) && find_stop(choice, request)) choice->stopped = true;
    return choice->stopped;
}

struct str choice_thought(const struct choice *choice, size_t shown) {
    if (choice->thought.marks.has_channels) return buf_str(&choice->tools->thought);
    size_t begin = min_size(choice->thought.begin, shown),
           end = min_size(choice->thought.end, shown);
    return end > begin ? (struct str){choice->raw.at + begin, end - begin} : STR("");
}

struct str choice_answer(const struct choice *choice, size_t shown) {
    size_t begin = min_size(choice->thought.answer, shown),
           end = min_size(choice->thought.answer_end, shown);
    return end > begin ? (struct str){choice->raw.at + begin, end - begin} : STR("");
}

bool choice_must_close(const struct choice *choice, const struct request *request, uint32_t limit) {
    return choice->thought.state == THOUGHT_INSIDE && choice->thought.token_count >= limit &&
           choice->closing_count < request->closing_tokens.count;
}

void choice_read_tools(struct choice *choice, const struct request *request) {
    if (!choice->tools || choice->is_done) return; /* choice_end has read all of it */
    struct str answer = choice_answer(choice, choice_shown(choice, request));
    if (answer.bytes > 0) tool_reader_feed(choice->tools, answer, false);
}

void choice_end(struct choice *choice, const struct request *request, enum finish_reason reason) {
    assert(!choice->is_done);
    bool was_held =
        !choice->thought.marks.has_channels && !choice->stopped &&
        (choice->thought.state == THOUGHT_HELD || choice->thought.state == THOUGHT_BEFORE);
    choice->is_done = true;
    choice->reason = reason;
    thought_end(&choice->thought, buf_str(&choice->raw));
    /* Only the end has told that the text is the answer. */
    if (was_held && may_stop(choice) && find_stop(choice, request)) choice->stopped = true;
    struct str answer = choice_answer(choice, choice->raw.bytes);
    if (choice->tools) tool_reader_feed(choice->tools, answer.bytes ? answer : STR(""), true);
}

size_t choice_shown(const struct choice *choice, const struct request *request) {
    struct str raw = buf_str(&choice->raw);
    if (choice->is_done || choice->stopped) return raw.bytes;
    size_t held = utf8_incomplete_tail(raw);
    struct str searched = str_skip(raw, choice->stop_from);
    bool is_thought = !choice->thought.marks.has_channels && choice->thought.answer == SIZE_MAX;
    const size_t marked = thought_held(&choice->thought, raw);
    if (marked > held) held = marked;
    for (size_t i = 0; i < request->stop_count && !is_thought; i++) {
        size_t bytes = str_begun(searched, request->stops[i]);
        if (bytes > held) held = bytes;
    }
    return raw.bytes - held;
}

size_t choice_logprobs_shown(const struct choice *choice, size_t shown) {
    bool is_all = shown == choice->raw.bytes && (choice->is_done || choice->stopped);
    size_t count = choice->logprobs_shown;
    while (count < choice->logprobs.count) {
        size_t at = choice->logprobs.entries[count].raw_at;
        /* A token without visible bytes goes with the text before it. */
        bool is_shown = at < shown || (is_all && at == shown && !choice->stopped);
        if (!is_shown) break;
        count++;
    }
    return count;
}

const char *choice_reason(const struct choice *choice, const struct request *request) {
    if (choice->reason == FINISH_LENGTH && !choice->stopped) return "length";
    bool has_calls = choice->tools && choice->tools->calls.count > 0;
    return has_calls && request->tool_choice != TOOL_CHOICE_NAMED ? "tool_calls" : "stop";
}
