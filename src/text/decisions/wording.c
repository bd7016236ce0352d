/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/wording.h"

#include "decisions/json_text.h"
#include "json/json.h"

#include <assert.h>

const char *const wording_last_lines[LABEL_SETS] = {
    [LABELS_LETTERS] = "Answer with the letter of one option only.",
    [LABELS_DIGITS] = "Answer with the number of one level only.",
    [LABELS_WORDS] = "Answer with yes or no only.",
};

struct label_text label_letter(uint32_t index) {
    assert(index < WORDING_LETTERS);
    return (struct label_text){{(char)('A' + index)}};
}

struct label_text label_pair(uint32_t index) {
    assert(index < WORDING_LETTERS * WORDING_LETTERS);
    return (struct label_text){
        {(char)('A' + index / WORDING_LETTERS), (char)('A' + index % WORDING_LETTERS)}};
}

struct label_text label_digit(uint32_t index) {
    assert(index < WORDING_DIGITS);
    return (struct label_text){{(char)('0' + index)}};
}

struct label_text label_word(uint32_t index) {
    assert(index < WORDING_WORDS);
    return index == 0 ? (struct label_text){"no"} : (struct label_text){"yes"};
}

static void write_value(struct buf *out, const struct question *question,
                        const struct option *option) {
    if (question->type == QUESTION_PREDICATE)
        buf_add_text(out, option == question->options ? "false" : "true");
    else if (!option->value)
        buf_add_str(out, option->text);
    else if (question->type == QUESTION_CHOICE)
        json_text_write(out, option->value);
    else
        buf_add_str(out, json_str(option->value));
}

static void write_option(struct buf *out, const struct question *question, uint32_t index,
                         const struct label_text *labels) {
    const struct option *option = &question->options[index];
    buf_add_text(out, labels[index].at);
    if (question->labels == LABELS_WORDS) {
        if (option->description.bytes > 0) buf_add_text(out, ": ");
    } else {
        buf_add_text(out, ": ");
        write_value(out, question, option);
        if (option->description.bytes > 0) buf_add_text(out, " - ");
    }
    buf_add_str(out, option->description);
    buf_add_byte(out, '\n');
}

void wording_write_question(struct buf *out, const struct question *question,
                            const struct label_text *labels) {
    if (question->instructions.bytes > 0) {
        buf_add_text(out, "Question: ");
        buf_add_str(out, buf_str(&question->instructions));
        buf_add_byte(out, '\n');
    }
    /* Yes stands before no; false stands before true. */
    bool is_reversed = question->labels == LABELS_WORDS;
    for (uint32_t i = 0; i < question->option_count; i++)
        write_option(out, question, is_reversed ? question->option_count - 1 - i : i, labels);
    buf_add_text(out, wording_last_lines[question->labels]);
}
