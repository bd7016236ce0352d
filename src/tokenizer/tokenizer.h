/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tokenizer: text to token ids and back, for one vocabulary.
 *
 * Built from a struct tokenizer_source, which a reader of model files (model/gguf) fills, or from
 * the text of a tokenizer.json. It knows no other file format, no template, and nothing of what the
 * ids are used for.
 *
 * Thread: immutable after tokenizer_open; any number of threads may encode at once, each with its
 * own struct ids and scratch.  Memory: copies what it keeps of the source. Invariant:
 * decode(encode(text)) == text for every valid UTF-8 text when nothing is normalised or swallowed
 * and every byte of it has a token. */

#include "base/buf.h"
#include "base/span.h"

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

/* How an added token of a tokenizer.json is matched; tokens of a GGUF have none of these. */
enum token_flag {
    TOKEN_TAKES_LEFT = 1,   /* swallows the white space before it (lstrip) */
    TOKEN_TAKES_RIGHT = 2,  /* swallows the white space after it (rstrip) */
    TOKEN_SINGLE_WORD = 4,  /* only where no word character touches it */
    TOKEN_IN_NORMALIZED = 8 /* looked for in normalised text, after all others */
};

/* Whether a piece that is a token as it stands is taken before any merge. */
enum merge_policy { MERGE_AS_PRE_SAYS = 0, MERGE_ALWAYS, MERGE_UNLESS_WHOLE };

/* What becomes of a byte that no token spells. */
enum missing_policy { MISSING_DROPPED = 0, MISSING_UNKNOWN, MISSING_UNKNOWN_FUSED };

/* When SentencePiece puts a space before a stretch of text (what stands between special tokens). */
enum space_prefix {
    SPACE_PREFIX_NONE = 0,
    SPACE_PREFIX_ALWAYS,       /* before every stretch that is not empty */
    SPACE_PREFIX_UNLESS_SPACE, /* before every one that does not begin with a space */
    SPACE_PREFIX_FIRST,        /* as UNLESS_SPACE, but only at the start of the text */
};

/* BertNormalizer's switches. Zero is cased text, cut at white space and punctuation only. */
struct bert_rules {
    bool cleans;         /* control characters go, white space becomes a space */
    bool spaces_chinese; /* ideographs stand alone */
    bool strips_accents;
    bool lowercases;
    size_t word_characters_max; /* longer words are unknown; 0: no limit */
};
#define BERT_WORD_CHARACTERS_MAX 100 /* when the file does not say */

/* Everything a vocabulary says. All strings are borrowed for the duration of tokenizer_open. */
struct tokenizer_source {
    struct str model; /* "gpt2" (byte-level BPE), "llama" (SentencePiece BPE) or "bert" (WordPiece,
                         a word's first piece spelled with U+2581 before it); others are refused by
                         name */
    struct str pre;   /* of gpt2: "smollm", "gpt-2", "llama-bpe", "qwen2", …; unknown: refused */
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

    /* What only a tokenizer.json says; zero is what a GGUF means. */
    const uint8_t *flags; /* (token_count) enum token_flag bits; NULL means none */
    enum merge_policy merge_policy;
    enum missing_policy missing; /* other than dropped: as the token `unknown` */
    bool strict_merges;          /* a merge that names no token is ERR_INVALID, not skipped */

    /* Spaces of the model "llama": when one is put before a stretch of text. */
    enum space_prefix space_prefix;
    bool spaces_late; /* after the added tokens of the normalised text are cut out (Metaspace) */
    struct bert_rules bert; /* of the model "bert" */
};

/* The rules of a GGUF's "bert", which says none. */
struct bert_rules tokenizer_bert_uncased(void);

/* A growing list of ids. Zero is a valid start; ids_release frees. */
struct ids {
    int32_t *at;
    size_t count;
    size_t capacity;
};
void ids_add(struct ids *ids, int32_t id);
void ids_release(struct ids *ids);

/* ERR_INVALID with a sentence for an unknown model or pre, no tokens, two tokens of one spelling,
 * too many tokens, merges that do not split, or ids outside the vocabulary; ERR_LIMIT for a special
 * token over 1024 bytes or when there is no memory. Of two merges of one pair the first counts, as
 * in llama.cpp. A merge with a part or a result that is no token is skipped; llama.cpp keeps it as
 * text and ends at the bytes, which differs only where a later merge would build on it. */
enum err tokenizer_open(struct tokenizer **ret_tokenizer, const struct tokenizer_source *source,
                        struct error *error) MUST_CHECK;
/* From the text of a tokenizer.json (Hugging Face): BPE, byte-level or of SentencePiece, and
 * WordPiece; what it asks for and is not supported is refused by name. BOS and EOS are those of its
 * post_processor, else TOKEN_NONE. */
enum err tokenizer_open_json(struct tokenizer **ret_tokenizer, struct str json,
                             struct error *error) MUST_CHECK;
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is allowed */

struct encode_options {
    bool parse_special; /* control tokens written in the text become their ids */
    /* Bytes of the text that no control token may have a part of, such as what users wrote in a
     * prompt; neither may a token that a file lists as ordinary (TOKEN_USER_DEFINED) when it ends a
     * generation or is spelled "<|…|>". NULL: none. */
    const struct spans *plain;
    bool add_bos; /* put the BOS (and EOS) that the vocabulary says it adds; never a second BOS */
};

/* Appends the ids of `text`: ERR_INVALID with the byte offset when it is not valid UTF-8, ERR_LIMIT
 * over 64 MiB; then `ids` is as it was. Time is n log n in the text. */
enum err tokenizer_encode(const struct tokenizer *tokenizer, struct str text,
                          struct encode_options options, struct ids *ids,
                          struct error *error) MUST_CHECK;
/* Appends the bytes of one token. Control and unknown tokens add nothing unless `show_special`;
 * unused ones and ids out of range add nothing. */
void tokenizer_decode(const struct tokenizer *tokenizer, int32_t id, bool show_special,
                      struct buf *buf);
/* Appends the text of `count` ids, as they came from one encoding: without the space that
 * SentencePiece put before it. */
void tokenizer_decode_text(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                           bool show_special, struct buf *buf);
/* The raw bytes of a token, borrowed from the tokenizer; empty for an id out of range. */
struct str tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id);

size_t tokenizer_count(const struct tokenizer *tokenizer);
/* TOKEN_UNUSED for an id out of range. */
enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* TOKEN_NONE when absent */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
/* End of generation: eos, eot, eom and the well-known spellings of models.md §1.1. */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);
/* The id whose raw text is exactly `text`, a special one before an ordinary one, or TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, struct str text);
