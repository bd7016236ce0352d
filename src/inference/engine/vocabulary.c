/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/vocabulary.h"

#include "base/os.h"
#include "checkpoint/checkpoint.h"

#include <stdlib.h>

#define TOKENIZER_JSON_BYTES_MAX ((size_t)64 * 1024 * 1024)

_Static_assert(CHECKPOINT_VOCAB_NONE == TOKEN_NONE,
               "the ids of a vocabulary are handed on as they are");

_Static_assert(CHECKPOINT_VOCAB_ENDS_MAX + 1 <= VOCABULARY_ENDS_MAX,
               "room for every end of a file");

static void add_ends(struct vocabulary *vocabulary, const struct checkpoint_vocab *vocab) {
    for (size_t i = 0; i < vocab->end_count; i++)
        vocabulary->ends[vocabulary->end_count++] = vocab->ends[i];
    if (vocab->eom != TOKEN_NONE) vocabulary->ends[vocabulary->end_count++] = vocab->eom;
}

static enum err open_parts(struct vocabulary *vocabulary, const struct checkpoint_vocab *vocab,
                           struct error *error) {
    bool is_bert = str_is(vocab->model, "bert");
    const struct tokenizer_source source = {
        .model = vocab->model,
        .pre = vocab->pre,
        .tokens = vocab->tokens,
        .kinds = vocab->kinds,
        .scores = vocab->scores,
        .token_count = vocab->token_count,
        .merges = vocab->merges,
        .merge_count = vocab->merge_count,
        .bos = is_bert && vocab->cls != TOKEN_NONE ? vocab->cls : vocab->bos,
        .eos = is_bert && vocab->separator != TOKEN_NONE ? vocab->separator : vocab->eos,
        .eot = vocab->eot,
        .unknown = vocab->unknown,
        .padding = vocab->padding,
        .add_bos = vocab->add_bos,
        .add_eos = vocab->add_eos || is_bert,
        .space_prefix = vocab->add_space_prefix ? SPACE_PREFIX_ALWAYS : SPACE_PREFIX_NONE,
        .bert = tokenizer_bert_uncased(),
        .unigram = {.charsmap = vocab->charsmap,
                    .strips_left = vocab->collapses_spaces,
                    .strips_right = vocab->collapses_spaces,
                    .collapses = vocab->collapses_spaces},
    };
    if (tokenizer_open(&vocabulary->tokenizer, &source, error) != OK)
        return err_prefix(error, "tokenizer");
    vocabulary_find_marks(vocabulary);
    add_ends(vocabulary, vocab);
    if (vocab->chat_template.bytes > 0 &&
        jinja_template_open(&vocabulary->template, vocab->chat_template, error) != OK)
        return err_prefix(error, "tokenizer.chat_template");
    if (vocab->tool_template.bytes > 0 &&
        jinja_template_open(&vocabulary->tool_template, vocab->tool_template, error) != OK)
        return err_prefix(error, "tokenizer.chat_template.tool_use");
    return OK;
}

enum err vocabulary_open(struct vocabulary *ret_vocabulary, const struct checkpoint_vocab *vocab,
                         struct error *error) {
    struct vocabulary vocabulary = {.unknown = vocab->unknown, .padding = vocab->padding};
    enum err err = open_parts(&vocabulary, vocab, error);
    if (err == OK)
        *ret_vocabulary = vocabulary;
    else
        vocabulary_close(&vocabulary);
    return err;
}

static enum err open_json(struct vocabulary *ret_vocabulary, const char *path,
                          struct error *error) {
    char *text;
    size_t bytes;
    enum err err = os_read_file(path, TOKENIZER_JSON_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    struct vocabulary vocabulary = {.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
    err = tokenizer_open_json(&vocabulary.tokenizer, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err;
    vocabulary_find_marks(&vocabulary);
    *ret_vocabulary = vocabulary;
    return OK;
}

enum err vocabulary_open_file(struct vocabulary *ret_vocabulary, const char *path,
                              struct error *error) {
    if (checkpoint_is_folder(path)) return vocabulary_open_folder(ret_vocabulary, path, error);
    if (str_ends_with(str_from(path), STR(".json"))) return open_json(ret_vocabulary, path, error);
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    enum err err = gguf_open(&gguf, path, error);
    if (err != OK) return err;
    err = checkpoint_vocab_init(&vocab, gguf, error);
    if (err == OK) {
        err = vocabulary_open(ret_vocabulary, &vocab, error);
        checkpoint_vocab_release(&vocab);
    }
    gguf_close(gguf);
    return err;
}

void vocabulary_close(struct vocabulary *vocabulary) {
    jinja_template_close(vocabulary->template);
    jinja_template_close(vocabulary->tool_template);
    tokenizer_close(vocabulary->tokenizer);
    for (uint32_t i = 0; i < vocabulary->label_count; i++) free(vocabulary->labels[i]);
    free(vocabulary->labels);
    *vocabulary = (struct vocabulary){.unknown = TOKEN_NONE, .padding = TOKEN_NONE};
}

const struct jinja_template *vocabulary_template(const struct vocabulary *vocabulary,
                                                 bool has_tools) {
    return has_tools && vocabulary->tool_template ? vocabulary->tool_template
                                                  : vocabulary->template;
}

void vocabulary_find_marks(struct vocabulary *vocabulary) {
    struct mark_tokens *marks = &vocabulary->marks;
    *marks = (struct mark_tokens){.known = 0};
    for (size_t k = 0; chat_marks[k]; k++) {
        int32_t id = tokenizer_find(vocabulary->tokenizer, str_from(chat_marks[k]));
        if (id == TOKEN_NONE) continue;
        marks->at[k] = id;
        marks->known |= UINT64_C(1) << k;
        if (tokenizer_kind(vocabulary->tokenizer, id) == TOKEN_CONTROL)
            marks->control |= UINT64_C(1) << k;
    }
}

size_t vocabulary_mark(const struct vocabulary *vocabulary, int32_t id) {
    const struct mark_tokens *marks = &vocabulary->marks;
    size_t mark = 0;
    while (mark < CHAT_MARKS_MAX && !(marks->control >> mark & 1 && marks->at[mark] == id)) mark++;
    return mark;
}

bool vocabulary_is_end(const struct vocabulary *vocabulary, int32_t id) {
    for (size_t i = 0; i < vocabulary->end_count; i++)
        if (vocabulary->ends[i] == id) return true;
    return tokenizer_is_end(vocabulary->tokenizer, id);
}

static void add_token(const struct vocabulary *vocabulary, json_t *context, const char *name,
                      int32_t id) {
    if (id == TOKEN_NONE) return;
    struct str text = tokenizer_bytes(vocabulary->tokenizer, id);
    json_object_set_new(context, name, json_stringn(text.at, text.bytes));
}

json_t *vocabulary_context(const struct vocabulary *vocabulary) {
    json_t *context = json_object();
    bool own = vocabulary->has_own_tokens;
    const struct tokenizer *tokenizer = vocabulary->tokenizer;
    add_token(vocabulary, context, "bos_token", own ? vocabulary->bos : tokenizer_bos(tokenizer));
    add_token(vocabulary, context, "eos_token", own ? vocabulary->eos : tokenizer_eos(tokenizer));
    add_token(vocabulary, context, "unk_token", vocabulary->unknown);
    add_token(vocabulary, context, "pad_token", vocabulary->padding);
    return context;
}
