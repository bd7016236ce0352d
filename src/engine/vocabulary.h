/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocabulary: the words of a model without its weights: tokenizer, chat template, special ids.
 *
 * What an engine and the tools of the command line share. It reads metadata only, so it is quick on
 * a large file.
 *
 * Thread: immutable after opening.  Memory: owns what it opened; vocabulary_close frees. */

#include "checkpoint/vocab.h"
#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"

#define VOCABULARY_ENDS_MAX 64

/* Zero is a valid start. */
struct vocabulary {
    struct tokenizer *tokenizer;
    struct jinja_template *template;      /* NULL: the file has none */
    struct jinja_template *tool_template; /* that named "tool_use"; NULL: there is no other */
    int32_t unknown, padding;             /* TOKEN_NONE when absent */
    /* What a folder says beside its tokenizer.json. */
    bool has_own_tokens; /* bos and eos of a template are these, not the tokenizer's */
    int32_t bos, eos;    /* TOKEN_NONE when absent */
    int32_t
        ends[VOCABULARY_ENDS_MAX]; /* (end_count) that end a generation, beside the tokenizer's */
    size_t end_count;
};

/* From metadata that was read already. ERR_INVALID with a sentence that names the part. */
enum err vocabulary_open(struct vocabulary *ret_vocabulary, const struct checkpoint_vocab *vocab,
                         struct error *error) MUST_CHECK;
/* From a folder with a tokenizer.json. */
enum err vocabulary_open_folder(struct vocabulary *ret_vocabulary, const char *folder,
                                struct error *error) MUST_CHECK;
/* From a .gguf, a folder, or a tokenizer.json (then without a template). */
enum err vocabulary_open_file(struct vocabulary *ret_vocabulary, const char *path,
                              struct error *error) MUST_CHECK;
/* What stands beside a tokenizer.json. */
enum vocabulary_part {
    PART_TEMPLATE, /* chat_template.jinja */
    PART_TOKENIZER_CONFIG,
    PART_TEMPLATE_JSON, /* chat_template.json */
    PART_GENERATION_CONFIG,
    PART_CONFIG,
    VOCABULARY_PART_COUNT,
};
/* Adds what the texts of a folder say to a vocabulary with a tokenizer; `at` is NULL for those that
 * are not there. ERR_INVALID with a sentence that names the file; the vocabulary is the caller's to
 * close, also then. */
enum err vocabulary_add_parts(struct vocabulary *vocabulary,
                              const struct str parts[VOCABULARY_PART_COUNT],
                              struct error *error) MUST_CHECK;
void vocabulary_close(struct vocabulary *vocabulary);

/* The template of a request with tools, or without; NULL when there is none. As transformers. */
const struct jinja_template *vocabulary_template(const struct vocabulary *vocabulary,
                                                 bool has_tools);

/* Whether a generation ends with this token. */
bool vocabulary_is_end(const struct vocabulary *vocabulary, int32_t id);

/* The special tokens a template may name (bos_token, eos_token, unk_token, pad_token), as a new
 * JSON object: the model_context of struct jinja_options. */
json_t *vocabulary_context(const struct vocabulary *vocabulary);
