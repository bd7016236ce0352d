/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/task.h"

#include "json/json.h"
#include "label_studio/reply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- texts --- */

/* A JSON string of the text, without a NUL. */
static json_t *string_of(struct str text) {
    struct buf clean;
    if (!text.at || !memchr(text.at, '\0', text.bytes))
        return json_stringn(text.at ? text.at : "", text.bytes);
    buf_init(&clean, BUF_UNLIMITED);
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i])
            buf_add_byte(&clean, text.at[i]);
        else
            buf_add_text(&clean, "\xEF\xBF\xBD");
    }
    json_t *string = json_stringn(clean.at, clean.bytes);
    buf_release(&clean);
    return string;
}

/* Appends a message's content: a text, or parts. */
static void write_content(struct buf *out, const json_t *content) {
    const json_t *part;
    size_t index;
    if (json_is_string(content)) buf_add_str(out, json_str(content));
    json_array_foreach(content, index, part) {
        struct str text = json_member_str(part, "text");
        if (index > 0) buf_add_byte(out, '\n');
        if (json_is_string(part))
            buf_add_str(out, json_str(part));
        else if (text.at)
            buf_add_str(out, text);
        else
            buf_printf(out, "[%.*s]", STR_ARGS(json_member_str(part, "type")));
    }
}

/* Appends the question as a person reads it. */
static void write_question(struct buf *out, const json_t *body) {
    static const char *const members[] = {"prompt", "input", "text", "context"};
    const json_t *messages = json_member(body, "messages"), *message;
    size_t index, start = out->bytes;
    json_array_foreach(messages, index, message) {
        if (json_array_size(messages) > 1)
            buf_printf(out, "%s[%.*s]\n", index > 0 ? "\n\n" : "",
                       STR_ARGS(json_member_str(message, "role")));
        write_content(out, json_member(message, "content"));
    }
    for (size_t i = 0; i < sizeof members / sizeof *members && out->bytes == start; i++)
        write_content(out, json_member(body, members[i]));
    if (out->bytes == start && body) json_write(out, body);
}

/* --- predictions --- */

static json_t *one_text(const char *name, json_t *value) {
    json_t *object = json_object();
    json_object_set_new(object, name, value);
    return object;
}

/* The options that the field's values are; NULL if one value is no option. */
static json_t *choose(const struct control *control, const json_t *value) {
    json_t *chosen = json_array();
    const json_t *one, *option;
    size_t at, index;
    json_t *values = json_is_array(value) ? json_incref((json_t *)(uintptr_t)value) : json_array();
    if (!json_is_array(value)) json_array_append(values, (json_t *)(uintptr_t)value);
    bool is_known = json_array_size(values) > 0;
    json_array_foreach(values, at, one) {
        bool is_found = false;
        json_array_foreach(control->options, index, option) {
            if (is_found || !json_equal(option, one)) continue;
            char *text = control_option_text(option);
            json_array_append_new(chosen, string_of(str_from(text)));
            free(text);
            is_found = true;
        }
        is_known = is_known && is_found;
    }
    json_decref(values);
    if (is_known) return one_text("choices", chosen);
    json_decref(chosen);
    return NULL;
}

static json_t *texts_of(const json_t *value) {
    json_t *texts = json_array();
    const json_t *one;
    size_t index;
    if (json_is_string(value)) json_array_append_new(texts, string_of(json_str(value)));
    json_array_foreach(value, index, one) if (json_is_string(one))
        json_array_append_new(texts, string_of(json_str(one)));
    if (json_array_size(texts) > 0) return one_text("text", texts);
    json_decref(texts);
    return NULL;
}

/* The value of a result in Label Studio; NULL if the control cannot show the field's value. */
static json_t *show_value(const struct control *control, const json_t *value) {
    double number = json_number_value(value);
    switch (control->kind) {
    case CONTROL_CHOICE:
    case CONTROL_CHOICES: return choose(control, value);
    case CONTROL_NUMBER:
        if (!json_is_number(value)) return NULL;
        return one_text("number", json_deep_copy(value));
    case CONTROL_RATING:
        if (!json_is_integer(value) || number < 1 || number > control->max) return NULL;
        return one_text("rating", json_deep_copy(value));
    case CONTROL_TEXT: return json_is_string(value) ? texts_of(value) : NULL;
    case CONTROL_TEXTS: return texts_of(value);
    case CONTROL_REMOVE: /* says something of an annotation alone */
    case CONTROL_KINDS: break;
    }
    return NULL;
}

static void add_result(json_t *results, const struct control *control, const json_t *value) {
    json_t *shown = show_value(control, value), *result;
    if (!shown) return;
    result = json_object();
    json_object_set_new(result, "id", json_string(control->name));
    json_object_set_new(result, "from_name", json_string(control->name));
    json_object_set_new(result, "to_name", json_string(FORM_TEXT));
    json_object_set_new(result, "type", json_string(control_type(control)));
    json_object_set_new(result, "value", shown);
    json_array_append_new(results, result);
}

/* The mean probability of the answer's tokens; negative: not known. */
static double read_score(const json_t *body) {
    const json_t *choice = json_first_by_index(json_member(body, "choices"));
    const json_t *tokens = json_member(json_member(choice, "logprobs"), "content"), *token;
    size_t index;
    double sum = 0;
    json_array_foreach(tokens, index, token) sum +=
        json_number_value(json_member(token, "logprob"));
    if (json_array_size(tokens) == 0) return -1;
    double score = exp(sum / (double)json_array_size(tokens));
    return score >= 0 && score <= 1 ? score : -1;
}

/* --- the task --- */

/* A copy without NULs in its texts. json_read bounds the depth. */
static json_t *clean(const json_t *value) { /* NOLINT(misc-no-recursion) */
    const char *key;
    json_t *member, *copy;
    size_t index, key_bytes;
    if (json_is_string(value)) return string_of(json_str(value));
    if (!json_is_object(value) && !json_is_array(value)) return json_deep_copy(value);
    copy = json_is_array(value) ? json_array() : json_object();
    json_array_foreach(value, index, member) json_array_append_new(copy, clean(member));
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, key_bytes, member)
        json_object_setn_new(copy, key, key_bytes, clean(member));
    return copy;
}

/* The members of the answer that have a control, or contain a value that has one. */
static json_t *make_kept(const struct form *form, const json_t *object) {
    json_t *kept = json_object(), *member;
    const char *key;
    size_t key_bytes;
    json_object_keylen_foreach((json_t *)(uintptr_t)object, key, key_bytes, member) {
        bool is_wanted = false;
        for (size_t i = 0; i < form->count && !is_wanted; i++) {
            struct str field = str_from(form->at[i].field), name = {key, key_bytes};
            is_wanted = str_starts_with(field, name) &&
                        (field.bytes == key_bytes || field.at[key_bytes] == '.');
        }
        if (is_wanted) json_object_setn_new(kept, key, key_bytes, clean(member));
    }
    return kept;
}

static json_t *make_meta(const struct task_wish *wish, const struct pair *pair,
                         const json_t *object) {
    json_t *meta = json_object();
    json_object_set_new(meta, "batch_id", json_string(wish->batch_id));
    json_object_set_new(meta, "custom_id", string_of(pair->custom_id));
    json_object_set_new(meta, "answer", make_kept(wish->form, object));
    return meta;
}

static json_t *make_data(const struct pair *pair, const struct reply *reply) {
    json_t *data = json_object();
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    write_question(&text, pair->body);
    json_object_set_new(data, "text", string_of(buf_str(&text)));
    buf_clear(&text);
    reply_write(&text, reply);
    json_object_set_new(data, "answer", string_of(buf_str(&text)));
    json_object_set_new(data, "custom_id", string_of(pair->custom_id));
    buf_release(&text);
    return data;
}

void task_add_results(json_t *results, const struct form *form, const json_t *object) {
    for (size_t i = 0; i < form->count; i++)
        add_result(results, &form->at[i], reply_find(object, form->at[i].field));
}

static json_t *make_predictions(const struct task_wish *wish, const json_t *body,
                                const json_t *object) {
    json_t *list = json_array(), *prediction = json_object(), *results = json_array();
    struct str model = json_member_str(body, "model");
    double score = read_score(body);
    task_add_results(results, wish->form, object);
    json_object_set_new(prediction, "model_version",
                        string_of(model.bytes > 0 ? model : STR("quern")));
    if (score >= 0) json_object_set_new(prediction, "score", json_real(score));
    json_object_set_new(prediction, "result", results);
    json_array_append_new(list, prediction);
    return list;
}

static enum err read_reply(const struct pair *pair, struct reply *ret_reply, struct error *error) {
    enum err err = reply_read(ret_reply, pair->result, error);
    return err == OK ? OK : err_prefix(error, "the result of %.100s", pair->custom_id.at);
}

enum err task_make(json_t **ret_task, const struct task_wish *wish, const struct pair *pair,
                   struct error *error) {
    struct reply reply;
    *ret_task = NULL;
    if (pair->result.bytes == 0) return OK;
    enum err err = read_reply(pair, &reply, error);
    if (err != OK) return err;
    if (reply.body) {
        json_t *task = json_object();
        json_object_set_new(task, "data", make_data(pair, &reply));
        json_object_set_new(task, "meta", make_meta(wish, pair, reply.object));
        json_object_set_new(task, "predictions", make_predictions(wish, reply.body, reply.object));
        *ret_task = task;
    }
    reply_release(&reply);
    return OK;
}

enum err task_add_fields(struct form *form, const struct pair *pair, struct error *error) {
    struct reply reply;
    if (pair->result.bytes == 0) return OK;
    enum err err = read_reply(pair, &reply, error);
    if (err != OK) return err;
    if (reply.body) form_add_values(form, reply.object);
    reply_release(&reply);
    return OK;
}

enum err task_add_lengths(json_t *lengths, const struct pair *pair, struct error *error) {
    struct reply reply;
    if (pair->result.bytes == 0) return OK;
    enum err err = read_reply(pair, &reply, error);
    if (err != OK) return err;
    if (reply.body) form_add_lengths(lengths, reply.object);
    reply_release(&reply);
    return OK;
}
