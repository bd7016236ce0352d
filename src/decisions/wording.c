/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/wording.h"

#include "decisions/json_text.h"
#include "json/json.h"

#include <assert.h>

struct label_text label_letter(uint32_t index) {
    assert(index < WORDING_LETTERS);
    return (struct label_text){{(char)('A' + index), '\0', '\0'}};
}

struct label_text label_pair(uint32_t index) {
    assert(index < WORDING_LETTERS * WORDING_LETTERS);
    return (struct label_text){
        {(char)('A' + index / WORDING_LETTERS), (char)('A' + index % WORDING_LETTERS), '\0'}};
}

static void write_value(struct buf *out, const struct question *question, uint32_t index) {
    const json_t *value = question->options[index].value;
    switch (question->type) {
    case QUESTION_PREDICATE: buf_add_text(out, index == 0 ? "false" : "true"); break;
    case QUESTION_CHOICE: json_text_write(out, value); break;
    case QUESTION_SCORE: buf_add_str(out, json_str(value)); break;
    }
}

void wording_write_question(struct buf *out, const struct question *question,
                            const struct label_text *labels) {
    if (question->instructions.bytes > 0) {
        buf_add_text(out, "Question: ");
        buf_add_str(out, buf_str(&question->instructions));
        buf_add_byte(out, '\n');
    }
    for (uint32_t i = 0; i < question->option_count; i++) {
        struct str description = question->options[i].description;
        buf_printf(out, "%s: ", labels[i].at);
        write_value(out, question, i);
        if (description.bytes > 0) {
            buf_add_text(out, " - ");
            buf_add_str(out, description);
        }
        buf_add_byte(out, '\n');
    }
    buf_add_text(out, WORDING_LAST_LINE);
}
