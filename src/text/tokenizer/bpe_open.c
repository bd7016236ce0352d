/* SPDX-License-Identifier: Apache-2.0 */

/* Filling the tables: pieces, bytes and merges, for both alphabets. */

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe_internal.h"

#include <assert.h>
#include <stdlib.h>

#define MERGES_MAX (1u << 23)
#define SCORED_BYTES_MAX 1024 /* most bytes of one token: the time is quadratic in them */
/* The most that their squares may add up to. A vocabulary of 262,144 tokens in use has 2^25. */
#define SCORED_WORK_MAX ((uint64_t)1 << 30)

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes follow U+0100 in
 * order. Returns the byte, or -1 for a character outside. */
static int alphabet_byte(uint32_t code_point) {
    if ((code_point >= 0x21 && code_point <= 0x7E) || (code_point >= 0xA1 && code_point <= 0xAC) ||
        (code_point >= 0xAE && code_point <= 0xFF))
        return (int)code_point;
    if (code_point < 0x100 || code_point > 0x143) return -1;
    uint32_t index = code_point - 0x100;
    if (index <= 0x20) return (int)index;
    if (index <= 0x42) return (int)(index - 0x21 + 0x7F);
    return 0xAD;
}

size_t bpe_decode_spelling(struct str spelled, char *ret_bytes) {
    size_t count = 0;
    bool is_alphabet = utf8_is_valid(spelled);
    for (size_t at = 0; is_alphabet && at < spelled.bytes;) {
        uint32_t code_point;
        at += utf8_decode(spelled, at, &code_point);
        int byte = alphabet_byte(code_point);
        is_alphabet = byte >= 0;
        if (is_alphabet) ret_bytes[count++] = (char)byte;
    }
    if (is_alphabet) return count;
    memcpy(ret_bytes, spelled.at, spelled.bytes);
    return spelled.bytes;
}

size_t bpe_spell(struct str bytes, char *ret_spelled) {
    size_t count = 0;
    for (size_t i = 0; i < bytes.bytes; i++) {
        const unsigned byte = (unsigned char)bytes.at[i];
        unsigned code_point = byte;
        if (byte <= 0x20)
            code_point = byte + 0x100;
        else if (byte >= 0x7F && byte <= 0xA0)
            code_point = byte - 0x7F + 0x121;
        else if (byte == 0xAD)
            code_point = 0x143;
        if (code_point >= 0x80) ret_spelled[count++] = (char)(0xC0 | code_point >> 6);
        ret_spelled[count++] = (char)(code_point < 0x80 ? code_point : 0x80 | (code_point & 0x3F));
    }
    return count;
}

static bool is_in_alphabet(struct str spelled) {
    if (!utf8_is_valid(spelled)) return false;
    for (size_t at = 0; at < spelled.bytes;) {
        uint32_t code_point;
        at += utf8_decode(spelled, at, &code_point);
        if (alphabet_byte(code_point) < 0) return false;
    }
    return true;
}

/* A piece of characters is spelled as the file has it, spaces as U+2581. */
static void fill_characters(struct bpe *bpe, const struct tokenizer_source *source) {
    char *at = bpe->own_texts;
    for (size_t id = 0; id < source->token_count; id++) {
        struct str spelled = source->tokens[id];
        if (bpe->vocab->kinds[id] == TOKEN_BYTE || spelled.bytes == 0) continue;
        if (bpe->vocab->flags[id] & TOKEN_ADDED) continue;
        memcpy(at, spelled.at, spelled.bytes);
        bpe->piece_texts[id] = (struct str){at, spelled.bytes};
        at += spelled.bytes;
    }
}

/* A special token's bytes are its spelling. As a piece it is the bytes that the spelling stands
 * for. */
static void fill_bytes(struct bpe *bpe, const struct tokenizer_source *source) {
    char *at = bpe->own_texts;
    for (size_t id = 0; id < source->token_count; id++) {
        struct str spelled = source->tokens[id];
        if (!is_in_alphabet(spelled) || (bpe->vocab->flags[id] & TOKEN_ADDED)) continue;
        if (bpe->vocab->kinds[id] == TOKEN_NORMAL) {
            bpe->piece_texts[id] = bpe->vocab->tokens[id];
            continue;
        }
        bpe->piece_texts[id] = (struct str){at, bpe_decode_spelling(spelled, at)};
        at += bpe->piece_texts[id].bytes;
    }
}

static enum err index_pieces(struct bpe *bpe, const struct tokenizer_source *source,
                             struct error *error) {
    bool by_characters = bpe->alphabet == BPE_CHARACTERS;
    size_t own_bytes = 1;
    if (source->token_count == 0) return err_set(error, ERR_INVALID, "the vocabulary is empty");
    for (size_t id = 0; id < source->token_count; id++)
        if (by_characters || bpe->vocab->kinds[id] != TOKEN_NORMAL)
            own_bytes += source->tokens[id].bytes;
    bpe->own_texts = malloc(own_bytes);
    bpe->piece_texts = calloc(source->token_count, sizeof *bpe->piece_texts);
    bpe->whole = calloc(source->token_count, sizeof *bpe->whole);
    if (!bpe->own_texts || !bpe->piece_texts || !bpe->whole ||
        !table_open(&bpe->pieces, source->token_count))
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", source->token_count);
    for (size_t i = 0; i < 256; i++) bpe->byte_ids[i] = TOKEN_NONE;
    for (size_t i = 0; i < 128; i++) bpe->ascii_ids[i] = TOKEN_NONE;
    if (by_characters)
        fill_characters(bpe, source);
    else
        fill_bytes(bpe, source);
    for (size_t id = 0; id < source->token_count; id++) {
        struct str text = bpe->piece_texts[id], bytes = bpe->vocab->tokens[id];
        if (bpe->vocab->kinds[id] == TOKEN_BYTE && bytes.bytes == 1)
            bpe->byte_ids[(unsigned char)bytes.at[0]] = (int32_t)id;
        if (text.bytes == 0) continue;
        /* Spellings differ, so their bytes differ: no slot is taken. */
        int32_t other = table_add(&bpe->pieces, bpe->piece_texts, (int32_t)id);
        assert(other < 0);
        if (text.bytes != 1) continue;
        if (!by_characters) bpe->byte_ids[(unsigned char)text.at[0]] = (int32_t)id;
        if ((unsigned char)text.at[0] < 128)
            bpe->ascii_ids[(unsigned char)text.at[0]] = (int32_t)id;
    }
    return OK;
}

static void add_slot(struct bpe *bpe, struct merge_slot pair) {
    struct merge_slot *slot = merge_slot(bpe, pair.pair);
    if (slot->pair == NO_PAIR) *slot = pair;
}

static size_t decode_part(const struct bpe *bpe, struct str spelled, char *ret_bytes) {
    if (bpe->alphabet == BPE_BYTES) return bpe_decode_spelling(spelled, ret_bytes);
    memcpy(ret_bytes, spelled.at, spelled.bytes);
    return spelled.bytes;
}

/* One "left right" of the source. `part` has room for the bytes of both. */
static enum err add_merge(struct bpe *bpe, const struct tokenizer_source *source, size_t rank,
                          char *part, struct error *error) {
    struct str merge = source->merges[rank];
    size_t space = str_find_byte(merge, ' ', 1);
    if (space == SIZE_MAX || space + 1 == merge.bytes)
        return err_set(error, ERR_INVALID, "merge %zu is not two parts with a space between", rank);
    struct str spelled_left = {merge.at, space};
    struct str spelled_right = str_skip(merge, space + 1);
    size_t left_bytes = decode_part(bpe, spelled_left, part);
    size_t bytes = left_bytes + decode_part(bpe, spelled_right, part + left_bytes);
    const struct str *tokens = bpe->piece_texts;
    int32_t left = table_find(&bpe->pieces, tokens, (struct str){part, left_bytes});
    int32_t right =
        table_find(&bpe->pieces, tokens, (struct str){part + left_bytes, bytes - left_bytes});
    int32_t result = table_find(&bpe->pieces, tokens, (struct str){part, bytes});
    if (left < 0 || right < 0 || result < 0) {
        if (!source->strict_merges) return OK;
        return err_set(error, ERR_INVALID, "merge %zu names something that is no token", rank);
    }
    uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
    add_slot(bpe, (struct merge_slot){pair, (uint32_t)rank, result});
    return OK;
}

static enum err open_merges(struct bpe *bpe, size_t count, struct error *error) {
    size_t slot_count = 16;
    while (slot_count < count * 2) slot_count *= 2;
    bpe->merges = malloc(slot_count * sizeof *bpe->merges);
    if (!bpe->merges) return err_set(error, ERR_LIMIT, "no memory for %zu merges", count);
    for (size_t i = 0; i < slot_count; i++) bpe->merges[i].pair = NO_PAIR;
    bpe->merge_mask = slot_count - 1;
    bpe->merge_key = hash_key_new().at[0];
    return OK;
}

static enum err index_merges(struct bpe *bpe, const struct tokenizer_source *source,
                             struct error *error) {
    if (source->merge_count > MERGES_MAX)
        return err_set(error, ERR_INVALID, "the vocabulary has %zu merges, over the limit of %u",
                       source->merge_count, MERGES_MAX);
    size_t longest = 1;
    for (size_t i = 0; i < source->merge_count; i++)
        if (source->merges[i].bytes > longest) longest = source->merges[i].bytes;
    char *part = malloc(longest);
    if (!part) return err_set(error, ERR_LIMIT, "no memory for %zu merges", source->merge_count);
    enum err err = open_merges(bpe, source->merge_count, error);
    for (size_t rank = 0; rank < source->merge_count && err == OK; rank++)
        err = add_merge(bpe, source, rank, part, error);
    free(part);
    return err;
}

/* --- merges from scores --- */

/* Tokens by falling score; equal scores have equal ranks. */
struct scored_token {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b) {
    const struct scored_token *left = a, *right = b;
    if (left->score != right->score) return left->score > right->score ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Where a token may be split next behind `at`: before a character, or a byte of its alphabet. */
static size_t next_split(const struct bpe *bpe, struct str text, size_t at) {
    if (bpe->alphabet == BPE_BYTES) return at + 1;
    do at++;
    while (at < text.bytes && ((unsigned char)text.at[at] & 0xC0) == 0x80);
    return at;
}

/* Pairs to be merged, while their number is unknown. */
struct pairs {
    struct merge_slot *at;
    size_t count, capacity;
};

static enum err pairs_add(struct pairs *pairs, struct merge_slot pair, struct error *error) {
    if (pairs->count == MERGES_MAX)
        return err_set(error, ERR_LIMIT, "the tokens have over %u merges, which is the limit",
                       MERGES_MAX);
    pairs->at = vec_grow(pairs->at, pairs->count, &pairs->capacity, sizeof *pairs->at);
    pairs->at[pairs->count++] = pair;
    return OK;
}

/* Every way to make the token of two tokens. */
static enum err split_token(const struct bpe *bpe, int32_t id, uint32_t rank, struct pairs *pairs,
                            struct error *error) {
    struct str text = bpe->piece_texts[id];
    enum err err = OK;
    for (size_t at = next_split(bpe, text, 0); err == OK && at < text.bytes;
         at = next_split(bpe, text, at)) {
        int32_t left = table_find(&bpe->pieces, bpe->piece_texts, (struct str){text.at, at});
        if (left < 0) continue;
        int32_t right = table_find(&bpe->pieces, bpe->piece_texts, str_skip(text, at));
        if (right < 0) continue;
        uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
        err = pairs_add(pairs, (struct merge_slot){pair, rank, id}, error);
    }
    return err;
}

static enum err split_tokens(struct bpe *bpe, const struct scored_token *order, size_t count,
                             struct error *error) {
    struct pairs pairs = {.at = NULL};
    uint32_t rank = 0;
    enum err err = OK;
    for (size_t i = 0; err == OK && i < count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank++;
        err = split_token(bpe, order[i].id, rank, &pairs, error);
    }
    if (err == OK) err = open_merges(bpe, pairs.count, error);
    for (size_t i = 0; err == OK && i < pairs.count; i++) add_slot(bpe, pairs.at[i]);
    free(pairs.at);
    return err;
}

/* SentencePiece merges the adjacent pair whose text is the token of the highest score, the leftmost
 * of equals. Here that is a table of pairs, ranked by the score of their result. */
static enum err index_scores(struct bpe *bpe, const struct tokenizer_source *source,
                             struct error *error) {
    struct scored_token *order = calloc(source->token_count, sizeof *order);
    if (!order) return err_set(error, ERR_LIMIT, "no memory for %zu scores", source->token_count);
    size_t count = 0;
    uint64_t work = 0;
    enum err err = OK;
    for (size_t id = 0; id < source->token_count && err == OK; id++) {
        size_t bytes = bpe->piece_texts[id].bytes;
        if (bpe->vocab->kinds[id] != TOKEN_NORMAL || bytes == 0) continue;
        work += (uint64_t)bytes * bytes;
        if (bytes > SCORED_BYTES_MAX)
            err = err_set(error, ERR_LIMIT, "token %zu has %zu bytes, over the limit of %d", id,
                          bytes, SCORED_BYTES_MAX);
        else if (work > SCORED_WORK_MAX)
            err = err_set(error, ERR_LIMIT, "the tokens are too many and too long to be scored");
        order[count++] = (struct scored_token){source->scores[id], (int32_t)id};
    }
    if (err == OK) {
        qsort(order, count, sizeof *order, by_score);
        err = split_tokens(bpe, order, count, error);
    }
    free(order);
    return err;
}

/* The tokens that a piece of their text may become with one look. With BPE_WHOLE_ALL that is every
 * ordinary token by definition. */
static void mark_whole(struct bpe *bpe, enum bpe_whole whole) {
    for (size_t id = 0; id < bpe->vocab->count; id++) {
        size_t bytes = bpe->piece_texts[id].bytes;
        uint8_t kind = bpe->vocab->kinds[id];
        if (kind != TOKEN_NORMAL && kind != TOKEN_USER_DEFINED) continue;
        if (bytes == 0 || bytes > WHOLE_BYTES_MAX) continue;
        atomic_init(&bpe->whole[id], whole == BPE_WHOLE_ALL ? IS_WHOLE : IS_WHOLE_UNKNOWN);
    }
}

enum err bpe_open(struct bpe *bpe, const struct tokenizer_vocab *vocab,
                  const struct tokenizer_source *source, enum bpe_alphabet alphabet,
                  enum bpe_whole whole, struct error *error) {
    struct bpe opened = {.vocab = vocab, .alphabet = alphabet, .missing = TOKEN_NONE};
    if (source->missing != MISSING_DROPPED) opened.missing = source->unknown;
    opened.fuse_missing = source->missing == MISSING_UNKNOWN_FUSED;
    enum err err = index_pieces(&opened, source, error);
    if (err == OK)
        err = source->scores && source->merge_count == 0 ? index_scores(&opened, source, error)
                                                         : index_merges(&opened, source, error);
    if (err != OK) {
        bpe_close(&opened);
        return err;
    }
    if (whole != BPE_WHOLE_UNMARKED) mark_whole(&opened, whole);
    *bpe = opened;
    return OK;
}

void bpe_close(struct bpe *bpe) {
    table_close(&bpe->pieces);
    free(bpe->piece_texts);
    free(bpe->own_texts);
    free(bpe->whole);
    free(bpe->merges);
    *bpe = (struct bpe){0};
}
