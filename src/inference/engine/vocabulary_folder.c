/* SPDX-License-Identifier: Apache-2.0 */

/* The vocabulary of a folder of Hugging Face's tools: tokenizer.json, or the file of another maker's
 * tokenizer, and the files next to it.
 *
 * The chat template is that of chat_template.jinja, else of tokenizer_config.json, else of
 * chat_template.json. That of requests with tools is in additional_chat_templates, or in the same
 * file, where it has several. A generation ends at the tokens of generation_config.json, else of
 * config.json, at the eos_token of tokenizer_config.json, and at the spellings the tokenizer
 * knows. All files except the tokenizer are read without a tree, so that a small file costs
 * little memory. */

#include "base/mem.h"
#include "base/os.h"
#include "engine/vocabulary.h"
#include "json/json.h"
#include "json/span.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define FILE_BYTES_MAX ((size_t)16 * 1024 * 1024)
#define TEMPLATE_BYTES_MAX ((size_t)1024 * 1024)
#define TOKEN_BYTES_MAX ((size_t)1024)
#define LABELS_MAX 4096 /* as checkpoint/config.h */
#define LABEL_BYTES_MAX ((size_t)1024)

static const struct {
    const char *name;
    size_t bytes_max;
} files[VOCABULARY_PART_COUNT] = {
    [PART_TEMPLATE] = {"chat_template.jinja", TEMPLATE_BYTES_MAX},
    [PART_TOOL_TEMPLATE] = {"additional_chat_templates/tool_use.jinja", TEMPLATE_BYTES_MAX},
    [PART_TOKENIZER_CONFIG] = {"tokenizer_config.json", FILE_BYTES_MAX},
    [PART_TEMPLATE_JSON] = {"chat_template.json", FILE_BYTES_MAX},
    [PART_GENERATION_CONFIG] = {"generation_config.json", FILE_BYTES_MAX},
    [PART_CONFIG] = {"config.json", FILE_BYTES_MAX},
};

/* Reads the object of a part; OK without an object if the part is missing. */
static enum err read_object(const struct str *parts, enum vocabulary_part part,
                            struct str *ret_object, struct error *error) {
    struct str text = parts[part];
    *ret_object = (struct str){NULL, 0};
    if (!text.at) return OK;
    if (json_span_is_utf8(text) && json_span_read(text, ret_object) &&
        json_span_is_object(*ret_object))
        return OK;
    return err_set(error, ERR_INVALID, "%s is no JSON object", files[part].name);
}

/* ---- tokens ---- */

/* The token of "<s>" or {"content": "<s>", …}; TOKEN_NONE for null and for texts that are no
 * token. */
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

/* Adds eos_token_id: one id, or a list. False if the object has none. */
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

static enum err read_ends(struct vocabulary *vocabulary, const struct str *parts,
                          struct error *error) {
    bool found = false;
    for (int part = PART_GENERATION_CONFIG; part <= PART_CONFIG && !found; part++) {
        struct str object;
        enum err err = read_object(parts, (enum vocabulary_part)part, &object, error);
        if (err != OK) return err;
        found = add_ends(vocabulary, object) ||
                add_ends(vocabulary, json_span_get(object, "text_config"));
    }
    return OK;
}

/* ---- labels ---- */

/* Names of id2label; a number out of range has none. */
static enum err read_labels(struct vocabulary *vocabulary, const struct str *parts,
                            struct error *error) {
    struct str object, key, value;
    struct json_span_iter iter;
    enum err err = read_object(parts, PART_CONFIG, &object, error);
    object = json_span_get(object, "id2label");
    if (err != OK || !json_span_is_object(object) || !json_span_enter(&iter, object)) return err;
    vocabulary->labels = mem_new(LABELS_MAX, sizeof *vocabulary->labels);
    vocabulary->label_count = LABELS_MAX;
    while (json_span_member(&iter, &key, &value)) {
        const struct str number = {key.at + 1, key.bytes > 2 ? key.bytes - 2 : 0};
        struct buf text;
        uint64_t index;
        if (!str_to_u64(number, &index) || index >= LABELS_MAX || vocabulary->labels[index] ||
            !json_span_is_string(value))
            continue;
        buf_init(&text, LABEL_BYTES_MAX);
        json_span_decode(&text, value);
        buf_add_byte(&text, '\0');
        if (!text.overflowed) vocabulary->labels[index] = mem_text(text.at);
        buf_release(&text);
    }
    return OK;
}

/* ---- the chat template ---- */

static enum err open_template(struct jinja_template **ret_template, const char *file,
                              struct str text, struct error *error) {
    if (jinja_template_open(ret_template, text, error) == OK) return OK;
    return err_prefix(error, "%s", file);
}

/* Opens a raw JSON string as a template, unless *template is set or the value is no string. */
static enum err open_raw(struct jinja_template **template, const char *file, struct str raw,
                         struct error *error) {
    if (*template || !raw.at) return OK;
    struct buf text;
    buf_init(&text, TEMPLATE_BYTES_MAX);
    json_span_decode(&text, raw);
    enum err err = text.overflowed
                       ? err_set(error, ERR_LIMIT, "%s: a chat_template of more than %zu bytes",
                                 file, TEMPLATE_BYTES_MAX)
                       : open_template(template, file, buf_str(&text), error);
    buf_release(&text);
    return err;
}

/* The value of a "chat_template": a string, a list of {name, template}, or an object of templates
 * by name. Of several, "tool_use" is for requests with tools; "default", else the only one, is for
 * the others. */
struct raw_templates {
    struct str others, tools;
};

static void take_named(struct raw_templates *raw, struct str name, struct str text) {
    if (!json_span_is_string(name) || !json_span_is_string(text)) return;
    if (json_span_string_is(name, "default")) raw->others = text;
    if (json_span_string_is(name, "tool_use")) raw->tools = text;
}

static struct raw_templates templates_by_name(struct str object) {
    struct raw_templates raw = {.others = {NULL, 0}};
    struct json_span_iter iter;
    struct str name, text, last = {NULL, 0};
    size_t count = 0;
    if (!json_span_enter(&iter, object)) return raw;
    for (; json_span_member(&iter, &name, &text); count++) {
        take_named(&raw, name, text);
        last = text;
    }
    if (count == 1 && json_span_is_string(last)) raw.others = last;
    return raw;
}

static struct raw_templates choose_templates(struct str value) {
    struct raw_templates raw = {.others = {NULL, 0}};
    struct json_span_iter iter;
    struct str element, last = {NULL, 0};
    size_t count = 0;
    if (json_span_is_object(value)) return templates_by_name(value);
    if (json_span_is_string(value)) raw.others = value;
    if (value.bytes == 0 || *value.at != '[' || !json_span_enter(&iter, value)) return raw;
    for (; json_span_element(&iter, &element); count++) {
        struct str text = json_span_get(element, "template");
        if (!json_span_is_string(text)) continue;
        take_named(&raw, json_span_get(element, "name"), text);
        last = text;
    }
    if (count == 1) raw.others = last;
    return raw;
}

static enum err read_templates_of(struct vocabulary *vocabulary, enum vocabulary_part part,
                                  struct str object, struct error *error) {
    struct raw_templates raw = choose_templates(json_span_get(object, "chat_template"));
    if (vocabulary->template) return OK;
    enum err err = open_raw(&vocabulary->template, files[part].name, raw.others, error);
    return err == OK ? open_raw(&vocabulary->tool_template, files[part].name, raw.tools, error)
                     : err;
}

/* ---- all of it ---- */

static enum err read_tokenizer_config(struct vocabulary *vocabulary, const struct str *parts,
                                      struct error *error) {
    struct str object;
    enum err err = read_object(parts, PART_TOKENIZER_CONFIG, &object, error);
    if (err != OK || !object.at) return err;
    vocabulary->has_own_tokens = true;
    vocabulary->bos = find_token(vocabulary, object, "bos_token");
    vocabulary->eos = find_token(vocabulary, object, "eos_token");
    vocabulary->unknown = find_token(vocabulary, object, "unk_token");
    vocabulary->padding = find_token(vocabulary, object, "pad_token");
    add_end(vocabulary, vocabulary->eos);
    return OK;
}

static enum err read_templates(struct vocabulary *vocabulary, const struct str *parts,
                               struct error *error) {
    static const enum vocabulary_part objects[] = {PART_TOKENIZER_CONFIG, PART_TEMPLATE_JSON};
    enum err err = OK;
    if (parts[PART_TEMPLATE].at)
        err = open_template(&vocabulary->template, files[PART_TEMPLATE].name, parts[PART_TEMPLATE],
                            error);
    if (err == OK && parts[PART_TOOL_TEMPLATE].at)
        err = open_template(&vocabulary->tool_template, files[PART_TOOL_TEMPLATE].name,
                            parts[PART_TOOL_TEMPLATE], error);
    for (size_t i = 0; i < sizeof objects / sizeof *objects && err == OK; i++) {
        struct str object;
        err = read_object(parts, objects[i], &object, error);
        if (err == OK) err = read_templates_of(vocabulary, objects[i], object, error);
    }
    return err;
}

enum err vocabulary_add_parts(struct vocabulary *vocabulary,
                              const struct str parts[VOCABULARY_PART_COUNT], struct error *error) {
    enum err err = read_templates(vocabulary, parts, error);
    if (err == OK) err = read_tokenizer_config(vocabulary, parts, error);
    if (err == OK) err = read_labels(vocabulary, parts, error);
    return err == OK ? read_ends(vocabulary, parts, error) : err;
}

/* Reads a whole file, which the caller frees; OK with an empty str if it does not exist. */
static enum err read_file(const char *folder, const char *name, size_t bytes_max, char **ret_bytes,
                          struct str *ret_text, struct error *error) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the path of the folder is too long");
    size_t bytes;
    enum err err = os_read_file(path, bytes_max, ret_bytes, &bytes, error);
    if (err == OK && str_is(str_from(name), files[PART_CONFIG].name))
        json_mend_python(*ret_bytes, bytes);
    if (err == OK) *ret_text = (struct str){*ret_bytes, bytes};
    return err == ERR_NOT_FOUND ? OK : err;
}

/* Refuses added tokens behind those of a tokenizer's file: they would be missing. */
static enum err check_added(const struct vocabulary *vocabulary, struct str added, const char *file,
                            struct error *error) {
    const size_t count = tokenizer_count(vocabulary->tokenizer);
    struct json_span_iter iter;
    struct str key, value;
    bool inside = json_span_is_object(added) && json_span_enter(&iter, added);
    while (inside && json_span_member(&iter, &key, &value)) {
        uint64_t id;
        struct str number = {key.at + 1, key.bytes > 2 ? key.bytes - 2 : 0};
        if (!str_to_u64(number, &id) || id >= count)
            return err_set(
                error, ERR_INVALID,
                "tokenizer_config.json: the added token %.*s is not in %s, which has %zu: "
                "tokenizer.json is needed",
                STR_ARGS(number), file, count);
    }
    return OK;
}

static enum err open_json(struct vocabulary *vocabulary, struct str json, struct str config,
                          struct error *error) {
    (void)config;
    return tokenizer_open_json(&vocabulary->tokenizer, json, error);
}

static enum err open_tekken(struct vocabulary *vocabulary, struct str json, struct str config,
                            struct error *error) {
    (void)config;
    return tokenizer_open_tekken(&vocabulary->tokenizer, json, error);
}

/* tokenizer_config.json says whether texts get BOS (by default) and EOS. */
static enum err open_model(struct vocabulary *vocabulary, struct str model, struct str config,
                           struct error *error) {
    enum err err = tokenizer_open_model(
        &vocabulary->tokenizer, model, !str_is(json_span_get(config, "add_bos_token"), "false"),
        str_is(json_span_get(config, "add_eos_token"), "true"), error);
    if (err != OK) return err;
    return check_added(vocabulary, json_span_get(config, "added_tokens_decoder"), "tokenizer.model",
                       error);
}

/* Other models have a file of this name too, with other ids. */
static enum err open_fairseq(struct vocabulary *vocabulary, struct str model, struct str config,
                             struct error *error) {
    const struct str name = json_span_get(config, "tokenizer_class");
    if (name.at && !json_span_string_is(name, "XLMRobertaTokenizer") &&
        !json_span_string_is(name, "XLMRobertaTokenizerFast"))
        return err_set(
            error, ERR_INVALID,
            "sentencepiece.bpe.model: the ids of the tokenizer_class %.*s are not known: "
            "tokenizer.json is needed",
            STR_ARGS(name));
    enum err err = tokenizer_open_fairseq(&vocabulary->tokenizer, model, error);
    if (err != OK) return err;
    return check_added(vocabulary, json_span_get(config, "added_tokens_decoder"),
                       "sentencepiece.bpe.model", error);
}

static enum err open_tiktoken(struct vocabulary *vocabulary, struct str lines, struct str config,
                              struct error *error) {
    return tokenizer_open_tiktoken(&vocabulary->tokenizer, lines, config, error);
}

/* Files that have a tokenizer; the first that is there is read, with the object of
 * tokenizer_config.json. */
static const struct {
    const char *name;
    enum err (*open)(struct vocabulary *vocabulary, struct str text, struct str config,
                     struct error *error);
} tokenizers[] = {{"tokenizer.json", open_json},
                  {"tekken.json", open_tekken},
                  {"tokenizer.model", open_model},
                  {"sentencepiece.bpe.model", open_fairseq},
                  {"tiktoken.model", open_tiktoken}};

/* Opens the first file with the object of tokenizer_config.json. */
static enum err open_first(struct vocabulary *vocabulary, const char *folder, struct str object,
                           struct error *error) {
    const size_t count = sizeof tokenizers / sizeof *tokenizers;
    char *bytes = NULL;
    struct str text = {NULL, 0};
    enum err err = OK;
    size_t i = 0;
    for (; i < count && err == OK && !bytes; i++)
        err = read_file(folder, tokenizers[i].name, TOKENIZER_BYTES_MAX, &bytes, &text, error);
    if (err == OK)
        err = bytes ? tokenizers[i - 1].open(vocabulary, text, object, error)
                    : err_set(error, ERR_INVALID,
                              "the folder has no tokenizer.json, tekken.json, tokenizer.model, "
                              "sentencepiece.bpe.model or tiktoken.model");
    free(bytes);
    return err;
}

static enum err read_tokenizer(struct vocabulary *vocabulary, const char *folder,
                               struct error *error) {
    char *bytes = NULL;
    struct str parts[VOCABULARY_PART_COUNT] = {{NULL, 0}}, object = {NULL, 0};
    enum err err = read_file(folder, files[PART_TOKENIZER_CONFIG].name, FILE_BYTES_MAX, &bytes,
                             &parts[PART_TOKENIZER_CONFIG], error);
    if (err == OK) err = read_object(parts, PART_TOKENIZER_CONFIG, &object, error);
    if (err == OK) err = open_first(vocabulary, folder, object, error);
    free(bytes);
    if (err == OK) vocabulary_find_marks(vocabulary);
    return err;
}

/* Reads the parts and lets `add` take them. */
static enum err read_parts(struct vocabulary *vocabulary, const char *folder,
                           enum err (*add)(struct vocabulary *vocabulary, const struct str *parts,
                                           struct error *error),
                           struct error *error) {
    char *bytes[VOCABULARY_PART_COUNT] = {NULL};
    struct str parts[VOCABULARY_PART_COUNT] = {{NULL, 0}};
    enum err err = OK;
    for (int i = 0; i < VOCABULARY_PART_COUNT && err == OK; i++)
        err = read_file(folder, files[i].name, files[i].bytes_max, &bytes[i], &parts[i], error);
    if (err == OK) err = add(vocabulary, parts, error);
    for (int i = 0; i < VOCABULARY_PART_COUNT; i++) free(bytes[i]);
    return err;
}

enum err vocabulary_open_folder(struct vocabulary *ret_vocabulary, const char *folder,
                                struct error *error) {
    struct vocabulary vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
    enum err err = read_tokenizer(&vocabulary, folder, error);
    if (err == OK) err = read_parts(&vocabulary, folder, vocabulary_add_parts, error);
    if (err == OK)
        *ret_vocabulary = vocabulary;
    else
        vocabulary_close(&vocabulary);
    return err;
}

enum err vocabulary_read_templates(struct vocabulary *ret_vocabulary, const char *folder,
                                   struct error *error) {
    struct vocabulary vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
    enum err err = read_parts(&vocabulary, folder, read_templates, error);
    if (err == OK)
        *ret_vocabulary = vocabulary;
    else
        vocabulary_close(&vocabulary);
    return err;
}
