/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_open_json: a struct tokenizer_source from the tokenizer.json of Hugging Face
 * tokenizers. A setting that changes ids and is unknown is refused by name; settings that do not
 * change ids (decoder, truncation, padding, offsets) are not looked at. */

#include "tokenizer/json_source.h"

#include "tokenizer/sentencepiece.h"

#define JSON_MARKS_MAX (4u << 20)

/* --- vocabulary ------------------------------------------------------------------------------ */

static enum err check_id(const json_t *value, struct str text, int32_t *ret_id,
                         struct error *error) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= TOKENIZER_VOCAB_TOKENS_MAX)
        return err_set(error, ERR_INVALID, "the id of '%.*s' is not a number from 0 to %u",
                       STR_ARGS(text), TOKENIZER_VOCAB_TOKENS_MAX - 1);
    *ret_id = (int32_t)json_integer_value(value);
    return OK;
}

/* The tokens are numbered up to the highest id that anything has. */
static enum err count_tokens(json_t *vocab, const json_t *added, size_t *ret_count,
                             struct error *error) {
    size_t count = *ret_count;
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        struct str text = {json_object_iter_key(at), json_object_iter_key_len(at)};
        int32_t id = 0;
        enum err err = check_id(json_object_iter_value(at), text, &id, error);
        if (err != OK) return err;
        if ((size_t)id >= count) count = (size_t)id + 1;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        struct str text = json_member_str(token, "content");
        if (text.bytes == 0)
            return err_set(error, ERR_INVALID, "added_tokens: %zu has no content", i);
        int32_t id = 0;
        enum err err = check_id(json_member(token, "id"), text, &id, error);
        if (err != OK) return err;
        if ((size_t)id >= count) count = (size_t)id + 1;
    }
    *ret_count = count;
    return OK;
}

enum err json_place_token(struct json_reading *reading, struct str text, int32_t id,
                          struct error *error) {
    struct str *place = &reading->tokens[id];
    if (place->bytes > 0 && !str_equals(*place, text))
        return err_set(error, ERR_INVALID, "'%.*s' and '%.*s' both have the id %d",
                       STR_ARGS(*place), STR_ARGS(text), id);
    *place = text;
    reading->kinds[id] = TOKEN_NORMAL;
    return OK;
}

static enum err read_added_token(struct json_reading *reading, const json_t *token,
                                 struct error *error) {
    struct str text = json_member_str(token, "content");
    int32_t id = 0;
    enum err err = check_id(json_member(token, "id"), text, &id, error);
    bool is_new = err == OK && reading->tokens[id].bytes == 0;
    if (err == OK) err = json_place_token(reading, text, id, error);
    if (err != OK) return err;
    reading->kinds[id] = json_says(token, "special") ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    reading->flags[id] = (uint8_t)((json_says(token, "lstrip") ? TOKEN_TAKES_LEFT : 0) |
                                   (json_says(token, "rstrip") ? TOKEN_TAKES_RIGHT : 0) |
                                   (json_says(token, "single_word") ? TOKEN_SINGLE_WORD : 0) |
                                   (json_says(token, "normalized") ? TOKEN_IN_NORMALIZED : 0) |
                                   (is_new ? TOKEN_ADDED : 0));
    return OK;
}

static enum err open_tokens(struct json_reading *reading, json_t *vocab, size_t count,
                            struct error *error) {
    enum err err = count_tokens(vocab, json_member(reading->root, "added_tokens"), &count, error);
    if (err != OK) return err;
    if (count == 0) return err_set(error, ERR_INVALID, "model: the vocab is empty");
    reading->tokens = arena_array(&reading->arena, count, sizeof *reading->tokens);
    reading->kinds = arena_alloc(&reading->arena, count);
    reading->flags = arena_alloc(&reading->arena, count);
    if (!reading->tokens || !reading->kinds || !reading->flags)
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", count);
    for (size_t id = 0; id < count; id++) reading->kinds[id] = TOKEN_UNUSED;
    reading->source.tokens = reading->tokens;
    reading->source.kinds = reading->kinds;
    reading->source.flags = reading->flags;
    reading->source.token_count = count;
    reading->source.kinds_are_exact = true;
    return OK;
}

enum err json_open_vocab(struct json_reading *reading, size_t count, struct error *error) {
    if (count > TOKENIZER_VOCAB_TOKENS_MAX)
        return err_set(error, ERR_LIMIT, "model: %zu tokens, over the limit of %u", count,
                       TOKENIZER_VOCAB_TOKENS_MAX);
    return open_tokens(reading, NULL, count, error);
}

enum err json_read_added_tokens(struct json_reading *reading, struct error *error) {
    const json_t *added = json_member(reading->root, "added_tokens");
    enum err err = OK;
    for (size_t i = 0; i < json_array_size(added) && err == OK; i++)
        err = read_added_token(reading, json_array_get(added, i), error);
    return err;
}

static enum err read_vocab(struct json_reading *reading, json_t *vocab, struct error *error) {
    enum err err = open_tokens(reading, vocab, 0, error);
    if (err != OK) return err;
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        struct str text = {json_object_iter_key(at), json_object_iter_key_len(at)};
        int32_t id = (int32_t)json_integer_value(json_object_iter_value(at));
        err = json_place_token(reading, text, id, error);
        if (err != OK) return err;
    }
    return json_read_added_tokens(reading, error);
}

/* "left right" or ["left", "right"]; an empty str for neither. */
static struct str merge_text(struct json_reading *reading, const json_t *merge) {
    if (json_is_string(merge)) return json_str(merge);
    if (json_array_size(merge) != 2) return (struct str){0};
    json_t *parts[2] = {json_array_get(merge, 0), json_array_get(merge, 1)};
    if (!json_is_string(parts[0]) || !json_is_string(parts[1])) return (struct str){0};
    struct str left = json_str(parts[0]), right = json_str(parts[1]);
    /* A space is not in the byte-level alphabet; with one the parts could not be told apart. */
    if (str_find_byte(left, ' ', 0) != SIZE_MAX) return (struct str){0};
    char *joined = arena_alloc(&reading->arena, left.bytes + 1 + right.bytes);
    if (!joined) return (struct str){0};
    if (left.bytes > 0) memcpy(joined, left.at, left.bytes);
    joined[left.bytes] = ' ';
    if (right.bytes > 0) memcpy(joined + left.bytes + 1, right.at, right.bytes);
    return (struct str){joined, left.bytes + 1 + right.bytes};
}

static enum err read_merges(struct json_reading *reading, const json_t *merges,
                            struct error *error) {
    size_t count = json_array_size(merges);
    struct str *list = arena_array(&reading->arena, count, sizeof *list);
    if (!list && count > 0) return err_set(error, ERR_LIMIT, "no memory for %zu merges", count);
    for (size_t i = 0; i < count; i++) {
        list[i] = merge_text(reading, json_array_get(merges, i));
        if (list[i].bytes == 0)
            return err_set(error, ERR_INVALID, "merges: %zu is not two parts", i);
    }
    reading->source.merges = list;
    reading->source.merge_count = count;
    reading->source.strict_merges = true;
    return OK;
}

static enum err check_wordpiece(struct json_reading *reading, const json_t *model,
                                struct error *error) {
    json_t *longest = json_member(model, "max_input_chars_per_word");
    struct str prefix = json_member_str(model, "continuing_subword_prefix");
    reading->source.model = STR("bert");
    reading->source.bert.word_characters_max = BERT_WORD_CHARACTERS_MAX;
    if (prefix.bytes > 0 && !str_is(prefix, "##"))
        return err_set(error, ERR_INVALID,
                       "model: the continuing_subword_prefix '%.*s' is not supported",
                       STR_ARGS(prefix));
    if (!longest) return OK;
    if (!json_is_integer(longest) || json_integer_value(longest) < 1)
        return err_set(error, ERR_INVALID, "model: max_input_chars_per_word is no count");
    reading->source.bert.word_characters_max = (size_t)json_integer_value(longest);
    return OK;
}

/* Names the kind of tokenizer, and refuses settings that no kind has. */
static enum err check_model(struct json_reading *reading, const json_t *model,
                            struct error *error) {
    struct str type = json_kind(model);
    if (!json_is_object(model)) return err_set(error, ERR_INVALID, "model: not an object");
    if (str_is(type, "Unigram")) {
        reading->source.model = STR("t5");
        return json_is_array(json_member(model, "vocab"))
                   ? OK
                   : err_set(error, ERR_INVALID, "model: no vocab");
    }
    if (type.bytes > 0 && !str_is(type, "BPE") && !str_is(type, "WordPiece"))
        return json_refuse_type("model", model, error);
    if (!json_is_object(json_member(model, "vocab")))
        return err_set(error, ERR_INVALID, "model: no vocab");
    if (str_is(type, "WordPiece")) return check_wordpiece(reading, model, error);
    if (json_says(model, "byte_fallback")) {
        reading->source.model = STR("llama");
        reading->source.spaces_late = true; /* until a normalizer says otherwise */
    }
    json_t *dropout = json_member(model, "dropout");
    if (dropout && json_number_value(dropout) != 0)
        return err_set(error, ERR_INVALID, "model: dropout is not supported");
    if (json_member_str(model, "continuing_subword_prefix").bytes > 0)
        return err_set(error, ERR_INVALID, "model: continuing_subword_prefix is not supported");
    if (json_member_str(model, "end_of_word_suffix").bytes > 0)
        return err_set(error, ERR_INVALID, "model: end_of_word_suffix is not supported");
    return OK;
}

/* "word" and "##piece" become U+2581 "word" and "piece", as a GGUF has them. */
static enum err respell_words(struct json_reading *reading, struct error *error) {
    static const char space[3] = {'\xE2', '\x96', '\x81'};
    for (size_t id = 0; id < reading->source.token_count; id++) {
        struct str text = reading->tokens[id];
        if (reading->kinds[id] != TOKEN_NORMAL || text.bytes == 0) continue;
        if (text.bytes > 2 && memcmp(text.at, "##", 2) == 0) {
            reading->tokens[id] = str_skip(text, 2);
            continue;
        }
        char *spaced = arena_alloc(&reading->arena, text.bytes + 3);
        if (!spaced) return err_set(error, ERR_LIMIT, "no memory for the tokens");
        memcpy(spaced, space, sizeof space);
        for (size_t i = 0; i < text.bytes; i++) spaced[3 + i] = text.at[i];
        reading->tokens[id] = (struct str){spaced, text.bytes + 3};
    }
    return OK;
}

static void mark_bytes(struct json_reading *reading) {
    unsigned char byte;
    for (size_t id = 0; id < reading->source.token_count; id++)
        if (reading->kinds[id] == TOKEN_NORMAL && sentencepiece_byte(reading->tokens[id], &byte))
            reading->kinds[id] = TOKEN_BYTE;
}

static enum err read_model(struct json_reading *reading, struct error *error) {
    const json_t *model = json_member(reading->root, "model");
    enum err err = check_model(reading, model, error);
    if (err != OK) return err;
    if (str_is(reading->source.model, "t5")) return json_read_unigram(reading, model, error);
    json_t *vocab = json_member(model, "vocab");
    struct str unknown = json_member_str(model, "unk_token");
    if (unknown.bytes > 0) {
        json_t *id = json_object_getn(vocab, unknown.at, unknown.bytes);
        if (json_is_integer(id)) {
            err = check_id(id, unknown, &reading->source.unknown, error);
            reading->source.missing =
                json_says(model, "fuse_unk") ? MISSING_UNKNOWN_FUSED : MISSING_UNKNOWN;
        }
    }
    reading->source.merge_policy =
        json_says(model, "ignore_merges") ? MERGE_UNLESS_WHOLE : MERGE_ALWAYS;
    if (err == OK) err = read_vocab(reading, vocab, error);
    if (err != OK) return err;
    if (str_is(reading->source.model, "bert")) return respell_words(reading, error);
    if (str_is(reading->source.model, "llama")) mark_bytes(reading);
    return read_merges(reading, json_member(model, "merges"), error);
}

/* --- post-processor -------------------------------------------------------------------------- */

/* The one id of the special token that a template names. */
static enum err template_id(const json_t *processor, const json_t *special, int32_t *ret_id,
                            struct error *error) {
    struct str name = json_member_str(special, "id");
    const json_t *tokens = json_member(processor, "special_tokens");
    const json_t *token = name.bytes > 0 ? json_object_getn(tokens, name.at, name.bytes) : NULL;
    const json_t *ids = json_member(token, "ids");
    if (json_array_size(ids) != 1)
        return err_set(error, ERR_INVALID,
                       "post_processor: the special token '%.*s' is not one token", STR_ARGS(name));
    return check_id(json_array_get(ids, 0), name, ret_id, error);
}

/* At most one special token before the text and one after it. */
static enum err read_template(struct json_reading *reading, const json_t *processor,
                              struct error *error) {
    const json_t *single = json_member(processor, "single");
    bool seen_text = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_member(piece, "SpecialToken");
        bool *flag = seen_text ? &reading->source.add_eos : &reading->source.add_bos;
        int32_t *id = seen_text ? &reading->source.eos : &reading->source.bos;
        if (special && !*flag) {
            enum err err = template_id(processor, special, id, error);
            if (err != OK) return err;
            *flag = true;
        } else if (!special && !seen_text && json_member(piece, "Sequence")) {
            seen_text = true;
        } else {
            return err_set(error, ERR_INVALID, "post_processor: piece %zu of the template", i);
        }
    }
    if (!seen_text) return err_set(error, ERR_INVALID, "post_processor: the template has no text");
    return OK;
}

/* ["[SEP]", 102] */
static enum err read_pair_id(const json_t *pair, int32_t *ret_id, struct error *error) {
    struct str name = json_str(json_array_get(pair, 0));
    return check_id(json_array_get(pair, 1), name, ret_id, error);
}

static enum err read_bert_processing(struct json_reading *reading, const json_t *processor,
                                     struct error *error) {
    reading->source.add_bos = reading->source.add_eos = true;
    enum err err = read_pair_id(json_member(processor, "cls"), &reading->source.bos, error);
    if (err == OK) err = read_pair_id(json_member(processor, "sep"), &reading->source.eos, error);
    return err;
}

static enum err read_post_processor(struct json_reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "post_processor");
    bool seen_template = false;
    for (size_t i = 0; i < json_step_count(part, "processors"); i++) {
        json_t *step = json_step(part, "processors", i);
        if (str_is(json_kind(step), "ByteLevel")) continue; /* offsets only */
        bool is_bert = str_is(json_kind(step), "BertProcessing") ||
                       str_is(json_kind(step), "RobertaProcessing");
        if ((!is_bert && !str_is(json_kind(step), "TemplateProcessing")) || seen_template)
            return json_refuse_type("post_processor", step, error);
        seen_template = true;
        enum err err = is_bert ? read_bert_processing(reading, step, error)
                               : read_template(reading, step, error);
        if (err != OK) return err;
    }
    return OK;
}

/* A value takes a hundred times the memory of its shortest text, and time to match. So a text
 * with more marks than any vocabulary is refused before it is parsed. The largest in use has 2
 * million. */
static enum err check_values(struct str json, struct error *error) {
    static const bool is_mark[256] = {[','] = true, [':'] = true, ['['] = true, ['{'] = true};
    size_t marks = 0;
    for (size_t i = 0; i < json.bytes; i++) marks += is_mark[(unsigned char)json.at[i]];
    if (marks <= JSON_MARKS_MAX) return OK;
    return err_set(error, ERR_LIMIT, "tokenizer.json: about %zu values, over the limit of %u",
                   marks, JSON_MARKS_MAX);
}

enum err tokenizer_open_json(struct tokenizer **ret_tokenizer, struct str json,
                             struct error *error) {
    struct json_reading reading = {
        .source = {.model = STR("gpt2"),
                   .bos = TOKEN_NONE,
                   .eos = TOKEN_NONE,
                   .eot = TOKEN_NONE,
                   .unknown = TOKEN_NONE,
                   .padding = TOKEN_NONE},
    };
    enum err err = check_values(json, error);
    if (err != OK) return err;
    err = json_read(&reading.root, json, error);
    if (err != OK) {
        err_prefix(error, "tokenizer.json");
        return err;
    }
    arena_init(&reading.arena, TOKENIZER_VOCAB_BYTES_MAX);
    if (!json_is_object(reading.root)) err = err_set(error, ERR_INVALID, "not an object");
    /* The model comes first: it names the kind of tokenizer. */
    if (err == OK) err = read_model(&reading, error);
    if (err == OK) err = json_read_normalizer(&reading, error);
    if (err == OK) err = json_read_pre_tokenizer(&reading, error);
    if (err == OK) err = read_post_processor(&reading, error);
    if (err == OK) err = tokenizer_open(ret_tokenizer, &reading.source, error);
    if (err != OK) err_prefix(error, "tokenizer.json");
    arena_release(&reading.arena);
    json_decref(reading.root);
    return err;
}
