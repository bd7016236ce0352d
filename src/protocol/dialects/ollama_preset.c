/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama_preset.h"

#include "dialects/ollama.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define LINE_NAME_COLUMNS 30 /* as wide as Ollama's own */

void ollama_preset_init(struct ollama_preset *preset) {
    buf_init(&preset->params, BUF_UNLIMITED);
    buf_init(&preset->system, BUF_UNLIMITED);
}

void ollama_preset_release(struct ollama_preset *preset) {
    buf_release(&preset->params);
    buf_release(&preset->system);
}

/* --- options --- */

/* Appends `{"a":1,…}` without its closing bracket; members that are null are left out, since they
 * mean that nothing is said. */
static void copy_options(struct str options, struct buf *out) {
    struct json_span_iter iter;
    struct str key, value;
    const char *before = "";
    buf_add_byte(out, '{');
    if (!json_span_enter(&iter, options)) return;
    while (json_span_member(&iter, &key, &value)) {
        if (str_is(value, "null")) continue;
        buf_add_text(out, before);
        buf_add_str(out, key);
        buf_add_byte(out, ':');
        buf_add_str(out, value);
        before = ",";
    }
}

/* True if `options` says something about the option with this raw name. */
static bool is_said(struct str options, struct str raw_name) {
    struct json_span_iter iter;
    struct str key, value;
    struct buf name, other;
    bool is_found = false;
    if (!json_span_enter(&iter, options)) return false;
    buf_init(&name, BUF_UNLIMITED);
    buf_init(&other, BUF_UNLIMITED);
    struct str wanted = json_span_text(raw_name, &name);
    while (!is_found && json_span_member(&iter, &key, &value)) {
        buf_clear(&other);
        is_found = !str_is(value, "null") && str_equals(json_span_text(key, &other), wanted);
    }
    buf_release(&name);
    buf_release(&other);
    return is_found;
}

static void add_options(const struct ollama_preset *preset, struct str asked, struct buf *out) {
    struct json_span_iter iter;
    struct str key, value;
    buf_add_text(out, ",\"options\":");
    size_t begin = out->bytes;
    copy_options(asked.at ? asked : STR("{}"), out);
    if (json_span_enter(&iter, buf_str(&preset->params)))
        while (json_span_member(&iter, &key, &value)) {
            if (asked.at && is_said(asked, key)) continue;
            if (out->bytes > begin + 1) buf_add_byte(out, ',');
            buf_add_str(out, key);
            buf_add_byte(out, ':');
            buf_add_str(out, value);
        }
    buf_add_byte(out, '}');
}

/* --- the system text --- */

/* True if the conversation begins with a system message. */
static bool begins_with_system(struct str messages) {
    struct json_span_iter iter;
    struct str first;
    if (!json_span_enter(&iter, messages) || !json_span_element(&iter, &first)) return false;
    struct str role =
        json_span_is_object(first) ? json_span_get(first, "role") : (struct str){NULL, 0};
    return role.at && json_span_is_string(role) && json_span_string_is(role, "system");
}

/* Appends the member `messages` behind a message with the system text. */
static void add_messages(const struct ollama_preset *preset, struct str messages, struct buf *out) {
    buf_add_text(out, ",\"messages\":[{\"role\":\"system\",\"content\":");
    buf_add_str(out, buf_str(&preset->system));
    buf_add_text(out, "},");
    buf_add_str(out, str_skip(messages, 1));
}

/* --- a request --- */

/* What a request says of these things. */
struct said {
    struct str options, messages, system, prompt, raw;
};

/* Appends the members of `object` but those of `left_out`, which ends with NULL, without the closing
 * bracket. */
static void copy_others(struct str object, const char *const *left_out, struct buf *out) {
    struct json_span_iter iter;
    struct str key, value;
    const char *before = "{";
    if (!json_span_enter(&iter, object)) return;
    while (json_span_member(&iter, &key, &value)) {
        const char *const *name = left_out;
        while (*name && !json_span_string_is(key, *name)) name++;
        if (*name) continue;
        buf_add_text(out, before);
        buf_add_str(out, key);
        buf_add_byte(out, ':');
        buf_add_str(out, value);
        before = ",";
    }
}

bool ollama_preset_apply(const struct ollama_preset *preset, const struct dialect *dialect,
                         struct str object, struct buf *ret_object) {
    struct said said;
    struct refusal ignored; /* the dialect finds a member that is there twice, too */
    const struct member places[] = {{"options", &said.options},
                                    {"messages", &said.messages},
                                    {"system", &said.system},
                                    {"prompt", &said.prompt},
                                    {"raw", &said.raw}};
    bool is_generate = dialect == &ollama_generate;
    if (dialect != &ollama_chat && !is_generate) return false;
    if (!members_read(object, places, COUNT(places), &ignored)) return false;
    if (member_is_empty(is_generate ? said.prompt : said.messages)) return false;
    bool adds_options =
        preset->params.bytes > 0 && (!said.options.at || json_span_is_object(said.options));
    bool has_system = preset->system.bytes > 0;
    bool adds_messages = has_system && !is_generate && member_is_array(said.messages) &&
                         !begins_with_system(said.messages);
    bool adds_system = has_system && is_generate && !member_is_true(said.raw) && !said.system.at;
    if (!adds_options && !adds_messages && !adds_system) return false;
    const char *left_out[4] = {NULL};
    size_t count = 0;
    if (adds_options) left_out[count++] = "options";
    if (adds_messages) left_out[count++] = "messages";
    if (adds_system) left_out[count++] = "system";
    const size_t begin = ret_object->bytes;
    copy_others(object, left_out, ret_object);
    if (adds_options) add_options(preset, said.options, ret_object);
    if (adds_messages) add_messages(preset, said.messages, ret_object);
    if (adds_system) dialect_add_member(ret_object, "system", buf_str(&preset->system));
    if (ret_object->bytes > begin && ret_object->at[begin] == ',')
        ret_object->at[begin] = '{'; /* there is no other member */
    buf_add_byte(ret_object, '}');
    return true;
}

/* --- show --- */

static void add_line(const char *before, struct str key, struct str value, struct buf *text) {
    buf_add_text(text, before);
    size_t begin = text->bytes;
    json_span_decode(text, key);
    while (text->bytes < begin + LINE_NAME_COLUMNS) buf_add_byte(text, ' ');
    buf_add_byte(text, ' ');
    buf_add_str(text, value);
    buf_add_byte(text, '\n');
}

void ollama_preset_write_lines(const struct ollama_preset *preset, const char *before,
                               struct buf *text) {
    struct json_span_iter iter, elements;
    struct str key, value, element;
    if (!json_span_enter(&iter, buf_str(&preset->params))) return;
    while (json_span_member(&iter, &key, &value)) {
        if (!member_is_array(value)) {
            add_line(before, key, value, text);
            continue;
        }
        if (!json_span_enter(&elements, value)) continue;
        while (json_span_element(&elements, &element)) add_line(before, key, element, text);
    }
}
