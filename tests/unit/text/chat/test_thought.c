/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "chat/thought.h"
#include "jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct thought_marks think = {.begin = "<think>", .end = "</think>"};
static const struct thought_marks lax = {
    .begin = "<think>", .end = "</think>", .may_lack_begin = true};

struct row {
    enum thought_start start;
    const char *text, *thought, *answer;
    uint32_t bytes; /* tokens of the thought, if every byte is a token */
};

static const struct row rows[] = {
    {THOUGHT_NONE, "<think>a</think>b", "", "<think>a</think>b", 0},
    {THOUGHT_MAY, "", "", "", 0},
    {THOUGHT_MAY, "Hello", "", "Hello", 0},
    {THOUGHT_MAY, "\n\nHello", "", "\n\nHello", 0},
    {THOUGHT_MAY, "<thin", "", "<thin", 0},
    {THOUGHT_MAY, "<think>a</think>b", "a", "b", 1},
    {THOUGHT_MAY, "\n<think>\n\na b\n\n</think>\n\nb\n", "a b", "b\n", 7},
    {THOUGHT_MAY, "<think></think>b", "", "b", 0},
    {THOUGHT_MAY, "<think>\n\n</think>\n\n", "", "", 2},
    {THOUGHT_MAY, "<think>a</thin", "a</thin", "", 7},
    {THOUGHT_MAY, "<think>a</</think>b", "a</", "b", 3},
    {THOUGHT_MAY, "b<think>a</think>", "", "b<think>a</think>", 0},
    {THOUGHT_OPEN, "a\n</think>\nb", "a", "b", 2},
    {THOUGHT_OPEN, "</think>b</think>", "", "b</think>", 0},
    {THOUGHT_OPEN, "a\n\n", "a", "", 3},
    {THOUGHT_OPEN, "\xc3</think>b", "\xc3", "b", 1},
};

/* A thought may lack its opening mark. */
static const struct row lax_rows[] = {
    {THOUGHT_NONE, "a</think>b", "", "a</think>b", 0},
    {THOUGHT_MAY, "", "", "", 0},
    {THOUGHT_MAY, "Hello", "", "Hello", 0},
    {THOUGHT_MAY, "\n\nHello\n", "", "\n\nHello\n", 0},
    {THOUGHT_MAY, "<thin", "", "<thin", 0},
    {THOUGHT_MAY, "a</thin", "", "a</thin", 0},
    {THOUGHT_MAY, "<think>a</think>b", "a", "b", 1},
    {THOUGHT_MAY, "abc</think>b", "abc", "b", 3},
    {THOUGHT_MAY, "abc\n</think>\n\nb\n", "abc", "b\n", 4},
    {THOUGHT_MAY, "</think>b", "", "b", 0},
    {THOUGHT_MAY, "<a</</think>b</think>", "<a</", "b</think>", 4},
    {THOUGHT_MAY, "b<think>a</think>", "", "b<think>a</think>", 0},
    {THOUGHT_OPEN, "a\n</think>\nb", "a", "b", 2},
};

/* Hunyuan: the answer may have marks of its own. */
static const struct row wrapped_rows[] = {
    {THOUGHT_NONE, "<answer>\nb\n</answer>", "", "b", 0},
    {THOUGHT_NONE, "\n<answer>b\n\n</answer>\n", "", "b", 0},
    {THOUGHT_NONE, "\nb\n</answer>", "", "\nb\n</answer>", 0},
    {THOUGHT_NONE, "<ans", "", "<ans", 0},
    {THOUGHT_NONE, "<answer>b\n</answ", "", "b\n</answ", 0},
    {THOUGHT_NONE, "<answer>\n</answer>", "", "", 0},
    {THOUGHT_MAY, "<think>\na\n</think>\n<answer>\nb\nc\n</answer>", "a", "b\nc", 3},
    {THOUGHT_MAY, "<think>a</think>b</answer>", "a", "b</answer>", 1},
    {THOUGHT_MAY, "<answer>b</answer>", "", "b", 0},
    {THOUGHT_MAY, "b", "", "b", 0},
    {THOUGHT_MAY, "", "", "", 0},
    {THOUGHT_OPEN, "a</think><answer>b<c</answer>d</answer>", "a", "b<c", 1},
    {THOUGHT_OPEN, "a</think>\n<answe", "a", "<answe", 1},
};

/* Apertus: a call of tools ends a thought. */
static const struct row called_rows[] = {
    {THOUGHT_MAY, "<think>a\n[CALL]{}</think>b", "a", "[CALL]{}</think>b", 2},
    {THOUGHT_MAY, "<think>a[CAL</think>[CALL]{}", "a[CAL", "[CALL]{}", 5},
    {THOUGHT_MAY, "[CALL]{}", "", "[CALL]{}", 0},
    {THOUGHT_OPEN, "[CALL]{}", "", "[CALL]{}", 0},
    {THOUGHT_OPEN, "a[CAL", "a[CAL", "", 5},
};

/* Bytes of the answer that a stream shows of a text that grows. */
static size_t shown_of(const struct thought *thought, struct str text) {
    const size_t held = thought_held(thought, text);
    const size_t end = thought->answer_end < text.bytes ? thought->answer_end : text.bytes - held;
    return thought->answer == SIZE_MAX || end < thought->answer ? 0 : end - thought->answer;
}

/* Reads the text in tokens of `step` bytes. What was known stays, and what a stream showed. */
static void check(struct thought_marks marks, const struct row *row, size_t step) {
    struct thought thought;
    size_t bytes = strlen(row->text), end_before = 0, shown = 0;
    thought_init(&thought, marks, row->start);
    for (size_t at = 0; at < bytes; at += step) {
        struct str text = {row->text, at + step < bytes ? at + step : bytes};
        thought_add(&thought, text, at);
        assert_true(thought.end >= end_before && thought.end <= text.bytes);
        end_before = thought.end;
        assert_true(shown_of(&thought, text) >= shown);
        shown = shown_of(&thought, text);
    }
    thought_end(&thought, str_from(row->text));
    struct str is = {row->text + thought.begin, thought.end - thought.begin};
    struct str answer = str_skip(str_from(row->text), thought.answer);
    if (thought.answer_end != SIZE_MAX) answer.bytes = thought.answer_end - thought.answer;
    if (!str_is(is, row->thought) || !str_is(answer, row->answer) || shown > answer.bytes)
        fail_msg("'%s' by %zu: thought '%.*s', answer at %zu", row->text, step, STR_ARGS(is),
                 thought.answer);
    if (step == 1 && thought.token_count != row->bytes)
        fail_msg("'%s': %u tokens", row->text, thought.token_count);
}

static void check_all(struct thought_marks marks, const struct row *all, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t step = 1; step <= strlen(all[i].text) + 1; step++) check(marks, &all[i], step);
}

static void a_thought_is_found_however_the_text_comes(void **state) {
    (void)state;
    struct thought_marks wrapped = lax, called = think;
    wrapped.wraps_answer = true;
    called.call = "[CALL]";
    check_all(wrapped, wrapped_rows, sizeof wrapped_rows / sizeof *wrapped_rows);
    check_all(called, called_rows, sizeof called_rows / sizeof *called_rows);
    check_all(think, rows, sizeof rows / sizeof *rows);
    check_all(lax, lax_rows, sizeof lax_rows / sizeof *lax_rows);
}

/* With channels: tokens of all thoughts, if every byte is a token, and whether the last is open. */
static void thoughts_of_messages_are_counted(void **state) {
    (void)state;
    static const struct {
        enum thought_start start;
        const char *text;
        uint32_t tokens;
        bool has_begun, is_inside;
    } messages[] = {
        {THOUGHT_MAY, "<|channel|>analysis<|message|>", 0, true, true},
        {THOUGHT_MAY, "<|channel|>analysis<|message|>abc", 3, true, true},
        {THOUGHT_MAY, "<|channel|>analysis<|message|>abc<|end|>", 3, true, false},
        {THOUGHT_MAY,
         "<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>analysis<|message|>"
         "d",
         4, true, true},
        {THOUGHT_MAY, "<|channel|>final<|message|>abc", 0, false, false},
        {THOUGHT_MAY, "abc", 0, false, false},
        {THOUGHT_MAY, "<|channel|>analysis to=functions.f<|message|>{}", 0, false, false},
        {THOUGHT_OPEN, "ab<|end|><|start|>assistant<|channel|>final<|message|>c", 2, true, false},
        {THOUGHT_NONE, "abc<|end|>", 0, false, false},
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct thought thought;
        struct str text = str_from(messages[i].text);
        thought_init(&thought, thought_channels, messages[i].start);
        for (size_t at = 0; at < text.bytes; at++)
            thought_add(&thought, (struct str){text.at, at + 1}, at);
        thought_end(&thought, text);
        if (thought.token_count != messages[i].tokens)
            fail_msg("'%s': %u tokens", text.at, thought.token_count);
        assert_int_equal(thought.has_begun, messages[i].has_begun);
        assert_int_equal(thought.state == THOUGHT_INSIDE, messages[i].is_inside);
        assert_int_equal(thought.answer, 0);
    }
}

static void a_thought_in_a_prompt_is_closed_as_the_family_does(void **state) {
    (void)state;
    static const struct {
        bool has_channels;
        enum thought_start start;
        const char *added;
    } prompts[] = {
        {false, THOUGHT_NONE, ""},
        {false, THOUGHT_MAY, ""},
        {false, THOUGHT_OPEN, "\n</think>\n\n"},
        {true, THOUGHT_NONE, ""},
        {true, THOUGHT_MAY, "<|channel|>final<|message|>"},
        {true, THOUGHT_OPEN, "<|end|><|start|>assistant<|channel|>final<|message|>"},
    };
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        struct buf prompt;
        buf_init(&prompt, 100);
        thought_close(prompts[i].has_channels ? thought_channels : think, prompts[i].start,
                      &prompt);
        assert_true(str_is(buf_str(&prompt), prompts[i].added));
        buf_release(&prompt);
    }
}

static void a_long_thought_costs_no_more_than_its_length(void **state) {
    (void)state;
    size_t bytes = 400000;
    char *text = malloc(bytes + 9);
    assert_non_null(text);
    memset(text, '<', bytes);
    snprintf(text + bytes, 9, "</think>");
    struct thought thought;
    thought_init(&thought, think, THOUGHT_OPEN);
    for (size_t at = 0; at < bytes + 8; at++) thought_add(&thought, (struct str){text, at + 1}, at);
    assert_int_equal(thought.token_count, bytes);
    assert_int_equal(thought.state, THOUGHT_AFTER);
    free(text);
}

static void templates_tell_their_marks_and_prompts_the_start(void **state) {
    (void)state;
    static const struct {
        const char *source, *end;
    } templates[] = {{"{{ messages }}", NULL},
                     {"{{ content.split('</think>')[-1] }}", "</think>"},
                     {"{{ content.split('</think>')[-1] }}</answer>", "</think>"},
                     {"[THINK]{{ x }}[/THINK]", "[/THINK]"},
                     {"<seed:think></seed:think>", "</seed:think>"},
                     {"<|channel>thought\n<channel|>", "<channel|>"},
                     {"<|channel|>analysis<|message|>", "<|end|>"}};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct jinja_template *template;
        assert_int_equal(jinja_template_open(&template, str_from(templates[i].source), NULL), OK);
        const struct thought_marks marks = thought_marks_of(template);
        const char *end = marks.end;
        assert_true(marks.wraps_answer == (strstr(templates[i].source, "</answer>") != NULL));
        assert_true(templates[i].end ? end && strcmp(end, templates[i].end) == 0 : !end);
        jinja_template_close(template);
    }
    assert_int_equal(thought_start_of((struct thought_marks){.begin = NULL}, STR("<think>")),
                     THOUGHT_NONE);
    assert_int_equal(thought_start_of(think, STR("user: <think>\nassistant:")), THOUGHT_MAY);
    assert_int_equal(thought_start_of(think, STR("assistant:\n<think>\n")), THOUGHT_OPEN);
    assert_int_equal(thought_start_of(think, STR("assistant:\n<think>\n\n</think>\n\n")),
                     THOUGHT_NONE);
    assert_int_equal(thought_start_of(think, STR("")), THOUGHT_MAY);
    assert_int_equal(thought_start_of(thought_channels, STR("<|end|><|start|>assistant")),
                     THOUGHT_MAY);
    assert_int_equal(thought_start_of(thought_channels, STR("<|channel|>analysis<|message|>")),
                     THOUGHT_OPEN);
    assert_int_equal(thought_start_of(thought_channels, STR("<|channel|>final<|message|>")),
                     THOUGHT_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thought_is_found_however_the_text_comes),
        cmocka_unit_test(thoughts_of_messages_are_counted),
        cmocka_unit_test(a_thought_in_a_prompt_is_closed_as_the_family_does),
        cmocka_unit_test(a_long_thought_costs_no_more_than_its_length),
        cmocka_unit_test(templates_tell_their_marks_and_prompts_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
