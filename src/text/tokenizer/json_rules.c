/* SPDX-License-Identifier: Apache-2.0 */

/* The rules of a tokenizer.json for a text before its model sees it. */

#include "tokenizer/json_source.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */

enum err json_refuse_type(const char *part, const json_t *object, struct error *error) {
    struct str type = json_kind(object);
    if (type.bytes == 0) return err_set(error, ERR_INVALID, "%s: no type", part);
    return err_set(error, ERR_INVALID, "%s: the type '%.*s' is not supported", part,
                   STR_ARGS(type));
}

size_t json_step_count(const json_t *part, const char *list_key) {
    if (!part) return 0;
    return str_is(json_kind(part), "Sequence") ? json_array_size(json_member(part, list_key)) : 1;
}

json_t *json_step(json_t *part, const char *list_key, size_t index) {
    if (!str_is(json_kind(part), "Sequence")) return part;
    return json_array_get(json_member(part, list_key), index);
}

/* --- normalizer --- */

static bool replaces_spaces(const json_t *step) {
    return str_is(json_kind(step), "Replace") &&
           str_is(json_member_str(json_member(step, "pattern"), "String"), " ") &&
           str_is(json_member_str(step, "content"), SPACE);
}

static enum err read_spaces(struct json_reading *reading, const json_t *step, struct error *error) {
    if (replaces_spaces(step)) {
        reading->source.spaces_late = false;
        return OK;
    }
    if (str_is(json_kind(step), "Prepend") && str_is(json_member_str(step, "prepend"), SPACE) &&
        reading->source.spaces_late) {
        reading->source.space_prefix = SPACE_PREFIX_ALWAYS;
        return OK;
    }
    return json_refuse_type("normalizer", step, error);
}

static enum err read_bert(struct json_reading *reading, const json_t *step, struct error *error) {
    if (!str_is(json_kind(step), "BertNormalizer"))
        return json_refuse_type("normalizer", step, error);
    struct bert_rules *rules = &reading->source.bert;
    json_t *strips = json_member(step, "strip_accents");
    rules->cleans = json_says(step, "clean_text");
    rules->spaces_chinese = json_says(step, "handle_chinese_chars");
    rules->lowercases = json_says(step, "lowercase");
    rules->strips_accents = json_is_boolean(strips) ? json_is_true(strips) : rules->lowercases;
    return OK;
}

enum err json_read_normalizer(struct json_reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "normalizer");
    for (size_t i = 0; i < json_step_count(part, "normalizers"); i++) {
        json_t *step = json_step(part, "normalizers", i);
        enum err err = OK;
        if (str_is(json_kind(step), "NFC"))
            reading->source.normalize_nfc = true;
        else if (str_is(reading->source.model, "llama"))
            err = read_spaces(reading, step, error);
        else if (str_is(reading->source.model, "bert"))
            err = read_bert(reading, step, error);
        else if (str_is(reading->source.model, "t5"))
            err = json_read_unigram_normalizer(reading, step, error);
        else
            err = json_refuse_type("normalizer", step, error);
        if (err != OK) return err;
    }
    if (reading->source.space_prefix != SPACE_PREFIX_NONE && reading->source.spaces_late)
        return err_set(error, ERR_INVALID, "normalizer: a Prepend without a Replace of spaces");
    return OK;
}

/* --- pre-tokenizer of byte-level BPE --- */

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
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "tekken"},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "gpt-4o"},
};

static const char deepseek_3_last[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

/* Expressions that are applied one after the other, by the text of each; the second of deepseek-llm
 * is a long list of letters, of which the first are compared. */
static const struct {
    const char *expressions[5];
    const char *pre;
} known_chains[] = {
    {{"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", NULL}, "deepseek-coder"},
    {{"[\r\n]", "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯ", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$",
      "[一-龥ࠀ-一가-퟿]+"},
     "deepseek-llm"},
    {{"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", deepseek_3_last, NULL, NULL}, "deepseek-v3"},
};

/* Whether the first steps are the chain's; the digits apart, which two of them end with, stand
 * behind it. */
static bool is_chain(json_t *part, size_t count, size_t chain, size_t *ret_steps) {
    size_t i = 0;
    for (; i < 5 && known_chains[chain].expressions[i]; i++) {
        json_t *step = i < count ? json_step(part, "pretokenizers", i) : NULL;
        const struct str known = str_from(known_chains[chain].expressions[i]);
        const struct str is = json_member_str(json_member(step, "pattern"), "Regex");
        const bool is_list = str_ends_with(known, STR("ʕ-ʯ"));
        if (!step || !str_is(json_kind(step), "Split") || json_says(step, "invert") ||
            !str_is(json_member_str(step, "behavior"), "Isolated") ||
            !(is_list ? str_starts_with(is, known) : str_equals(is, known)))
            return false;
    }
    if (!str_is(str_from(known_chains[chain].pre), "deepseek-v3")) {
        json_t *step = i < count ? json_step(part, "pretokenizers", i++) : NULL;
        const struct str is = json_member_str(json_member(step, "pattern"), "Regex");
        const bool is_split = step && str_is(json_kind(step), "Split") && str_is(is, "\\p{N}") &&
                              str_is(json_member_str(step, "behavior"), "Isolated");
        const bool is_apart =
            step && str_is(json_kind(step), "Digits") && json_says(step, "individual_digits");
        if (!is_split && !is_apart) return false;
    }
    *ret_steps = i;
    return true;
}

const char *json_split_pre(struct str expression) {
    for (size_t i = 0; i < sizeof known_splits / sizeof *known_splits; i++)
        if (str_is(expression, known_splits[i].expression)) return known_splits[i].pre;
    return NULL;
}

static enum err read_split(struct json_reading *reading, const json_t *step, struct error *error) {
    struct str behavior = json_member_str(step, "behavior");
    /* The known expressions leave no text between their matches, so that to remove what does not
     * match removes nothing. */
    bool inverts = json_says(step, "invert");
    if (!str_is(behavior, inverts ? "Removed" : "Isolated"))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: a Split other than Isolated is not supported");
    struct str expression = json_member_str(json_member(step, "pattern"), "Regex");
    const char *pre = json_split_pre(expression);
    if (!pre)
        return err_set(error, ERR_INVALID, "pre_tokenizer: the Split pattern '%.*s' is not known",
                       STR_ARGS(expression));
    reading->source.pre = str_from(pre);
    return OK;
}

static enum err read_digits(struct json_reading *reading, const json_t *step, struct error *error) {
    if (!json_says(step, "individual_digits"))
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: Digits without individual_digits is not supported");
    reading->source.pre = STR("smollm");
    return OK;
}

/* The last step: it maps bytes to characters, and splits as GPT-2 does if use_regex. */
static enum err read_byte_level(struct json_reading *reading, const json_t *step,
                                struct error *error) {
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

static enum err read_byte_level_steps(struct json_reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "pre_tokenizer");
    size_t count = json_step_count(part, "pretokenizers");
    if (count == 0)
        return err_set(error, ERR_INVALID,
                       "pre_tokenizer: only byte-level BPE is supported, and there is none");
    size_t begin = 0;
    for (size_t i = 0; begin == 0 && i < sizeof known_chains / sizeof *known_chains; i++)
        if (is_chain(part, count, i, &begin)) reading->source.pre = str_from(known_chains[i].pre);
    for (size_t i = begin; i < count; i++) {
        json_t *step = json_step(part, "pretokenizers", i);
        struct str type = json_kind(step);
        enum err err;
        if (i == 0 && count == 2 && str_is(type, "Split"))
            err = read_split(reading, step, error);
        else if (i == 0 && count == 2 && str_is(type, "Digits"))
            err = read_digits(reading, step, error);
        else if (i + 1 == count && str_is(type, "ByteLevel"))
            err = read_byte_level(reading, step, error);
        else
            err = json_refuse_type("pre_tokenizer", step, error);
        if (err != OK) return err;
    }
    return count <= begin + 2 ? OK : err_set(error, ERR_INVALID, "pre_tokenizer: %zu steps", count);
}

/* --- pre-tokenizers of the others --- */

/* Spaces become U+2581 here when no normalizer made them so. */
static enum err read_metaspace(struct json_reading *reading, const json_t *step,
                               struct error *error) {
    struct str scheme = json_member_str(step, "prepend_scheme");
    if (!str_is(json_member_str(step, "replacement"), SPACE))
        return err_set(error, ERR_INVALID, "pre_tokenizer: a Metaspace of other than U+2581");
    if (!json_is_false(json_member(step, "split")))
        return err_set(error, ERR_INVALID, "pre_tokenizer: Metaspace with split is not supported");
    if (!reading->source.spaces_late)
        return err_set(error, ERR_INVALID, "pre_tokenizer: a Metaspace after a Replace of spaces");
    if (str_is(scheme, "always") || (scheme.bytes == 0 && json_says(step, "add_prefix_space")))
        reading->source.space_prefix = SPACE_PREFIX_UNLESS_SPACE;
    else if (str_is(scheme, "first"))
        reading->source.space_prefix = SPACE_PREFIX_FIRST;
    reading->saw_spaces = true;
    return OK;
}

/* Gemma's Split at spaces, which the normalizer has replaced before. */
static bool is_idle_split(const struct json_reading *reading, const json_t *step) {
    return !reading->source.spaces_late && str_is(json_kind(step), "Split") &&
           str_is(json_member_str(json_member(step, "pattern"), "String"), " ");
}

static enum err read_sentencepiece_steps(struct json_reading *reading, struct error *error) {
    json_t *part = json_member(reading->root, "pre_tokenizer");
    for (size_t i = 0; i < json_step_count(part, "pretokenizers"); i++) {
        json_t *step = json_step(part, "pretokenizers", i);
        enum err err = OK;
        if (str_is(json_kind(step), "Metaspace"))
            err = read_metaspace(reading, step, error);
        else if (!is_idle_split(reading, step))
            err = json_refuse_type("pre_tokenizer", step, error);
        if (err != OK) return err;
    }
    if (reading->source.spaces_late && !reading->saw_spaces)
        return err_set(error, ERR_INVALID,
                       "normalizer: BPE with byte_fallback without a rule for spaces");
    return OK;
}

enum err json_read_pre_tokenizer(struct json_reading *reading, struct error *error) {
    if (str_is(reading->source.model, "gpt2")) return read_byte_level_steps(reading, error);
    if (str_is(reading->source.model, "llama")) return read_sentencepiece_steps(reading, error);
    if (str_is(reading->source.model, "t5")) return json_read_unigram_steps(reading, error);
    json_t *part = json_member(reading->root, "pre_tokenizer");
    if (json_step_count(part, "pretokenizers") != 1 ||
        !str_is(json_kind(json_step(part, "pretokenizers", 0)), "BertPreTokenizer"))
        return err_set(error, ERR_INVALID, "pre_tokenizer: WordPiece without a BertPreTokenizer");
    return OK;
}
