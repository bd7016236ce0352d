/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tokenizer: text to token ids and back, for one vocabulary.
 *
 * It is built from a struct tokenizer_source, which a reader of model files fills (engine/ does it
 * from a GGUF's vocabulary), or from the text of a tokenizer.json. It knows no other file format,
 * no template and no use of the ids.
 *
 * Thread: any; immutable after tokenizer_open. Any number of threads may encode at once, each with
 *     a struct ids of its own.
 * Memory: owns copies of all that it keeps of the source.
 * Invariant: decode(encode(text)) == text for every valid UTF-8 text that no rule normalises or
 *     swallows and whose bytes all have tokens. */

#include "base/buf.h"
#include "base/text_ranges.h"

struct tokenizer;

/* The kind of a token; the numbers are GGUF's tokenizer.ggml.token_type. */
enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* special: matched only when specials are parsed, hidden in output */
    TOKEN_USER_DEFINED = 4, /* matched always, shown in output */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

#define TOKEN_NONE (-1)

/* How an added token of a tokenizer.json is matched; tokens of a GGUF have no flags. */
enum token_flag {
    TOKEN_TAKES_LEFT = 1,    /* swallows the white space before it (lstrip) */
    TOKEN_TAKES_RIGHT = 2,   /* swallows the white space after it (rstrip) */
    TOKEN_SINGLE_WORD = 4,   /* matches only where no word character touches it */
    TOKEN_IN_NORMALIZED = 8, /* is looked for in normalised text, after all others */
    TOKEN_ADDED = 16         /* is no token of the model: no merge makes it, and no piece is it */
};

/* Whether a piece whose whole text is a token becomes that token before any merge. */
enum merge_policy { MERGE_AS_PRE_SAYS = 0, MERGE_ALWAYS, MERGE_UNLESS_WHOLE };

/* The treatment of a byte that no token spells. */
enum missing_policy { MISSING_DROPPED = 0, MISSING_UNKNOWN, MISSING_UNKNOWN_FUSED };

/* When SentencePiece puts a space before a stretch, which is the text between special tokens. */
enum space_prefix {
    SPACE_PREFIX_NONE = 0,
    SPACE_PREFIX_ALWAYS,       /* before every stretch that is not empty */
    SPACE_PREFIX_UNLESS_SPACE, /* before every stretch that does not begin with a space */
    SPACE_PREFIX_FIRST,        /* as UNLESS_SPACE, but only at the start of the text */
};

/* BertNormalizer's switches. All zero is cased text, cut only at white space and punctuation. */
struct bert_rules {
    bool cleans;         /* drops control characters and turns white space into spaces */
    bool spaces_chinese; /* puts spaces around ideographs */
    bool strips_accents;
    bool lowercases;
    size_t word_characters_max; /* longer words are unknown; 0: no limit */
};
#define BERT_WORD_CHARACTERS_MAX 100 /* default of a file without word_characters_max */

/* The rules of a Unigram model for a text. All zero is none of them. */
struct unigram_rules {
    struct str charsmap;            /* tokenizer/charsmap.h; empty: characters stay as they are */
    bool strips_left, strips_right; /* white space at the ends of a text goes */
    bool collapses;                 /* runs of spaces become one */
    bool drops_spaces; /* words are cut at white space, which goes; else at spaces, which stay */
    bool is_whole;     /* a text is one word */
    /* As SentencePiece applies the rules, and not as Hugging Face tokenizers: the longest text that
     * the map has, over borders of graphemes, and only U+0020 is white space. */
    bool is_sentencepiece;
};

/* All facts of a vocabulary. All strings are borrowed until tokenizer_open returns. */
struct tokenizer_source {
    struct str model; /* "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), "t5" (Unigram) or
                         "bert" (WordPiece, a word's first piece spelled with U+2581 before it);
                         any other model is refused by name */
    struct str pre;   /* pre-tokenizer of gpt2: "smollm", "gpt-2", "llama-bpe", "qwen2", …; an
                         unknown one is refused */
    const struct str *tokens; /* (token_count) in the file's spelling, byte-level mapped for gpt2 */
    const uint8_t *kinds;     /* (token_count) enum token_kind; NULL means all normal */
    const float *scores;      /* (token_count) or NULL */
    size_t token_count;
    const struct str *merges; /* (merge_count) "left right", best first */
    size_t merge_count;
    int32_t bos, eos, eot, unknown, padding; /* TOKEN_NONE when absent */
    bool add_bos, add_eos;
    bool normalize_nfc; /* tokenizer.json of the Qwen family */

    /* facts that only a tokenizer.json has; zero is a GGUF's rule */
    const uint8_t *flags; /* (token_count) enum token_flag bits; NULL means none */
    /* Every kind is as the model was trained. In a GGUF, whose kinds may be lost, an ordinary token
     * that is spelled as a control token is one. */
    bool kinds_are_exact;
    enum merge_policy merge_policy;
    enum missing_policy missing; /* MISSING_UNKNOWN and _FUSED give the token `unknown` */
    bool strict_merges;          /* a merge that names no token is ERR_INVALID, not skipped */

    /* spaces of the models "llama" and "t5" */
    enum space_prefix space_prefix;
    bool spaces_late; /* written after added tokens are cut out of normalised text (Metaspace) */
    struct bert_rules bert;       /* rules of the model "bert" */
    struct unigram_rules unigram; /* and of "t5" */
};

/* The rules of "bert" in a GGUF, which has no keys for them. */
struct bert_rules tokenizer_bert_uncased(void);

/* A growing list of ids. All zero is empty; ids_release frees. */
struct ids {
    int32_t *at;
    size_t count;
    size_t capacity;
};
void ids_add(struct ids *ids, int32_t id);
void ids_release(struct ids *ids);

/* ERR_INVALID with a sentence for an unknown model or pre, no tokens, two tokens of one spelling,
 * too many tokens, merges that do not split, or ids outside the vocabulary. ERR_LIMIT for a special
 * token over 1024 bytes, or without memory.
 *
 * Of two merges of one pair the first counts, as in llama.cpp. A merge with a part or a result that
 * is no token is skipped. llama.cpp keeps it as text and ends at the bytes; the results differ only
 * where a later merge builds on it. */
enum err tokenizer_open(struct tokenizer **ret_tokenizer, const struct tokenizer_source *source,
                        struct error *error) MUST_CHECK;
/* Opens the text of a Hugging Face tokenizer.json: BPE, byte-level or of SentencePiece, Unigram,
 * or WordPiece. Anything else that it asks for is refused by name. BOS and EOS come from its
 * post_processor, else they are TOKEN_NONE. */
enum err tokenizer_open_json(struct tokenizer **ret_tokenizer, struct str json,
                             struct error *error) MUST_CHECK;
/* Opens the bytes of a SentencePiece tokenizer.model: BPE or Unigram. Anything else that it asks
 * for is refused by name. The file does not say whether a text gets BOS and EOS. */
enum err tokenizer_open_model(struct tokenizer **ret_tokenizer, struct str bytes, bool add_bos,
                              bool add_eos, struct error *error) MUST_CHECK;
/* Opens the same bytes as XLM-RoBERTa's sentencepiece.bpe.model: its ids are fairseq's, <s>, <pad>,
 * </s>, <unk>, the pieces and <mask>, and a text gets <s> and </s>. */
enum err tokenizer_open_fairseq(struct tokenizer **ret_tokenizer, struct str bytes,
                                struct error *error) MUST_CHECK;
/* Opens the text of Mistral's tekken.json; texts get BOS. */
enum err tokenizer_open_tekken(struct tokenizer **ret_tokenizer, struct str json,
                               struct error *error) MUST_CHECK;
/* Opens the lines of a tiktoken.model of Kimi's. `config` is the object of tokenizer_config.json,
 * which names its special tokens; without a tokenizer_class it is refused. Texts get no BOS. */
enum err tokenizer_open_tiktoken(struct tokenizer **ret_tokenizer, struct str lines,
                                 struct str config, struct error *error) MUST_CHECK;
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is allowed */

struct encode_options {
    bool parse_special; /* control tokens written in the text become their ids */
    /* Bytes of the text that no control token may cover, such as the words of users in a prompt. A
     * token that a file lists as ordinary (TOKEN_USER_DEFINED) may not cover them either, when it
     * ends a generation or is spelled "<|…|>". NULL: no such bytes. */
    const struct text_ranges *plain;
    bool
        continues; /* text stands before it: SentencePiece puts no space before the first stretch */
    bool add_bos;  /* add the BOS and EOS that the vocabulary asks for; never a second BOS */
    /* Memory for the longest piece without a break, 36 bytes per byte of it; 0: no bound. */
    size_t scratch_bytes_max;
};

/* Appends the ids of `text`. ERR_INVALID with the byte offset when it is not valid UTF-8, ERR_LIMIT
 * over 64 MiB or the bound of a piece; then `ids` does not change. The time is n log n in the text.
 */
enum err tokenizer_encode(const struct tokenizer *tokenizer, struct str text,
                          struct encode_options options, struct ids *ids,
                          struct error *error) MUST_CHECK;
/* Appends the bytes of one token. Control and unknown tokens add nothing unless `show_special`;
 * unused ones and ids out of range add nothing. */
void tokenizer_decode(const struct tokenizer *tokenizer, int32_t id, bool show_special,
                      struct buf *buf);
/* Appends the text of `count` ids of one encoding, without the space that SentencePiece put before
 * it. */
void tokenizer_decode_text(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                           bool show_special, struct buf *buf);
/* The raw bytes of a token, borrowed from the tokenizer; empty for an id out of range. */
struct str tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id);

size_t tokenizer_count(const struct tokenizer *tokenizer);
/* TOKEN_UNUSED for an id out of range. */
enum token_kind tokenizer_kind(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* TOKEN_NONE when absent */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
/* True for tokens that end a generation: eos, eot and tokens with a well-known spelling of an
 * end. */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);
/* The id whose raw text is `text`, a special one before an ordinary one, or TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, struct str text);
