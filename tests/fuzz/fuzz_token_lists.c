/* SPDX-License-Identifier: Apache-2.0 */

/* The lists of a hostile vocabulary, well formed as a file is: tokens, kinds, scores, merges, ids
 * and the map of Unigram, for each model of tokenizer. The bytes of the input choose them; the
 * rest is a text, which is encoded as plain text and with special tokens.
 *
 * fuzz_vocabulary.c mutates the file; here every input reaches the tokenizer. */

#include "engine/vocabulary.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKENS_MAX 64u
#define MERGES_MAX 32u
#define TEXT_BYTES_MAX 512u
#define MAP_BYTES_MAX 255u /* also what a character may become */

/* The bits of the second byte. */
enum { HAS_KINDS = 1, HAS_SCORES = 2, ADDS_BOS = 4, ADDS_EOS = 8, HAS_PREFIX = 16, COLLAPSES = 32 };

static struct str rest;

static uint8_t take(void) {
    const uint8_t byte = rest.bytes > 0 ? (uint8_t)*rest.at : 0;
    if (rest.bytes > 0) rest = str_skip(rest, 1);
    return byte;
}

static struct str take_text(size_t bytes_max) {
    size_t bytes = take();
    if (bytes > bytes_max) bytes = bytes_max;
    if (bytes > rest.bytes) bytes = rest.bytes;
    const struct str text = {rest.at, bytes};
    rest = str_skip(rest, bytes);
    return text;
}

/* A token that real vocabularies have, or bytes of the input. */
static struct str take_token(void) {
    static const char *const usual[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "<0x41>",
                                        "<0xC3>",
                                        "a",
                                        "b",
                                        "\xE2\x96\x81",
                                        "\xC4\xA0",
                                        "[CLS]",
                                        "[UNK]",
                                        "ab",
                                        "<|im_end|>",
                                        ("\xE2\x96\x81"
                                         "a")};
    const uint8_t choice = take();
    if (choice < sizeof usual / sizeof *usual) return str_from(usual[choice]);
    return take_text(12);
}

static int32_t take_id(size_t token_count) {
    return (int32_t)(take() % (token_count + 1)) - 1; /* CHECKPOINT_VOCAB_NONE: none */
}

struct lists {
    struct checkpoint_vocab vocab;
    struct str tokens[TOKENS_MAX], merges[MERGES_MAX];
    uint8_t kinds[TOKENS_MAX];
    float scores[TOKENS_MAX];
    struct buf texts; /* what the merges lie in */
};

static void take_merges(struct lists *lists) {
    size_t starts[MERGES_MAX + 1] = {0};
    struct checkpoint_vocab *vocab = &lists->vocab;
    const size_t count = take() % (MERGES_MAX + 1);
    for (size_t i = 0; i < count; i++) {
        buf_add_str(&lists->texts, vocab->tokens[take() % vocab->token_count]);
        buf_add_str(&lists->texts, STR(" "));
        buf_add_str(&lists->texts, vocab->tokens[take() % vocab->token_count]);
        starts[i + 1] = buf_str(&lists->texts).bytes;
    }
    for (size_t i = 0; i < count; i++)
        lists->merges[i] =
            (struct str){buf_str(&lists->texts).at + starts[i], starts[i + 1] - starts[i]};
    vocab->merges = lists->merges;
    vocab->merge_count = count;
}

static void take_lists(struct lists *lists) {
    static const char *const models[] = {"gpt2", "llama", "t5", "bert"};
    static const char *const pres[] = {"gpt-2",  "smollm",  "llama-bpe",   "qwen35",
                                       "tekken", "kimi-k2", "deepseek-v3", "unknown"};
    struct checkpoint_vocab *vocab = &lists->vocab;
    const uint8_t kind = take(), flags = take();
    vocab->model = str_from(models[kind & 3]);
    vocab->pre = str_from(pres[kind >> 2 & 7]);
    vocab->tokens = lists->tokens;
    vocab->token_count = 1 + take() % TOKENS_MAX;
    for (size_t i = 0; i < vocab->token_count; i++) {
        lists->tokens[i] = take_token();
        lists->kinds[i] = flags & HAS_KINDS ? 1 + take() % 6 : 0;
        lists->scores[i] = flags & HAS_SCORES ? (float)(int8_t)take() / 4.0f : 0.0f;
    }
    if (flags & HAS_KINDS) vocab->kinds = lists->kinds;
    if (flags & HAS_SCORES) vocab->scores = lists->scores;
    take_merges(lists);
    int32_t *const ids[] = {&vocab->bos,     &vocab->eos,       &vocab->eot, &vocab->eom,
                            &vocab->unknown, &vocab->separator, &vocab->cls, &vocab->padding};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) *ids[i] = take_id(vocab->token_count);
    vocab->mask = CHECKPOINT_VOCAB_NONE;
    vocab->add_bos = flags & ADDS_BOS;
    vocab->add_eos = flags & ADDS_EOS;
    vocab->add_space_prefix = flags & HAS_PREFIX;
    vocab->collapses_spaces = flags & COLLAPSES;
    vocab->charsmap = take_text(MAP_BYTES_MAX);
}

/* The character has no other token, so a plain text becomes it. */
static bool is_one_character(struct str token) {
    uint32_t code_point;
    return token.bytes > 0 && utf8_is_valid(token) &&
           utf8_decode(token, 0, &code_point) == token.bytes;
}

/* No control token comes out of a plain text, but for that of unknown text and those of one
 * character, and one text has one list of ids. */
static void encode(const struct tokenizer *tokenizer, struct str text, bool is_plain,
                   const struct checkpoint_vocab *vocab) {
    struct ids ids = {0}, again = {0};
    struct text_ranges plain = {0};
    struct error error = {0};
    struct buf back;
    buf_init(&back, 1u << 22);
    if (is_plain) text_ranges_add(&plain, 0, text.bytes);
    const struct encode_options options = {.parse_special = true, .plain = &plain};
    enum err err = tokenizer_encode(tokenizer, text, options, &ids, &error);
    assert((err == OK) == utf8_is_valid(text));
    err = tokenizer_encode(tokenizer, text, options, &again, &error);
    assert(ids.count == again.count && ids.count <= 2 + MAP_BYTES_MAX * (text.bytes + 1));
    for (size_t i = 0; i < ids.count; i++) {
        assert(ids.at[i] == again.at[i] && ids.at[i] >= 0);
        assert((size_t)ids.at[i] < tokenizer_count(tokenizer));
        assert(!is_plain || ids.at[i] == vocab->unknown ||
               is_one_character(vocab->tokens[ids.at[i]]) ||
               tokenizer_kind(tokenizer, ids.at[i]) != TOKEN_CONTROL);
    }
    tokenizer_decode_text(tokenizer, ids.at, ids.count, true, &back);
    buf_release(&back);
    text_ranges_release(&plain);
    ids_release(&ids);
    ids_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lists lists = {.vocab = {.token_count = 0}};
    struct vocabulary vocabulary;
    struct error error = {0};
    char *copy = malloc(size > 0 ? size : 1);
    if (!copy) abort();
    if (size > 0) memcpy(copy, data, size);
    rest = (struct str){copy, size};
    buf_init(&lists.texts, 1u << 16);
    take_lists(&lists);
    if (rest.bytes > TEXT_BYTES_MAX) rest.bytes = TEXT_BYTES_MAX;
    if (vocabulary_open(&vocabulary, &lists.vocab, &error) == OK) {
        encode(vocabulary.tokenizer, rest, true, &lists.vocab);
        encode(vocabulary.tokenizer, rest, false, &lists.vocab);
        vocabulary_close(&vocabulary);
    } else {
        assert(error.text[0] != '\0' && !strchr(error.text, '\n')); /* one sentence */
    }
    buf_release(&lists.texts);
    free(copy);
    return 0;
}
