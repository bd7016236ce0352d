/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/config.h"

#include "label_studio/reply.h"

#include <stdlib.h>
#include <string.h>

#define RADIO_OPTIONS_MAX 12 /* more options become a menu in place of radio buttons */

/* Appends ` name="text"`. */
static void add_attribute(struct buf *out, const char *name, struct str text) {
    buf_printf(out, " %s=\"", name);
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'' || c == '\n' || c == '\t')
            buf_printf(out, "&#%u;", c);
        else if (c < ' ')
            buf_add_text(out, "\xEF\xBF\xBD");
        else if (c == 0xEF && i + 2 < text.bytes && (unsigned char)text.at[i + 1] == 0xBF &&
                 (unsigned char)text.at[i + 2] >= 0xBE) { /* U+FFFE and U+FFFF */
            buf_add_text(out, "\xEF\xBF\xBD");
            i += 2;
        } else
            buf_add_byte(out, (char)c);
    }
    buf_add_byte(out, '"');
}

static void add_header(struct buf *out, struct str text) {
    buf_add_text(out, "  <Header");
    add_attribute(out, "value", text);
    buf_add_text(out, " size=\"5\"/>\n");
}

static void add_options(struct buf *out, const struct control *control) {
    const json_t *option;
    size_t index;
    bool is_many = json_array_size(control->options) > RADIO_OPTIONS_MAX;
    buf_printf(out, " choice=\"%s\"%s>\n",
               control->kind == CONTROL_CHOICE ? "single-radio" : "multiple",
               is_many ? " layout=\"select\"" : " showInline=\"true\"");
    json_array_foreach(control->options, index, option) {
        char *text = control_option_text(option);
        buf_add_text(out, "    <Choice");
        add_attribute(out, "value", str_from(text));
        buf_add_text(out, "/>\n");
        free(text);
    }
    buf_add_text(out, "  </Choices>\n");
}

static void add_control(struct buf *out, const struct control *control) {
    bool is_text = strcmp(control->field, REPLY_TEXT) == 0;
    add_header(out, is_text ? STR("Answer") : str_from(control->field));
    buf_printf(out, "  <%s", control_tag(control));
    add_attribute(out, "name", str_from(control->name));
    buf_add_text(out, " toName=\"" FORM_TEXT "\"");
    switch (control->kind) {
    case CONTROL_CHOICE:
    case CONTROL_CHOICES:
    case CONTROL_REMOVE: add_options(out, control); return;
    case CONTROL_NUMBER:
        if (control->has_min) buf_printf(out, " min=\"%.15g\"", control->min);
        if (control->has_max) buf_printf(out, " max=\"%.15g\"", control->max);
        buf_add_text(out, control->is_integer ? " step=\"1\"" : " step=\"any\"");
        break;
    case CONTROL_RATING: buf_printf(out, " maxRating=\"%.0f\"", control->max); break;
    case CONTROL_TEXT:
        buf_add_text(out, " editable=\"true\" rows=\"3\" maxSubmissions=\"1\"");
        break;
    case CONTROL_TEXTS: buf_add_text(out, " editable=\"true\" rows=\"1\""); break;
    case CONTROL_KINDS: break;
    }
    buf_add_text(out, "/>\n");
}

void config_write(struct buf *out, const struct form *form) {
    buf_add_text(out,
                 "<View>\n  <View style=\"white-space: pre-wrap\">\n    <Text name=\"" FORM_TEXT
                 "\" value=\"$text\"/>\n  </View>\n");
    for (size_t i = 0; i < form->count; i++) add_control(out, &form->at[i]);
    add_header(out, STR("Rating of the answer"));
    buf_add_text(out,
                 "  <Rating name=\"" FORM_STARS "\" toName=\"" FORM_TEXT "\" maxRating=\"5\"/>\n");
    add_header(out, STR("Comment"));
    buf_add_text(out,
                 "  <TextArea name=\"" FORM_COMMENT "\" toName=\"" FORM_TEXT
                 "\" editable=\"true\" rows=\"2\" maxSubmissions=\"1\"/>\n"
                 "  <Collapse>\n    <Panel value=\"The answer as it was given\">\n"
                 "      <View style=\"white-space: pre-wrap\">\n        <Text name=\"" FORM_ANSWER
                 "\" value=\"$answer\"/>\n      </View>\n    </Panel>\n  </Collapse>\n</View>\n");
}
