/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/thought.h"

#include "chat/harmony_format.h"
#include "chat/tag_words.h"
#include "chat/tool_format.h"
#include "jinja/jinja.h"

#include <string.h>

static const struct thought_marks families[] = {
    {.begin = "<think>", .end = "</think>", .may_lack_begin = true},
    {.begin = "[THINK]", .end = "[/THINK]", .may_lack_begin = true},
    {.begin = "<seed:think>", .end = "</seed:think>", .may_lack_begin = true},
    /* Gemma 4 answers without a thought as a rule, and its closing mark closes other channels, too.
     */
    {.begin = "<|channel>thought", .end = "<channel|>"},
    /* These two mostly answer without one as well. */
    {.begin = "<|START_THINKING|>", .end = "<|END_THINKING|>"},
    {.begin = "<|inner_prefix|>", .end = "<|inner_suffix|>", .call = "<|tools_prefix|>"}};

#define ANSWER STR("<answer>")
#define ANSWER_END STR("</answer>")

const struct thought_marks thought_channels = {
    .begin = HARMONY_THOUGHT_BEGIN, .end = HARMONY_END, .has_channels = true};

struct thought_marks thought_marks_of(const struct jinja_template *template) {
    struct str source = template ? jinja_template_source(template) : (struct str){NULL, 0};
    if (template && str_find(source, str_from(thought_channels.begin), 0) != SIZE_MAX)
        return thought_channels;
    for (size_t i = 0; template && i < sizeof families / sizeof *families; i++) {
        struct thought_marks marks = families[i];
        if (str_find(source, str_from(marks.end), 0) == SIZE_MAX) continue;
        marks.wraps_answer = i == 0 && str_find(source, ANSWER_END, 0) != SIZE_MAX;
        return marks;
    }
    return (struct thought_marks){.begin = NULL};
}

uint64_t thought_mark_set(struct thought_marks marks) {
    if (marks.has_channels) return tool_format_mark_set(TOOL_FORMAT_HARMONY);
    return chat_marks_in(marks.begin) | chat_marks_in(marks.end);
}

enum thought_start thought_start_of(struct thought_marks marks, struct str prompt) {
    if (!marks.begin) return THOUGHT_NONE;
    struct str tail = str_trim(prompt), begin = str_trim(str_from(marks.begin));
    if (marks.has_channels && str_ends_with(tail, STR(HARMONY_BODY)))
        return str_ends_with(tail, begin) ? THOUGHT_OPEN : THOUGHT_NONE;
    if (!marks.has_channels && str_ends_with(tail, str_from(marks.end))) return THOUGHT_NONE;
    return str_ends_with(tail, begin) ? THOUGHT_OPEN : THOUGHT_MAY;
}

void thought_close(struct thought_marks marks, enum thought_start start, struct buf *prompt) {
    if (marks.has_channels && start == THOUGHT_OPEN) buf_add_text(prompt, HARMONY_END HARMONY_NEXT);
    if (marks.has_channels && start != THOUGHT_NONE)
        buf_add_text(prompt, HARMONY_FINAL HARMONY_BODY);
    /* As templates spell a thought without words. */
    if (!marks.has_channels && start == THOUGHT_OPEN) buf_printf(prompt, "\n%s\n\n", marks.end);
}

void thought_init(struct thought *thought, struct thought_marks marks, enum thought_start start) {
    *thought = (struct thought){.marks = marks, .answer_end = SIZE_MAX};
    if (marks.has_channels && start != THOUGHT_MAY)
        harmony_init(&thought->messages, start == THOUGHT_OPEN ? HARMONY_THOUGHT : HARMONY_TEXT);
    if (marks.wraps_answer) thought->answer = SIZE_MAX;
    if (start == THOUGHT_NONE) return;
    if (marks.has_channels) {
        thought->state = start == THOUGHT_OPEN ? THOUGHT_INSIDE : THOUGHT_BEFORE;
        thought->has_begun = start == THOUGHT_OPEN;
        return;
    }
    thought->answer = SIZE_MAX;
    thought->state = start == THOUGHT_OPEN ? THOUGHT_INSIDE : THOUGHT_BEFORE;
    thought->has_begun = start == THOUGHT_OPEN;
}

static bool is_newline(struct str text, size_t at) {
    return at < text.bytes && text.at[at] == '\n';
}

/* The text so far is the beginning of the answer. */
static void set_answer(struct thought *thought) {
    thought->state = THOUGHT_AFTER;
    thought->answer = thought->marks.wraps_answer ? SIZE_MAX : 0; /* its mark may come first */
    thought->begin = thought->end = thought->after = 0;
    thought->token_count = 0;
}

/* Looks for the opening mark at the beginning of the text. */
static void read_begin(struct thought *thought, struct str text, bool is_end) {
    struct str begin = str_from(thought->marks.begin);
    size_t at = 0;
    while (is_newline(text, at)) at++;
    struct str rest = str_skip(text, at);
    if (str_starts_with(rest, begin)) {
        thought->state = THOUGHT_INSIDE;
        thought->has_begun = thought->is_opened = true;
        thought->begin = thought->end = thought->searched = at + begin.bytes;
    } else if (thought->marks.wraps_answer && str_starts_with(rest, ANSWER)) {
        set_answer(thought);
    } else if (thought->marks.wraps_answer && !is_end && str_starts_with(ANSWER, rest)) {
        return;
    } else if (is_end || (rest.bytes > 0 && !str_starts_with(begin, rest))) {
        thought->state = thought->marks.may_lack_begin ? THOUGHT_HELD : THOUGHT_AFTER;
        if (!thought->marks.may_lack_begin) thought->answer = 0;
    }
}

/* Takes the text up to `end` as the thought, without newlines at its ends. */
static void set_end(struct thought *thought, struct str text, size_t end) {
    while (thought->begin < end && is_newline(text, thought->begin)) thought->begin++;
    while (end > thought->begin && is_newline(text, end - 1)) end--;
    if (end > thought->end) thought->end = end;
    if (thought->end < thought->begin) thought->end = thought->begin;
}

static void read_inside(struct thought *thought, struct str text, bool is_end) {
    struct str mark = str_from(thought->marks.end), call = {NULL, 0};
    size_t found = str_find(text, mark, thought->searched), called = SIZE_MAX;
    if (thought->marks.call) {
        call = str_from(thought->marks.call);
        called = str_find(text, call, thought->searched);
    }
    if (found == SIZE_MAX && called == SIZE_MAX) {
        struct str rest = str_skip(text, thought->searched);
        size_t begun = str_begun(rest, mark), of_call = call.at ? str_begun(rest, call) : 0;
        thought->searched = text.bytes - (begun > of_call ? begun : of_call);
        set_end(thought, text, is_end ? text.bytes : thought->searched);
        return;
    }
    const bool is_call = called < found;
    if (is_call) found = called;
    set_end(thought, text, found);
    thought->state = THOUGHT_AFTER;
    thought->searched = found;
    thought->after = found + (is_call ? 0 : mark.bytes);
}

/* Looks for the mark that tells what a text without an opening mark is. */
static void read_held(struct thought *thought, struct str text, bool is_end) {
    struct str begin = str_from(thought->marks.begin), end = str_from(thought->marks.end);
    size_t opened = str_find(text, begin, thought->searched),
           closed = str_find(text, end, thought->searched);
    if (opened < closed || (closed == SIZE_MAX && is_end)) {
        set_answer(thought);
    } else if (closed == SIZE_MAX) {
        struct str rest = str_skip(text, thought->searched);
        size_t begun_a = str_begun(rest, begin), begun_b = str_begun(rest, end);
        thought->searched = text.bytes - (begun_a > begun_b ? begun_a : begun_b);
    } else {
        thought->has_begun = true;
        thought->begin = thought->end = 0;
        set_end(thought, text, closed);
        thought->state = THOUGHT_AFTER;
        thought->searched = closed;
        thought->after = closed + end.bytes;
    }
}

/* The answer begins behind the closing mark, its own mark, and the newlines around them. Without
 * marks it begins with the text. */
static void find_answer(struct thought *thought, struct str text, bool is_end) {
    size_t at = thought->after < text.bytes ? thought->after : text.bytes;
    while (is_newline(text, at)) at++;
    struct str rest = str_skip(text, at);
    thought->is_wrapped = thought->marks.wraps_answer && str_starts_with(rest, ANSWER);
    if (thought->is_wrapped) at += ANSWER.bytes;
    while (thought->is_wrapped && is_newline(text, at)) at++;
    const bool may_come = thought->marks.wraps_answer && !is_end && str_starts_with(ANSWER, rest);
    if (at == text.bytes || (may_come && !thought->is_wrapped)) return;
    thought->answer = thought->after > 0 || thought->is_wrapped ? at : 0;
    thought->answer_searched = thought->answer;
}

static void find_answer_end(struct thought *thought, struct str text) {
    size_t found = str_find(text, ANSWER_END, thought->answer_searched);
    if (found == SIZE_MAX) {
        const struct str rest = str_skip(text, thought->answer_searched);
        thought->answer_searched = text.bytes - str_begun(rest, ANSWER_END);
        return;
    }
    while (found > thought->answer && is_newline(text, found - 1)) found--;
    thought->answer_end = found;
}

size_t thought_held(const struct thought *thought, struct str text) {
    if (!thought->is_wrapped || thought->answer_end != SIZE_MAX || thought->answer > text.bytes)
        return 0;
    const struct str answer = str_skip(text, thought->answer);
    size_t held = str_begun(answer, ANSWER_END);
    while (held < answer.bytes && is_newline(answer, answer.bytes - held - 1)) held++;
    return held;
}

static void read_text(struct thought *thought, struct str text, bool is_end) {
    if (thought->state == THOUGHT_BEFORE) read_begin(thought, text, is_end);
    if (thought->state == THOUGHT_INSIDE) read_inside(thought, text, is_end);
    if (thought->state == THOUGHT_HELD) read_held(thought, text, is_end);
    if (thought->state == THOUGHT_AFTER && thought->answer == SIZE_MAX)
        find_answer(thought, text, is_end);
    if (thought->is_wrapped && thought->answer != SIZE_MAX && thought->answer_end == SIZE_MAX)
        find_answer_end(thought, text);
}

static void count_token(struct thought *thought, size_t start) {
    thought->starts[thought->token_count++ % THOUGHT_STARTS] = start;
}

/* Tokens that begin with or behind the closing mark, at `end`, are no part of the thought. */
static void uncount_tokens(struct thought *thought, size_t end) {
    for (int i = 0; i < THOUGHT_STARTS && thought->token_count > 0; i++) {
        if (thought->starts[(thought->token_count - 1) % THOUGHT_STARTS] < end) break;
        thought->token_count--;
    }
}

static void add_to_messages(struct thought *thought, struct str text, size_t start) {
    struct harmony *messages = &thought->messages;
    struct harmony_piece piece;
    if (thought->state == THOUGHT_INSIDE) count_token(thought, start);
    while (harmony_next(messages, text, false, &piece)) {
        if (piece.kind != HARMONY_THOUGHT) continue;
        thought->has_begun = true;
        if (piece.is_last)
            uncount_tokens(thought, (size_t)(piece.bytes.at - text.at) + piece.bytes.bytes);
    }
    bool is_inside = messages->state == HARMONY_IN_BODY && messages->kind == HARMONY_THOUGHT;
    thought->state = is_inside ? THOUGHT_INSIDE : THOUGHT_BEFORE;
}

void thought_add(struct thought *thought, struct str text, size_t start) {
    if (thought->marks.has_channels) {
        add_to_messages(thought, text, start);
        return;
    }
    if (thought->state == THOUGHT_AFTER && thought->answer != SIZE_MAX) {
        if (thought->is_wrapped) read_text(thought, text, false);
        return;
    }
    bool was_before = thought->state == THOUGHT_BEFORE;
    bool was_inside = !was_before || thought->marks.may_lack_begin;
    if (thought->state == THOUGHT_AFTER) was_inside = false; /* newlines before the answer */
    if (was_inside) count_token(thought, start);
    read_text(thought, text, false);
    if (was_before && thought->is_opened)
        thought->token_count = 0; /* tokens of the mark */
    else if (was_inside && thought->state == THOUGHT_AFTER && thought->has_begun)
        uncount_tokens(thought, thought->searched);
}

void thought_end(struct thought *thought, struct str text) {
    if (thought->marks.has_channels) return;
    if (thought->searched > text.bytes) thought->searched = text.bytes; /* a stop string cut it */
    if (thought->answer_searched > text.bytes) thought->answer_searched = text.bytes;
    read_text(thought, text, true);
    if (thought->answer == SIZE_MAX) thought->answer = text.bytes;
}

json_t *thought_format(struct thought_marks names, enum thought_start start, uint64_t marks,
                       json_t *answer) {
    json_t *inside = json_array();
    json_t *excludes = names.has_channels ? harmony_ends() : json_pack("[s]", names.end);
    json_array_append_new(inside, tag_format("any_bytes", "excludes", excludes));
    tag_add_words(inside, marks, names.end);
    if (names.has_channels)
        tag_add_words(inside, marks, HARMONY_NEXT);
    else
        json_array_append_new(inside, tag_format("regex", "pattern", json_string("\\n{0,2}")));
    json_array_append_new(inside, answer);
    json_t *thought = tag_format("sequence", "elements", inside);
    if (start == THOUGHT_OPEN) return thought;
    json_t *open = json_array(), *either = json_array();
    tag_add_words(open, marks, names.begin);
    json_array_append_new(open, thought);
    json_array_append_new(either, tag_format("sequence", "elements", open));
    json_array_append(either, answer);
    return tag_format("or", "elements", either);
}
