/* SPDX-License-Identifier: Apache-2.0 */

/* tokenizer_open_json: a struct tokenizer_source from the tokenizer.json of Hugging Face
 * tokenizers. What changes ids and is not understood is refused by name; what does not change ids
 * (decoder, truncation, padding, offsets) is not looked at. */

#include "base/arena.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"
#include "json/json.h"

/* Strings are borrowed from the JSON value; arrays and joined merges live in the arena. */
struct reading {
    json_t *root;
    struct arena arena;
    struct tokenizer_source source;
    struct str *tokens;
    uint8_t *kinds;
    uint8_t *flags;
};

static struct str type_of(const json_t *object) {
    return json_member_str(object, "type");
}

static bool member_is_true(const json_t *object, const char *key) {
    return json_is_true(json_member(object, key));
}

static enum err refuse_type(const char *part, const json_t *object, struct error *error) {
    struct str type = type_of(object);
    if (type.bytes == 0) return err_set(error, ERR_INVALID, "%s: no type", part);
    return err_set(error, ERR_INVALID, "%s: the type '%.*s' is not supported", part,
                   STR_ARGS(type));
}

/* The steps of `part`: the list of a Sequence, or the one step itself. */
static size_t step_count(const json_t *part, const char *list_key) {
    if (!part) return 0;
    return str_is(type_of(part), "Sequence") ? json_array_size(json_member(part, list_key)) : 1;
}

static json_t *step_at(json_t *part, const char *list_key, size_t index) {
    if (!str_is(type_of(part), "Sequence")) return part;
    return json_array_get(json_member(part, list_key), index);
}

/* --- normalizer and pre-tokenizer ------------------------------------------------------------ */

static enum err read_normalizer(struct reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "normalizer");
    for (size_t i = 0; i < step_count(part, "normalizers"); i++) {
        json_t *step = step_at(part, "normalizers", i);
        if (!str_is(type_of(step), "NFC")) return refuse_type("normalizer", step, error);
        reading->source.normalize_nfc = true;
    }
    return OK;
}

/* Known expressions, by their exact text. */
static const struct {
    const char *expression;
    const char *pre;
} known_splits[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "llama-bpe"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "qwen2"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
     " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "qwen35"},
};

static enum err read_split(struct reading *reading, const json_t *step, struct error *error) {
    struct str behavior = json_member_str(step, "behavior");
    if (!str_is(behavior, "Isolated") || member_is_true(step, "invert"))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: a Split other than Isolated is not supported");
    struct str expression = json_member_str(json_member(step, "pattern"), "Regex");
    for (size_t i = 0; i < sizeof known_splits / sizeof *known_splits; i++) {
        if (!str_is(expression, known_splits[i].expression)) continue;
        reading->source.pre = str_from(known_splits[i].pre);
        return OK;
    }
    return err_set(error, ERR_INVALID, "pre_tokenizer: the Split pattern '%.*s' is not known",
                   STR_ARGS(expression));
}

static enum err read_digits(struct reading *reading, const json_t *step, struct error *error) {
    if (!member_is_true(step, "individual_digits"))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: Digits without individual_digits is not supported");
    reading->source.pre = STR("smollm");
    return OK;
}

/* The last step: it maps bytes to characters, and splits as GPT-2 does if use_regex. */
static enum err read_byte_level(struct reading *reading, const json_t *step, struct error *error) {
    if (!json_is_false(json_member(step, "add_prefix_space")))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: ByteLevel with add_prefix_space is not supported");
    json_t *use_regex = json_member(step, "use_regex");
    bool splits = !use_regex || json_is_true(use_regex);
    bool is_split_already = reading->source.pre.bytes > 0;
    bool after_digits = str_is(reading->source.pre, "smollm");
    if (splits == (is_split_already && !after_digits))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: ByteLevel %s use_regex is not supported %s",
                       splits ? "with" : "without", is_split_already ? "here" : "alone");
    if (!is_split_already) reading->source.pre = STR("gpt-2");
    return OK;
}

static enum err read_pre_tokenizer(struct reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "pre_tokenizer");
    size_t count = step_count(part, "pretokenizers");
    if (count == 0)
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: only byte-level BPE is supported, and there is none");
    for (size_t i = 0; i < count; i++) {
        json_t *step = step_at(part, "pretokenizers", i);
        struct str type = type_of(step);
        enum err err;
        if (i == 0 && count == 2 && str_is(type, "Split"))
            err = read_split(reading, step, error);
        else if (i == 0 && count == 2 && str_is(type, "Digits"))
            err = read_digits(reading, step, error);
        else if (i + 1 == count && str_is(type, "ByteLevel"))
            err = read_byte_level(reading, step, error);
        else
            err = refuse_type("pre_tokenizer", step, error);
        if (err != OK) return err;
    }
    return count <= 2 ? OK : err_set(error, ERR_INVALID, "pre_tokenizer: %zu steps", count);
}

/* --- vocabulary ------------------------------------------------------------------------------ */

static enum err check_id(const json_t *value, struct str text, int32_t *ret_id,
                         struct error *error) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= VOCAB_TOKENS_MAX)
        return err_set(error, ERR_INVALID, "the id of '%.*s' is not a number from 0 to %u",
                       STR_ARGS(text), VOCAB_TOKENS_MAX - 1);
    *ret_id = (int32_t)json_integer_value(value);
    return OK;
}

/* The tokens are numbered up to the highest id that anything has. */
static enum err count_tokens(json_t *vocab, const json_t *added, size_t *ret_count,
                             struct error *error) {
    size_t count = 0;
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

static enum err place_token(struct reading *reading, struct str text, int32_t id,
                            struct error *error) {
    struct str *place = &reading->tokens[id];
    if (place->bytes > 0 && !str_equals(*place, text))
        return err_set(error, ERR_INVALID, "'%.*s' and '%.*s' both have the id %d",
                       STR_ARGS(*place), STR_ARGS(text), id);
    *place = text;
    reading->kinds[id] = TOKEN_NORMAL;
    return OK;
}

static enum err read_added_token(struct reading *reading, const json_t *token,
                                 struct error *error) {
    struct str text = json_member_str(token, "content");
    int32_t id = 0;
    enum err err = check_id(json_member(token, "id"), text, &id, error);
    if (err == OK) err = place_token(reading, text, id, error);
    if (err != OK) return err;
    reading->kinds[id] = member_is_true(token, "special") ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    reading->flags[id] = (uint8_t)((member_is_true(token, "lstrip") ? TOKEN_TAKES_LEFT : 0) |
                                   (member_is_true(token, "rstrip") ? TOKEN_TAKES_RIGHT : 0) |
                                   (member_is_true(token, "single_word") ? TOKEN_SINGLE_WORD : 0) |
                                   (member_is_true(token, "normalized") ? TOKEN_IN_NORMALIZED : 0));
    return OK;
}

static enum err read_vocab(struct reading *reading, json_t *vocab, struct error *error) {
    json_t *added = json_member(reading->root, "added_tokens");
    size_t count = 0;
    enum err err = count_tokens(vocab, added, &count, error);
    if (err != OK) return err;
    if (count == 0) return err_set(error, ERR_INVALID, "model: the vocab is empty");
    reading->tokens = arena_array(&reading->arena, count, sizeof *reading->tokens);
    reading->kinds = arena_alloc(&reading->arena, count);
    reading->flags = arena_alloc(&reading->arena, count);
    if (!reading->tokens || !reading->kinds || !reading->flags)
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", count);
    for (size_t id = 0; id < count; id++) reading->kinds[id] = TOKEN_UNUSED;
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        struct str text = {json_object_iter_key(at), json_object_iter_key_len(at)};
        int32_t id = (int32_t)json_integer_value(json_object_iter_value(at));
        err = place_token(reading, text, id, error);
        if (err != OK) return err;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        err = read_added_token(reading, json_array_get(added, i), error);
        if (err != OK) return err;
    }
    reading->source.tokens = reading->tokens;
    reading->source.kinds = reading->kinds;
    reading->source.flags = reading->flags;
    reading->source.token_count = count;
    return OK;
}

/* "left right" or ["left", "right"]; an empty str for neither. */
static struct str merge_text(struct reading *reading, const json_t *merge) {
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

static enum err read_merges(struct reading *reading, const json_t *merges, struct error *error) {
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

/* Settings of the model that byte-level BPE does not have. */
static enum err check_model(const json_t *model, struct error *error) {
    struct str type = type_of(model);
    if (!json_is_object(model)) return err_set(error, ERR_INVALID, "model: not an object");
    if (type.bytes > 0 && !str_is(type, "BPE")) return refuse_type("model", model, error);
    if (member_is_true(model, "byte_fallback"))
        return err_set(error, ERR_INVALID,
                       "model: BPE with byte_fallback (SentencePiece) is not supported");
    json_t *dropout = json_member(model, "dropout");
    if (dropout && json_number_value(dropout) != 0)
        return err_set(error, ERR_INVALID, "model: dropout is not supported");
    if (json_member_str(model, "continuing_subword_prefix").bytes > 0)
        return err_set(error, ERR_INVALID, "model: continuing_subword_prefix is not supported");
    if (json_member_str(model, "end_of_word_suffix").bytes > 0)
        return err_set(error, ERR_INVALID, "model: end_of_word_suffix is not supported");
    if (!json_is_object(json_member(model, "vocab")))
        return err_set(error, ERR_INVALID, "model: no vocab");
    return OK;
}

static enum err read_model(struct reading *reading, struct error *error) {
    const json_t *model = json_member(reading->root, "model");
    enum err err = check_model(model, error);
    if (err != OK) return err;
    json_t *vocab = json_member(model, "vocab");
    struct str unknown = json_member_str(model, "unk_token");
    if (unknown.bytes > 0) {
        json_t *id = json_object_getn(vocab, unknown.at, unknown.bytes);
        if (json_is_integer(id)) {
            err = check_id(id, unknown, &reading->source.unknown, error);
            reading->source.missing =
                member_is_true(model, "fuse_unk") ? MISSING_UNKNOWN_FUSED : MISSING_UNKNOWN;
        }
    }
    reading->source.merge_policy =
        member_is_true(model, "ignore_merges") ? MERGE_UNLESS_WHOLE : MERGE_ALWAYS;
    if (err == OK) err = read_vocab(reading, vocab, error);
    if (err == OK) err = read_merges(reading, json_member(model, "merges"), error);
    return err;
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
static enum err read_template(struct reading *reading, const json_t *processor,
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

static enum err read_post_processor(struct reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "post_processor");
    bool seen_template = false;
    for (size_t i = 0; i < step_count(part, "processors"); i++) {
        json_t *step = step_at(part, "processors", i);
        if (str_is(type_of(step), "ByteLevel")) continue; /* offsets only */
        if (!str_is(type_of(step), "TemplateProcessing") || seen_template)
            return refuse_type("post_processor", step, error);
        seen_template = true;
        enum err err = read_template(reading, step, error);
        if (err != OK) return err;
    }
    return OK;
}

enum err tokenizer_open_json(struct tokenizer **ret_tokenizer, struct str json,
                             struct error *error) {
    struct reading reading = {
        .source = {.model = STR("gpt2"),
                   .bos = TOKEN_NONE,
                   .eos = TOKEN_NONE,
                   .eot = TOKEN_NONE,
                   .unknown = TOKEN_NONE,
                   .padding = TOKEN_NONE},
    };
    enum err err = json_read(&reading.root, json, error);
    if (err != OK) {
        err_prefix(error, "tokenizer.json");
        return err;
    }
    arena_init(&reading.arena, VOCAB_BYTES_MAX);
    if (!json_is_object(reading.root)) err = err_set(error, ERR_INVALID, "not an object");
    /* The model first: that is what names the kind of tokenizer. */
    if (err == OK) err = read_model(&reading, error);
    if (err == OK) err = read_normalizer(&reading, error);
    if (err == OK) err = read_pre_tokenizer(&reading, error);
    if (err == OK) err = read_post_processor(&reading, error);
    if (err == OK) err = tokenizer_open(ret_tokenizer, &reading.source, error);
    if (err != OK) err_prefix(error, "tokenizer.json");
    arena_release(&reading.arena);
    json_decref(reading.root);
    return err;
}
