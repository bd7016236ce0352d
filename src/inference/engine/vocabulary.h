/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocabulary: the words of a model without its weights: tokenizer, chat template, special ids.
 *
 * Engines and the commands that only need words share it. It reads metadata only, so opening a
 * large file is quick.
 *
 * Thread: immutable after opening.
 * Memory: owns what it opened; vocabulary_close frees. */

#include "chat/tool_format.h"
#include "checkpoint/vocab.h"
#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"

#define VOCABULARY_ENDS_MAX 64

/* The marks of calls and thoughts (chat/tool_format.h) that are tokens. Zero is none. */
struct mark_tokens {
    uint64_t known, control; /* sets of marks: tokens, and the control tokens among them */
    int32_t at[CHAT_MARKS_MAX];
};

/* Zero is a valid start. */
struct vocabulary {
    struct tokenizer *tokenizer;
    struct mark_tokens marks;
    struct jinja_template *template;      /* NULL: the file has none */
    struct jinja_template *tool_template; /* the one named "tool_use"; NULL: the file has none */
    int32_t unknown, padding;             /* TOKEN_NONE: absent */
    /* From the files of a folder other than the tokenizer. */
    bool has_own_tokens; /* templates see `bos` and `eos` below, not the tokenizer's */
    int32_t bos, eos;    /* TOKEN_NONE: absent */
    /* (end_count) tokens that end a generation, in addition to the tokenizer's */
    int32_t ends[VOCABULARY_ENDS_MAX];
    size_t end_count;
    /* (label_count) names of a classifier's labels by their numbers; NULL: it has no name */
    char **labels;
    uint32_t label_count;
};

/* Opens from metadata that was read before. ERR_INVALID with a sentence that names the part. */
enum err vocabulary_open(struct vocabulary *ret_vocabulary, const struct checkpoint_vocab *vocab,
                         struct error *error) MUST_CHECK;
/* Opens from a folder with a tokenizer. */
enum err vocabulary_open_folder(struct vocabulary *ret_vocabulary, const char *folder,
                                struct error *error) MUST_CHECK;
/* Opens the chat templates of a folder alone, without a tokenizer. */
enum err vocabulary_read_templates(struct vocabulary *ret_vocabulary, const char *folder,
                                   struct error *error) MUST_CHECK;
/* Opens from a .gguf, a folder, or a tokenizer.json, which has no template. */
enum err vocabulary_open_file(struct vocabulary *ret_vocabulary, const char *path,
                              struct error *error) MUST_CHECK;
/* The files next to a tokenizer.json. */
enum vocabulary_part {
    PART_TEMPLATE,      /* chat_template.jinja */
    PART_TOOL_TEMPLATE, /* additional_chat_templates/tool_use.jinja */
    PART_TOKENIZER_CONFIG,
    PART_TEMPLATE_JSON, /* chat_template.json */
    PART_GENERATION_CONFIG,
    PART_CONFIG,
    VOCABULARY_PART_COUNT,
};
/* Adds the contents of these files to a vocabulary with a tokenizer; the `at` of a missing file is
 * NULL. ERR_INVALID with a sentence that names the file; the caller closes the vocabulary, also
 * then. */
enum err vocabulary_add_parts(struct vocabulary *vocabulary,
                              const struct str parts[VOCABULARY_PART_COUNT],
                              struct error *error) MUST_CHECK;
void vocabulary_close(struct vocabulary *vocabulary);

/* The template of a request with or without tools, chosen as transformers does; NULL: none. */
const struct jinja_template *vocabulary_template(const struct vocabulary *vocabulary,
                                                 bool has_tools);

/* Looks the marks up. The functions above that open a tokenizer do so. */
void vocabulary_find_marks(struct vocabulary *vocabulary);
/* The number of the mark that a control token is; CHAT_MARKS_MAX: none. */
size_t vocabulary_mark(const struct vocabulary *vocabulary, int32_t id);

/* True if a generation ends with this token. */
bool vocabulary_is_end(const struct vocabulary *vocabulary, int32_t id);

/* The special tokens a template may name (bos_token, eos_token, unk_token, pad_token), as a new
 * JSON object: the model_context of struct jinja_options. */
json_t *vocabulary_context(const struct vocabulary *vocabulary);
