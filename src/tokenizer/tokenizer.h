/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tokenizer: text to token ids and back, for one vocabulary.
 *
 * Built from a struct tokenizer_source, which a reader of model files (model/gguf) or
 * tokenizer_read_json fills. It knows no file format of its own, no template, and nothing of what
 * the ids are used for.
 *
 * Thread: immutable after tokenizer_open; any number of threads may encode at once, each with its
 * own struct ids and scratch.  Memory: copies what it keeps of the source. Invariant:
 * decode(encode(text)) == text for every valid UTF-8 text when nothing is normalised. */

#include "base/buf.h"

struct tokenizer;

/* What a token is; the numbers are GGUF's tokenizer.ggml.token_type. */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special: matched only when specials are parsed, hidden in output */
    TOKEN_USER_DEFINED = 4, /* matched always, shown in output */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

#define TOKEN_NONE (-1)

/* Everything a vocabulary says. All strings are borrowed for the duration of tokenizer_open. */
struct tokenizer_source {
    struct str model; /* "gpt2" (byte-level BPE); others are refused by name */
    struct str pre;   /* "smollm", "gpt-2", "llama-bpe", "qwen2", …; unknown names are refused */
    const struct str
        *tokens;          /* (token_count) as the file spells them, byte-level mapped for gpt2 */
    const uint8_t *kinds; /* (token_count) enum token_kind; NULL means all normal */
    const float *scores;  /* (token_count) or NULL */
    size_t token_count;
    const struct str *merges; /* (merge_count) "left right", best first */
    size_t merge_count;
    int32_t bos, eos, eot, unknown, padding; /* TOKEN_NONE when absent */
    bool add_bos, add_eos;
    bool normalize_nfc; /* tokenizer.json of the Qwen family */
};

/* A growing list of ids. Zero is a valid start; ids_release frees. */
struct ids {
    int32_t *at;
    size_t count;
    size_t capacity;
};
void ids_add(struct ids *ids, int32_t id);
void ids_release(struct ids *ids);

/* ERR_INVALID with a sentence for an unknown model or pre, merges that do not split, duplicate or
 * too many tokens. */
enum err tokenizer_open(struct tokenizer **ret_tokenizer, const struct tokenizer_source *source,
                        struct error *error) MUST_CHECK;
/* From the text of a tokenizer.json (Hugging Face). */
enum err tokenizer_open_json(struct tokenizer **ret_tokenizer, struct str json,
                             struct error *error) MUST_CHECK;
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is allowed */

struct encode_options {
    bool parse_special; /* special tokens written in the text become their ids */
    bool add_bos; /* put the BOS (and EOS) that the vocabulary says it adds; never a second BOS */
};

/* Appends the ids of `text` (valid UTF-8, else ERR_INVALID naming the byte offset). */
enum err tokenizer_encode(const struct tokenizer *tokenizer, struct str text,
                          struct encode_options options, struct ids *ids,
                          struct error *error) MUST_CHECK;
/* Appends the bytes of one token. Control tokens add nothing unless `show_special`. Ids out of
 * range add nothing. */
void tokenizer_decode(const struct tokenizer *tokenizer, int32_t id, bool show_special,
                      struct buf *buf);
/* The raw bytes of a token, borrowed from the tokenizer. */
struct str tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id);

size_t tokenizer_count(const struct tokenizer *tokenizer);
enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* TOKEN_NONE when absent */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
/* End of generation: eos, eot, eom and the well-known spellings of models.md §1.1. */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);
/* The id whose raw text is exactly `text`, or TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, struct str text);
