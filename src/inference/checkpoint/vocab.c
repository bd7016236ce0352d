/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/vocab.h"

#include "base/base64.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHARSMAP_LETTERS_MAX ((size_t)24 << 20) /* base64 of 16 MiB takes 22 */

/* Numbers of tokenizer.ggml.token_type. */
enum { KIND_NORMAL = 1, KIND_UNKNOWN = 2, KIND_BYTE = 6 };

static struct str architecture_of(const struct gguf *gguf) {
    struct str architecture = {"", 0};
    return gguf_get_str(gguf, "general.architecture", &architecture, NULL) == OK
               ? architecture
               : (struct str){"", 0};
}

/* Finds an array of `element`s; *ret_array is NULL when the key is not there. */
static enum err find_array(const struct gguf *gguf, const char *key, enum gguf_kind element,
                           const struct gguf_value **ret_array, struct error *error) {
    *ret_array = gguf_find(gguf, key);
    if (!*ret_array) return OK;
    bool is_integer = element == GGUF_I32;
    enum gguf_kind found = (*ret_array)->element;
    bool matches = is_integer ? found != GGUF_STRING && found != GGUF_F32 && found != GGUF_F64 &&
                                    found != GGUF_BOOL
                              : found == element;
    if ((*ret_array)->kind != GGUF_ARRAY || !matches)
        return err_set(error, ERR_INVALID, "%s is no array of %s", key,
                       is_integer            ? "integers"
                       : element == GGUF_F32 ? "f32"
                                             : "strings");
    return OK;
}

static enum err read_strings(const struct gguf *gguf, const char *key, size_t count_max,
                             struct str **ret_strings, size_t *ret_count, struct error *error) {
    const struct gguf_value *array;
    enum err err = find_array(gguf, key, GGUF_STRING, &array, error);
    if (err != OK || !array) return err;
    if (array->count > count_max)
        return err_set(error, ERR_LIMIT, "%s has %llu elements, more than %zu", key,
                       (unsigned long long)array->count, count_max);
    struct str *strings = mem_new((size_t)array->count + 1, sizeof *strings);
    const unsigned char *at = array->at;
    for (size_t i = 0; i < array->count; i++) strings[i] = gguf_next_str(&at);
    *ret_strings = strings;
    *ret_count = (size_t)array->count;
    return OK;
}

static enum err check_length(const char *key, const struct gguf_value *array, size_t token_count,
                             struct error *error) {
    if (array->count == token_count) return OK;
    return err_set(error, ERR_INVALID, "%s has %llu elements for %zu tokens", key,
                   (unsigned long long)array->count, token_count);
}

static enum err read_kinds(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                           struct error *error) {
    static const char key[] = "tokenizer.ggml.token_type";
    const struct gguf_value *array;
    enum err err = find_array(gguf, key, GGUF_I32, &array, error);
    if (err != OK || !array) return err;
    err = check_length(key, array, vocab->token_count, error);
    if (err != OK) return err;
    vocab->kinds = mem_new(vocab->token_count + 1, sizeof *vocab->kinds);
    for (size_t i = 0; i < vocab->token_count; i++) {
        int64_t kind;
        if (!gguf_element_i64(array, i, &kind) || kind < 0 || kind > 6)
            return err_set(error, ERR_INVALID, "%s: token %zu has no kind of 1..6", key, i);
        vocab->kinds[i] = kind == 0 ? KIND_NORMAL : (uint8_t)kind; /* 0: not known */
    }
    return OK;
}

static bool is_hex_digit(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
}

/* "<0x0A>" */
static bool spells_byte(struct str text) {
    return text.bytes == 6 && str_starts_with(text, STR("<0x")) && text.at[5] == '>' &&
           is_hex_digit(text.at[3]) && is_hex_digit(text.at[4]);
}

/* In a file that has lost its kinds, the bytes of SentencePiece are known by their spelling. */
static void mark_bytes(struct checkpoint_vocab *vocab) {
    if (!str_is(vocab->model, "llama")) return;
    for (size_t i = 0; i < vocab->token_count; i++) {
        if (!spells_byte(vocab->tokens[i])) continue;
        if (!vocab->kinds) {
            vocab->kinds = mem_new(vocab->token_count + 1, sizeof *vocab->kinds);
            memset(vocab->kinds, KIND_NORMAL, vocab->token_count);
        }
        if (vocab->kinds[i] == KIND_NORMAL) vocab->kinds[i] = KIND_BYTE;
    }
}

static enum err read_scores(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                            struct error *error) {
    static const char key[] = "tokenizer.ggml.scores";
    const struct gguf_value *array;
    enum err err = find_array(gguf, key, GGUF_F32, &array, error);
    if (err != OK || !array) return err;
    err = check_length(key, array, vocab->token_count, error);
    if (err != OK) return err;
    vocab->scores = mem_new(vocab->token_count + 1, sizeof *vocab->scores);
    for (size_t i = 0; i < vocab->token_count; i++) {
        vocab->scores[i] = gguf_element_f32(array, i);
        if (!isfinite(vocab->scores[i]))
            return err_set(error, ERR_INVALID, "%s: the score of token %zu is no finite number",
                           key, i);
    }
    return OK;
}

static enum err read_id(const struct checkpoint_vocab *vocab, const struct gguf *gguf,
                        const char *key, int32_t *ret_id, struct error *error) {
    *ret_id = CHECKPOINT_VOCAB_NONE;
    const struct gguf_value *value = gguf_find(gguf, key);
    if (!value) return OK;
    int64_t id;
    if (value->kind == GGUF_ARRAY || !gguf_element_i64(value, 0, &id))
        return err_set(error, ERR_INVALID, "%s is no integer", key);
    /* Writers express "none" as -1, or as -1 in 32 unsigned bits. */
    if (id == -1 || id == UINT32_MAX) return OK;
    if (id < 0 || (uint64_t)id >= vocab->token_count)
        return err_set(error, ERR_INVALID, "%s is %lld, but there are %zu tokens", key,
                       (long long)id, vocab->token_count);
    *ret_id = (int32_t)id;
    return OK;
}

static enum err read_ids(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                         struct error *error) {
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &vocab->bos},
        {"tokenizer.ggml.eos_token_id", &vocab->eos},
        {"tokenizer.ggml.eot_token_id", &vocab->eot},
        {"tokenizer.ggml.eom_token_id", &vocab->eom},
        {"tokenizer.ggml.unknown_token_id", &vocab->unknown},
        {"tokenizer.ggml.padding_token_id", &vocab->padding},
        {"tokenizer.ggml.seperator_token_id", &vocab->separator}, /* the format spells it so */
        {"tokenizer.ggml.cls_token_id", &vocab->cls},
        {"tokenizer.ggml.mask_token_id", &vocab->mask},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        enum err err = read_id(vocab, gguf, ids[i].key, ids[i].id, error);
        if (err != OK) return err;
    }
    if (vocab->separator != CHECKPOINT_VOCAB_NONE) return OK;
    return read_id(vocab, gguf, "tokenizer.ggml.separator_token_id", &vocab->separator, error);
}

static enum err read_ends(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                          struct error *error) {
    static const char key[] = "tokenizer.ggml.eos_token_ids";
    const struct gguf_value *array;
    enum err err = find_array(gguf, key, GGUF_I32, &array, error);
    if (err != OK || !array) return err;
    if (array->count > CHECKPOINT_VOCAB_ENDS_MAX)
        return err_set(error, ERR_LIMIT, "%s has %llu elements, more than %d", key,
                       (unsigned long long)array->count, CHECKPOINT_VOCAB_ENDS_MAX);
    for (uint64_t i = 0; i < array->count; i++) {
        int64_t id;
        if (!gguf_element_i64(array, i, &id) || id < 0 || (uint64_t)id >= vocab->token_count)
            return err_set(error, ERR_INVALID, "%s: element %llu is none of the %zu tokens", key,
                           (unsigned long long)i, vocab->token_count);
        vocab->ends[vocab->end_count++] = (int32_t)id;
    }
    return OK;
}

/* Published files of Ollama have the bytes as base64, a letter in each text of the list. */
static enum err read_charsmap_letters(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                                      const char *key, struct error *error) {
    struct str *letters;
    size_t count, bytes = 0;
    enum err err = read_strings(gguf, key, CHARSMAP_LETTERS_MAX, &letters, &count, error);
    if (err != OK) return err;
    char *text = mem_new(count + 1, 1);
    bool is_text = true;
    for (size_t i = 0; i < count && is_text; i++) {
        is_text = letters[i].bytes == 1;
        if (is_text) text[i] = *letters[i].at;
    }
    vocab->own_charsmap = mem_new(count + 1, 1);
    is_text = is_text && base64_read((struct str){text, count}, vocab->own_charsmap, count, &bytes);
    free(text);
    free(letters);
    if (!is_text) return err_set(error, ERR_INVALID, "%s is no base64", key);
    vocab->charsmap = (struct str){vocab->own_charsmap, bytes};
    return OK;
}

/* Rules of a Unigram vocabulary for its text, and its unknown token, which files may not name. */
static enum err read_unigram(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                             struct error *error) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_value *map = gguf_find(gguf, key);
    if (!str_is(vocab->model, "t5")) return OK;
    const bool is_list = map && map->kind == GGUF_ARRAY;
    if (is_list && map->element == GGUF_STRING) {
        enum err err = read_charsmap_letters(vocab, gguf, key, error);
        if (err != OK) return err;
    } else if (is_list && (map->element == GGUF_U8 || map->element == GGUF_I8)) {
        vocab->charsmap = (struct str){(const char *)map->at, (size_t)map->count};
    } else if (map) {
        return err_set(error, ERR_INVALID, "%s is no array of bytes", key);
    }
    for (size_t i = 0; vocab->kinds && i < vocab->token_count; i++)
        if (vocab->unknown == CHECKPOINT_VOCAB_NONE && vocab->kinds[i] == KIND_UNKNOWN)
            vocab->unknown = (int32_t)i;
    return gguf_get_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", &vocab->collapses_spaces,
                         error);
}

/* Gemma 4: spaces and bytes as SentencePiece has them, but merges instead of scores. Published
 * files of Ollama call it llama, as those of Gemma 3. */
static bool has_merges_and_spaces(const struct checkpoint_vocab *vocab, const struct gguf *gguf) {
    struct str architecture = architecture_of(gguf);
    return str_is(vocab->model, "gemma4") ||
           (str_is(vocab->model, "llama") && str_is(architecture, "gemma4"));
}

static bool has_token(const struct checkpoint_vocab *vocab, const char *text) {
    for (size_t i = 0; i < vocab->token_count; i++)
        if (str_is(vocab->tokens[i], text)) return true;
    return false;
}

/* Files of the first weeks of Llama 3, and files of Qwen 1.5, name no pre-tokenizer, or "default",
 * which stands for not known. Ollama's store has such files, and of the families in `usual`, whose
 * models all have one pre-tokenizer. */
static const struct {
    const char *architecture;
    const char *pre;
} usual[] = {{"gptoss", "gpt-4o"},    {"gpt-oss", "gpt-4o"},   {"mistral3", "tekken"},
             {"lfm2", "lfm2"},        {"lfm2moe", "lfm2"},     {"qwen35", "qwen35"},
             {"qwen35moe", "qwen35"}, {"olmo2", "dbrx"},       {"olmo3", "dbrx"},
             {"qwen3vl", "qwen2"},    {"qwen3vlmoe", "qwen2"}, {"qwen25vl", "qwen2"},
             {"qwen2vl", "qwen2"},    {"qwen3next", "qwen2"},  {"glm4moelite", "glm4"}};

static void name_pre(struct checkpoint_vocab *vocab, const struct gguf *gguf) {
    if (!str_is(vocab->model, "gpt2")) return;
    struct str architecture = architecture_of(gguf);
    const bool is_first = str_is(architecture, "gptoss") && str_is(vocab->pre, "gpt-2");
    if (vocab->pre.bytes > 0 && !str_is(vocab->pre, "default") && !is_first) return;
    if (str_is(architecture, "llama") && has_token(vocab, "<|begin_of_text|>") &&
        has_token(vocab, "<|eot_id|>"))
        vocab->pre = STR("llama-bpe");
    else if (str_is(architecture, "qwen2") || str_is(architecture, "qwen3") ||
             str_is(architecture, "qwen3moe"))
        vocab->pre = STR("qwen2");
    else
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            if (str_is(architecture, usual[i].architecture)) vocab->pre = str_from(usual[i].pre);
}

/* The pre-tokenizers whose models begin a text with BOS, by llama.cpp's rule. */
static bool pre_begins_with_bos(struct str pre) {
    static const char *const names[] = {"llama-bpe", "llama3",   "llama-v3", "falcon3", "falcon-h1",
                                        "pixtral",   "midm-2.0", "lfm2",     "tekken"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(pre, names[i])) return true;
    return false;
}

/* The flags, from the defaults that the format leaves to each tokenizer model. Gemma's tokenizer
 * writes no space before a text, and Ollama's files of it have no key that says so. */
static enum err read_flags(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                           struct error *error) {
    bool is_sentencepiece = str_is(vocab->model, "llama");
    bool is_gemma = str_starts_with(architecture_of(gguf), STR("gemma"));
    vocab->add_bos = is_sentencepiece || str_is(vocab->model, "bert") ||
                     (str_is(vocab->model, "gpt2") && pre_begins_with_bos(vocab->pre));
    vocab->add_space_prefix = (is_sentencepiece && !is_gemma) || str_is(vocab->model, "t5");
    enum err err = gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &vocab->add_bos, error);
    if (err == OK)
        err = gguf_get_bool(gguf, "tokenizer.ggml.add_eos_token", &vocab->add_eos, error);
    if (err == OK)
        err =
            gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", &vocab->add_space_prefix, error);
    return err;
}

/* Ollama's files of Gemma 3 list a token for pictures after the last row of the embedding. Such
 * tokens are no part of the text model. */
static void drop_tokens_without_rows(struct checkpoint_vocab *vocab, const struct gguf *gguf) {
    const struct gguf_tensor *rows = gguf_tensor_find(gguf, STR("token_embd.weight"));
    if (!str_is(architecture_of(gguf), "gemma3") || !rows || rows->axis_count != 2) return;
    if (vocab->token_count > rows->axes[1]) vocab->token_count = (size_t)rows->axes[1];
}

/* The turns of Gemma. What the system says stands before the user's first words. */
#define GEMMA_TEMPLATE                                                                             \
    "{{ bos_token }}{% set ns = namespace(first='') %}{% for m in messages %}"                     \
    "{% if m.role == 'system' %}{% set ns.first = ns.first + m.content + '\\n\\n' %}{% else %}"    \
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + ns.first + "  \
    "m.content | trim + '<end_of_turn>\\n' }}{% set ns.first = '' %}{% endif %}{% endfor %}"       \
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"

struct str checkpoint_family_template(const struct gguf *gguf) {
    struct str architecture = architecture_of(gguf);
    bool is_gemma = str_is(architecture, "gemma2") || str_is(architecture, "gemma3");
    return is_gemma ? STR(GEMMA_TEMPLATE) : (struct str){"", 0};
}

static enum err read_all(struct checkpoint_vocab *vocab, const struct gguf *gguf,
                         struct error *error) {
    enum err err = gguf_get_str(gguf, "tokenizer.ggml.model", &vocab->model, error);
    if (err == OK) err = gguf_get_str(gguf, "tokenizer.ggml.pre", &vocab->pre, error);
    if (err == OK)
        err = gguf_get_str(gguf, "tokenizer.chat_template", &vocab->chat_template, error);
    if (err == OK)
        err = gguf_get_str(gguf, "tokenizer.chat_template.tool_use", &vocab->tool_template, error);
    if (err != OK) return err;
    if (vocab->model.bytes == 0)
        return err_set(error, ERR_INVALID, "tokenizer.ggml.model is missing");
    const bool has_merges = has_merges_and_spaces(vocab, gguf);
    if (has_merges) vocab->model = STR("llama");
    err = read_strings(gguf, "tokenizer.ggml.tokens", CHECKPOINT_VOCAB_TOKENS_MAX, &vocab->tokens,
                       &vocab->token_count, error);
    if (err != OK) return err;
    if (vocab->token_count == 0)
        return err_set(error, ERR_INVALID, "tokenizer.ggml.tokens is missing or empty");
    err = read_strings(gguf, "tokenizer.ggml.merges", CHECKPOINT_VOCAB_MERGES_MAX, &vocab->merges,
                       &vocab->merge_count, error);
    if (err == OK) err = read_kinds(vocab, gguf, error);
    if (err == OK && !has_merges) err = read_scores(vocab, gguf, error);
    if (err == OK) mark_bytes(vocab);
    if (err == OK) drop_tokens_without_rows(vocab, gguf);
    if (err == OK) name_pre(vocab, gguf);
    if (err == OK && vocab->chat_template.bytes == 0 && has_token(vocab, "<start_of_turn>") &&
        has_token(vocab, "<end_of_turn>"))
        vocab->chat_template = checkpoint_family_template(gguf);
    if (err == OK) err = read_ids(vocab, gguf, error);
    if (err == OK) err = read_unigram(vocab, gguf, error);
    if (err == OK) err = read_ends(vocab, gguf, error);
    if (err == OK) err = read_flags(vocab, gguf, error);
    return err;
}

enum err checkpoint_vocab_init(struct checkpoint_vocab *ret_vocab, const struct gguf *gguf,
                               struct error *error) {
    struct checkpoint_vocab vocab = {0};
    enum err err = read_all(&vocab, gguf, error);
    if (err != OK) {
        checkpoint_vocab_release(&vocab);
        return err;
    }
    *ret_vocab = vocab;
    return OK;
}

void checkpoint_vocab_release(struct checkpoint_vocab *vocab) {
    free(vocab->tokens);
    free(vocab->kinds);
    free(vocab->scores);
    free(vocab->merges);
    free(vocab->own_charsmap);
    *vocab = (struct checkpoint_vocab){0};
}
