/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/tag_words.h"

#include "chat/tool_format.h"

#include <string.h>

json_t *tag_format(const char *type, const char *key, json_t *value) {
    json_t *format = json_object();
    json_object_set_new(format, "type", json_string(type));
    json_object_set_new(format, key, value);
    return format;
}

static json_t *const_string(const char *text, size_t bytes) {
    return tag_format("const_string", "value", json_stringn(text, bytes));
}

void tag_add_text(json_t *list, const char *text, size_t bytes) {
    if (bytes > 0) json_array_append_new(list, const_string(text, bytes));
}

/* The number of the control token that the text begins with; CHAT_MARKS_MAX: none. */
static size_t mark_at(uint64_t marks, const char *text) {
    for (size_t k = 0; chat_marks[k]; k++)
        if (marks >> k & 1 && strncmp(text, chat_marks[k], strlen(chat_marks[k])) == 0) return k;
    return CHAT_MARKS_MAX;
}

void tag_add_words(json_t *list, uint64_t marks, const char *text) {
    size_t begin = 0, at = 0, bytes = strlen(text);
    while (at < bytes) {
        size_t mark = mark_at(marks, text + at);
        bool is_newline = text[at] == '\n';
        if (mark == CHAT_MARKS_MAX && !is_newline) {
            at++;
            continue;
        }
        tag_add_text(list, text + begin, at - begin);
        json_array_append_new(
            list, is_newline ? tag_format("optional", "content", const_string("\n", 1))
                             : tag_format("mark", "mark", json_integer((json_int_t)mark)));
        begin = at += is_newline ? 1 : strlen(chat_marks[mark]);
    }
    tag_add_text(list, text + begin, at - begin);
}
