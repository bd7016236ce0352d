/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/wordpiece.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#define DECOMPOSED_MAX 4     /* code points in the longest canonical decomposition */
#define TOKEN_BYTES_MAX 1024 /* no longer token is tried: a word's time is linear in it */

static void add_point(struct buf *buf, uint32_t code_point) {
    char bytes[4];
    buf_add(buf, bytes, utf8_encode(code_point, bytes));
}

/* --- making text plain --- */

/* The blocks that BERT calls Chinese; the start of the sixth is spelled as its authors spelled
 * it. */
static bool is_chinese(uint32_t code_point) {
    static const uint32_t blocks[][2] = {
        {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
        {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (code_point >= blocks[i][0] && code_point <= blocks[i][1]) return true;
    return false;
}

static void add_lower(struct buf *buf, uint32_t code_point, const struct bert_rules *rules) {
    if (!rules->lowercases) {
        add_point(buf, code_point);
    } else if (code_point == 0x130) { /* the one letter that becomes two */
        add_point(buf, 'i');
        add_point(buf, 0x307);
    } else {
        add_point(buf, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point));
    }
}

static void add_stripped(struct buf *buf, uint32_t code_point, const struct bert_rules *rules) {
    if (!rules->strips_accents) {
        add_lower(buf, code_point, rules);
        return;
    }
    int last_class = 0;
    utf8proc_int32_t points[DECOMPOSED_MAX];
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)code_point, points, DECOMPOSED_MAX,
                                UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
    for (utf8proc_ssize_t i = 0; i < count && i < DECOMPOSED_MAX; i++)
        if (!(unicode_bits((uint32_t)points[i]) & CHAR_BERT_MARK))
            add_lower(buf, (uint32_t)points[i], rules);
}

void wordpiece_normalize(struct buf *buf, struct str text, const struct bert_rules *rules) {
    for (size_t at = 0; at < text.bytes;) {
        uint32_t code_point;
        at += utf8_decode(text, at, &code_point);
        if (rules->cleans && (unicode_bits(code_point) & CHAR_BERT_DROPPED)) continue;
        if (rules->cleans && unicode_class(code_point) == CHAR_SPACE) code_point = ' ';
        bool alone = rules->spaces_chinese && is_chinese(code_point);
        if (alone) buf_add_byte(buf, ' ');
        add_stripped(buf, code_point, rules);
        if (alone) buf_add_byte(buf, ' ');
    }
}

/* --- words --- */

/* The end of the word that begins at `at`, which is no white space. */
static size_t word_end(struct str text, size_t at) {
    size_t start = at;
    while (at < text.bytes) {
        uint32_t code_point;
        size_t bytes = utf8_decode(text, at, &code_point);
        if (unicode_class(code_point) == CHAR_SPACE) return at;
        if (unicode_bits(code_point) & CHAR_BERT_PUNCTUATION) return at == start ? at + bytes : at;
        at += bytes;
    }
    return at;
}

static bool is_boundary(struct str text, size_t at) {
    return at == text.bytes || ((unsigned char)text.at[at] & 0xC0) != 0x80;
}

/* The longest token at the beginning of `rest`, its bytes in *ret_bytes; TOKEN_NONE without one. */
static int32_t longest_piece(const struct tokenizer_vocab *vocab, struct str rest,
                             size_t *ret_bytes) {
    size_t bytes = rest.bytes < TOKEN_BYTES_MAX ? rest.bytes : TOKEN_BYTES_MAX;
    for (; bytes > 0; bytes--) {
        if (!is_boundary(rest, bytes)) continue;
        int32_t id = table_find(&vocab->by_bytes, vocab->tokens, (struct str){rest.at, bytes});
        if (id < 0 || vocab->kinds[id] != TOKEN_NORMAL) continue;
        *ret_bytes = bytes;
        return id;
    }
    return TOKEN_NONE;
}

static void encode_word(const struct tokenizer_vocab *vocab, struct str spaced, int32_t unknown,
                        struct ids *ids) {
    size_t start = ids->count, bytes = 0;
    for (size_t at = 0; at < spaced.bytes; at += bytes) {
        int32_t id = longest_piece(vocab, str_skip(spaced, at), &bytes);
        if (id < 0) {
            ids->count = start;
            if (unknown >= 0) ids_add(ids, unknown);
            return;
        }
        ids_add(ids, id);
    }
}

void wordpiece_encode(const struct tokenizer_vocab *vocab, struct str text, int32_t unknown,
                      size_t word_characters_max, struct buf *word, struct ids *ids) {
    for (size_t at = 0; at < text.bytes;) {
        uint32_t code_point;
        size_t bytes = utf8_decode(text, at, &code_point);
        if (unicode_class(code_point) == CHAR_SPACE) {
            at += bytes;
            continue;
        }
        size_t end = word_end(text, at);
        struct str bare = {text.at + at, end - at};
        at = end;
        if (word_characters_max > 0 && utf8_count(bare) > word_characters_max) {
            if (unknown >= 0) ids_add(ids, unknown);
            continue;
        }
        buf_clear(word);
        buf_add_byte(word, ' ');
        buf_add_str(word, bare);
        encode_word(vocab, buf_str(word), unknown, ids);
    }
}
