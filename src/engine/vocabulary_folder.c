/* SPDX-License-Identifier: Apache-2.0 */

/* The words of a folder of Hugging Face's tools: tokenizer.json, and what stands beside it.
 *
 * The chat template is that of chat_template.jinja, else of tokenizer_config.json, else of
 * chat_template.json. A generation ends at the tokens of generation_config.json, else of
 * config.json, at the eos_token of tokenizer_config.json, and at the spellings the tokenizer knows.
 * Everything but the tokenizer is read without a tree, so that a small file costs little memory. */

#include "base/os.h"
#include "engine/vocabulary.h"
#include "json/span.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define FILE_BYTES_MAX ((size_t)16 * 1024 * 1024)
#define TEMPLATE_BYTES_MAX ((size_t)1024 * 1024)
#define TOKEN_BYTES_MAX ((size_t)1024)

/* A file of the folder in memory; `at` is NULL when it is not there. */
struct text_file {
    char *at;
    size_t bytes;
};

static enum err read_file(const char *folder, const char *name, size_t bytes_max,
                          struct text_file *ret_file, struct error *error) {
    char path[PATH_MAX];
    *ret_file = (struct text_file){NULL, 0};
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the path of the folder is too long");
    enum err err = os_read_file(path, bytes_max, &ret_file->at, &ret_file->bytes, error);
    return err == ERR_NOT_FOUND ? OK : err;
}

/* One object of JSON, or none when the file is not there. */
static enum err read_object(const char *folder, const char *name, struct text_file *ret_file,
                            struct str *ret_object, struct error *error) {
    *ret_object = (struct str){NULL, 0};
    enum err err = read_file(folder, name, FILE_BYTES_MAX, ret_file, error);
    if (err != OK || !ret_file->at) return err;
    struct str text = {ret_file->at, ret_file->bytes};
    if (json_span_is_utf8(text) && json_span_read(text, ret_object) &&
        json_span_is_object(*ret_object))
        return OK;
    free(ret_file->at);
    *ret_file = (struct text_file){NULL, 0};
    return err_set(error, ERR_INVALID, "%s is no JSON object", name);
}

/* ---- tokens ---- */

/* "<s>", or {"content": "<s>", …}; TOKEN_NONE for null and for what is no token. */
static int32_t find_token(const struct vocabulary *vocabulary, struct str object,
                          const char *name) {
    struct str value = json_span_get(object, name);
    if (json_span_is_object(value)) value = json_span_get(value, "content");
    if (!json_span_is_string(value)) return TOKEN_NONE;
    struct buf text;
    buf_init(&text, TOKEN_BYTES_MAX);
    json_span_decode(&text, value);
    int32_t id = text.overflowed || text.bytes == 0
                     ? TOKEN_NONE
                     : tokenizer_find(vocabulary->tokenizer, buf_str(&text));
    buf_release(&text);
    return id;
}

static void add_end(struct vocabulary *vocabulary, int64_t id) {
    size_t count = tokenizer_count(vocabulary->tokenizer);
    if (id < 0 || (uint64_t)id >= count || vocabulary_is_end(vocabulary, (int32_t)id)) return;
    if (vocabulary->end_count < VOCABULARY_ENDS_MAX)
        vocabulary->ends[vocabulary->end_count++] = (int32_t)id;
}

/* eos_token_id: one id, or a list. False when the object says none. */
static bool add_ends(struct vocabulary *vocabulary, struct str object) {
    struct str value = json_span_get(object, "eos_token_id"), element;
    struct json_span_iter iter;
    int64_t id;
    if (!value.at || str_is(value, "null")) return false;
    if (str_to_i64(value, &id)) add_end(vocabulary, id);
    if (*value.at == '[' && json_span_enter(&iter, value))
        while (json_span_element(&iter, &element))
            if (str_to_i64(element, &id)) add_end(vocabulary, id);
    return true;
}

static enum err read_ends(struct vocabulary *vocabulary, const char *folder, struct error *error) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    bool found = false;
    for (size_t i = 0; i < 2 && !found; i++) {
        struct text_file file;
        struct str object;
        enum err err = read_object(folder, files[i], &file, &object, error);
        if (err != OK) return err;
        found = add_ends(vocabulary, object) ||
                add_ends(vocabulary, json_span_get(object, "text_config"));
        free(file.at);
    }
    return OK;
}

/* ---- the chat template ---- */

static enum err open_template(struct vocabulary *vocabulary, const char *file, struct str text,
                              struct error *error) {
    if (chat_template_open(&vocabulary->template, text, error) == OK) return OK;
    return err_prefix(error, "%s", file);
}

/* A raw string of JSON as the template. */
static enum err open_raw(struct vocabulary *vocabulary, const char *file, struct str raw,
                         struct error *error) {
    struct buf text;
    buf_init(&text, TEMPLATE_BYTES_MAX);
    json_span_decode(&text, raw);
    enum err err = text.overflowed
                       ? err_set(error, ERR_LIMIT, "%s: a chat_template of more than %zu bytes",
                                 file, TEMPLATE_BYTES_MAX)
                       : open_template(vocabulary, file, buf_str(&text), error);
    buf_release(&text);
    return err;
}

/* A string, or a list of {name, template}: that named "default", else the only one. */
static struct str choose_template(struct str value) {
    struct json_span_iter iter;
    struct str element, only = {NULL, 0};
    size_t count = 0;
    if (json_span_is_string(value)) return value;
    if (value.bytes == 0 || *value.at != '[' || !json_span_enter(&iter, value)) return only;
    for (; json_span_element(&iter, &element); count++) {
        struct str text = json_span_get(element, "template");
        if (!json_span_is_string(text)) continue;
        struct str name = json_span_get(element, "name");
        if (json_span_is_string(name) && json_span_string_is(name, "default")) return text;
        only = text;
    }
    return count == 1 ? only : (struct str){NULL, 0};
}

static enum err read_template_of(struct vocabulary *vocabulary, const char *file, struct str object,
                                 struct error *error) {
    struct str raw = choose_template(json_span_get(object, "chat_template"));
    return raw.at && !vocabulary->template ? open_raw(vocabulary, file, raw, error) : OK;
}

static enum err read_jinja(struct vocabulary *vocabulary, const char *folder, struct error *error) {
    static const char name[] = "chat_template.jinja";
    struct text_file file;
    enum err err = read_file(folder, name, TEMPLATE_BYTES_MAX, &file, error);
    if (err != OK || !file.at) return err;
    err = open_template(vocabulary, name, (struct str){file.at, file.bytes}, error);
    free(file.at);
    return err;
}

/* ---- all of it ---- */

static enum err read_tokenizer(struct vocabulary *vocabulary, const char *folder,
                               struct error *error) {
    struct text_file file;
    enum err err = read_file(folder, "tokenizer.json", TOKENIZER_BYTES_MAX, &file, error);
    if (err != OK) return err;
    if (!file.at) return err_set(error, ERR_NOT_FOUND, "the folder has no tokenizer.json");
    err = tokenizer_open_json(&vocabulary->tokenizer, (struct str){file.at, file.bytes}, error);
    free(file.at);
    return err;
}

static enum err read_tokenizer_config(struct vocabulary *vocabulary, const char *folder,
                                      struct error *error) {
    static const char name[] = "tokenizer_config.json";
    struct text_file file;
    struct str object;
    enum err err = read_object(folder, name, &file, &object, error);
    if (err != OK || !file.at) return err;
    vocabulary->has_own_tokens = true;
    vocabulary->bos = find_token(vocabulary, object, "bos_token");
    vocabulary->eos = find_token(vocabulary, object, "eos_token");
    vocabulary->unknown = find_token(vocabulary, object, "unk_token");
    vocabulary->padding = find_token(vocabulary, object, "pad_token");
    add_end(vocabulary, vocabulary->eos);
    err = read_template_of(vocabulary, name, object, error);
    free(file.at);
    return err;
}

static enum err read_template_file(struct vocabulary *vocabulary, const char *folder,
                                   struct error *error) {
    static const char name[] = "chat_template.json";
    struct text_file file;
    struct str object;
    if (vocabulary->template) return OK;
    enum err err = read_object(folder, name, &file, &object, error);
    if (err != OK || !file.at) return err;
    err = read_template_of(vocabulary, name, object, error);
    free(file.at);
    return err;
}

enum err vocabulary_open_folder(struct vocabulary *ret_vocabulary, const char *folder,
                                struct error *error) {
    struct vocabulary vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
    enum err err = read_tokenizer(&vocabulary, folder, error);
    if (err == OK) err = read_jinja(&vocabulary, folder, error);
    if (err == OK) err = read_tokenizer_config(&vocabulary, folder, error);
    if (err == OK) err = read_template_file(&vocabulary, folder, error);
    if (err == OK) err = read_ends(&vocabulary, folder, error);
    if (err == OK)
        *ret_vocabulary = vocabulary;
    else
        vocabulary_close(&vocabulary);
    return err;
}
