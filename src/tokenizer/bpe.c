/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/bpe.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdlib.h>

/* Up to here the quadratic scan beats the heap. */
#define SHORT_PIECE_BYTES 48
/* Tokens longer than this are not tried for `whole`: they go through their merges. */
#define WHOLE_BYTES_MAX 256
#define MERGES_MAX (1u << 23)

#define NO_PAIR UINT64_MAX
#define NO_RANK UINT32_MAX

struct merge_slot {
    uint64_t pair; /* left id << 32 | right id; NO_PAIR is a free slot */
    uint32_t rank; /* lower is merged first */
    int32_t result;
};

/* --- merges ---------------------------------------------------------------------------------- */

static struct merge_slot *merge_slot(const struct bpe *bpe, uint64_t pair) {
    size_t at = hash_mix(pair ^ bpe->merge_key, 0x9E3779B97F4A7C15u) & bpe->merge_mask;
    while (bpe->merges[at].pair != pair && bpe->merges[at].pair != NO_PAIR)
        at = (at + 1) & bpe->merge_mask;
    return &bpe->merges[at];
}

/* The rank of the pair, NO_RANK when it does not merge. *ret_result is set with a rank only. */
static uint32_t merge_rank(const struct bpe *bpe, int32_t left, int32_t right,
                           int32_t *ret_result) {
    if (left < 0 || right < 0) return NO_RANK;
    const struct merge_slot *slot = merge_slot(bpe, (uint64_t)left << 32 | (uint32_t)right);
    if (slot->pair == NO_PAIR) return NO_RANK;
    *ret_result = slot->result;
    return slot->rank;
}

/* --- short pieces ---------------------------------------------------------------------------- */

/* The tokens of the bytes of a piece; returns how many. Where a byte has no token its neighbours
 * close up, as in Hugging Face tokenizers. */
static size_t first_symbols(const struct bpe *bpe, struct str piece, int32_t *ret_symbols) {
    size_t count = 0;
    bool was_missing = false;
    for (size_t i = 0; i < piece.bytes; i++) {
        int32_t id = bpe->byte_ids[(unsigned char)piece.at[i]];
        bool is_missing = id < 0;
        if (is_missing && bpe->missing >= 0 && !(was_missing && bpe->fuse_missing))
            ret_symbols[count++] = bpe->missing;
        if (!is_missing) ret_symbols[count++] = id;
        was_missing = is_missing;
    }
    return count;
}

static size_t merge_short(const struct bpe *bpe, int32_t *symbols, size_t count) {
    uint32_t ranks[SHORT_PIECE_BYTES];
    int32_t results[SHORT_PIECE_BYTES];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = merge_rank(bpe, symbols[i], symbols[i + 1], &results[i]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        symbols[best] = results[best];
        count--;
        size_t moved = count - best - 1;
        memmove(symbols + best + 1, symbols + best + 2, moved * sizeof *symbols);
        if (moved > 0) {
            memmove(ranks + best + 1, ranks + best + 2, (moved - 1) * sizeof *ranks);
            memmove(results + best + 1, results + best + 2, (moved - 1) * sizeof *results);
            ranks[best] = merge_rank(bpe, symbols[best], symbols[best + 1], &results[best]);
        }
        if (best > 0)
            ranks[best - 1] = merge_rank(bpe, symbols[best - 1], symbols[best], &results[best - 1]);
    }
    return count;
}

/* --- long pieces ----------------------------------------------------------------------------- */

/* A list of symbols with a heap of the pairs that may merge.
 * 1. next[i] and previous[i] skip symbols that were merged away.
 * 2. ranks[i] is the rank of the pair (i, next[i]) now. A heap entry whose rank differs is stale:
 *    one rank is one pair of ids, so equality means the pair is still that pair.
 * 3. Entries never outnumber symbols by more than 2 to 1: each merge takes one and puts two. */
struct long_piece {
    const struct bpe *bpe;
    int32_t *symbols;
    int32_t *results;
    uint32_t *ranks;
    uint32_t *next; /* `count` after the last */
    uint32_t *previous;
    uint64_t *heap; /* rank << 32 | position: lowest rank first, leftmost of equals */
    size_t heap_count;
    uint32_t count;
};

static void heap_put(struct long_piece *piece, uint64_t entry) {
    size_t at = piece->heap_count++;
    while (at > 0 && piece->heap[(at - 1) / 2] > entry) {
        piece->heap[at] = piece->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    piece->heap[at] = entry;
}

static uint64_t heap_take(struct long_piece *piece) {
    uint64_t *heap = piece->heap;
    uint64_t top = heap[0];
    uint64_t last = heap[--piece->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= piece->heap_count) break;
        if (child + 1 < piece->heap_count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static void update_pair(struct long_piece *piece, uint32_t at) {
    uint32_t right = piece->next[at];
    piece->ranks[at] = NO_RANK;
    if (right == piece->count) return;
    piece->ranks[at] =
        merge_rank(piece->bpe, piece->symbols[at], piece->symbols[right], &piece->results[at]);
    if (piece->ranks[at] != NO_RANK) heap_put(piece, (uint64_t)piece->ranks[at] << 32 | at);
}

static void merge_long(struct long_piece *piece) {
    for (uint32_t i = 0; i < piece->count; i++) {
        piece->next[i] = i + 1;
        piece->previous[i] = i > 0 ? i - 1 : piece->count;
    }
    for (uint32_t i = 0; i < piece->count; i++) update_pair(piece, i);
    while (piece->heap_count > 0) {
        uint64_t entry = heap_take(piece);
        uint32_t left = (uint32_t)entry;
        if (piece->ranks[left] != entry >> 32) continue;
        uint32_t right = piece->next[left];
        piece->symbols[left] = piece->results[left];
        piece->ranks[right] = NO_RANK;
        piece->next[left] = piece->next[right];
        if (piece->next[left] < piece->count) piece->previous[piece->next[left]] = left;
        update_pair(piece, left);
        if (piece->previous[left] < piece->count) update_pair(piece, piece->previous[left]);
    }
}

static void *scratch_take(struct bpe_scratch *scratch, size_t bytes) {
    if (scratch->bytes < bytes) {
        free(scratch->memory);
        scratch->memory = malloc(bytes);
        if (!scratch->memory) abort();
        scratch->bytes = bytes;
    }
    return scratch->memory;
}

void bpe_scratch_release(struct bpe_scratch *scratch) {
    free(scratch->memory);
    *scratch = (struct bpe_scratch){0};
}

static void encode_long(const struct bpe *bpe, struct str text, struct bpe_scratch *scratch,
                        struct ids *ids) {
    assert(text.bytes < UINT32_MAX);
    size_t room = text.bytes;
    uint64_t *memory = scratch_take(scratch, room * (2 * sizeof(uint64_t) + 5 * sizeof(uint32_t)));
    struct long_piece piece = {.bpe = bpe, .heap = memory};
    piece.symbols = (int32_t *)(memory + 2 * room);
    piece.results = piece.symbols + room;
    piece.ranks = (uint32_t *)(piece.results + room);
    piece.next = piece.ranks + room;
    piece.previous = piece.next + room;
    piece.count = (uint32_t)first_symbols(bpe, text, piece.symbols);
    merge_long(&piece);
    for (uint32_t i = 0; i < piece.count; i = piece.next[i]) ids_add(ids, piece.symbols[i]);
}

void bpe_encode(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                struct ids *ids) {
    if (piece.bytes <= WHOLE_BYTES_MAX) {
        int32_t id = table_find(&bpe->pieces, bpe->piece_texts, piece);
        if (id >= 0 && bpe->whole[id]) {
            ids_add(ids, id);
            return;
        }
    }
    if (piece.bytes > SHORT_PIECE_BYTES) {
        encode_long(bpe, piece, scratch, ids);
        return;
    }
    int32_t symbols[SHORT_PIECE_BYTES];
    size_t count = merge_short(bpe, symbols, first_symbols(bpe, piece, symbols));
    for (size_t i = 0; i < count; i++) ids_add(ids, symbols[i]);
}

/* --- opening --------------------------------------------------------------------------------- */

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

static bool is_in_alphabet(struct str spelled) {
    if (!utf8_is_valid(spelled)) return false;
    for (size_t at = 0; at < spelled.bytes;) {
        uint32_t code_point;
        at += utf8_decode(spelled, at, &code_point);
        if (alphabet_byte(code_point) < 0) return false;
    }
    return true;
}

/* A special token's bytes are its spelling; as a piece it is what the spelling stands for. */
static void fill_piece_texts(struct bpe *bpe, const struct tokenizer_source *source) {
    char *at = bpe->special_texts;
    for (size_t id = 0; id < source->token_count; id++) {
        struct str spelled = source->tokens[id];
        if (!is_in_alphabet(spelled)) continue;
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
    size_t special_bytes = 1;
    if (source->token_count == 0) return err_set(error, ERR_INVALID, "the vocabulary is empty");
    for (size_t id = 0; id < source->token_count; id++)
        if (bpe->vocab->kinds[id] != TOKEN_NORMAL) special_bytes += source->tokens[id].bytes;
    bpe->special_texts = malloc(special_bytes);
    bpe->piece_texts = calloc(source->token_count, sizeof *bpe->piece_texts);
    bpe->whole = calloc(source->token_count, 1);
    if (!bpe->special_texts || !bpe->piece_texts || !bpe->whole ||
        !table_open(&bpe->pieces, source->token_count))
        return err_set(error, ERR_LIMIT, "no memory for %zu tokens", source->token_count);
    fill_piece_texts(bpe, source);
    for (size_t i = 0; i < 256; i++) bpe->byte_ids[i] = TOKEN_NONE;
    for (size_t id = 0; id < source->token_count; id++) {
        struct str text = bpe->piece_texts[id];
        if (text.bytes == 0) continue;
        /* Spellings differ, so their bytes do: nothing is there yet. */
        int32_t other = table_add(&bpe->pieces, bpe->piece_texts, (int32_t)id);
        assert(other < 0);
        if (text.bytes == 1) bpe->byte_ids[(unsigned char)text.at[0]] = (int32_t)id;
    }
    return OK;
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
    size_t left_bytes = bpe_decode_spelling(spelled_left, part);
    size_t bytes = left_bytes + bpe_decode_spelling(spelled_right, part + left_bytes);
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
    struct merge_slot *slot = merge_slot(bpe, pair);
    if (slot->pair == NO_PAIR) *slot = (struct merge_slot){pair, (uint32_t)rank, result};
    return OK;
}

static enum err index_merges(struct bpe *bpe, const struct tokenizer_source *source,
                             struct error *error) {
    if (source->merge_count > MERGES_MAX)
        return err_set(error, ERR_INVALID, "the vocabulary has %zu merges, over the limit of %u",
                       source->merge_count, MERGES_MAX);
    size_t slot_count = 16;
    size_t longest = 1;
    while (slot_count < source->merge_count * 2) slot_count *= 2;
    for (size_t i = 0; i < source->merge_count; i++)
        if (source->merges[i].bytes > longest) longest = source->merges[i].bytes;
    char *part = malloc(longest);
    bpe->merges = malloc(slot_count * sizeof *bpe->merges);
    if (!part || !bpe->merges) {
        free(part);
        return err_set(error, ERR_LIMIT, "no memory for %zu merges", source->merge_count);
    }
    for (size_t i = 0; i < slot_count; i++) bpe->merges[i].pair = NO_PAIR;
    bpe->merge_mask = slot_count - 1;
    bpe->merge_key = hash_key_new().at[0];
    enum err err = OK;
    for (size_t rank = 0; rank < source->merge_count && err == OK; rank++)
        err = add_merge(bpe, source, rank, part, error);
    free(part);
    return err;
}

/* Finds the tokens that a piece of their text becomes anyway, so that encoding finds most pieces
 * with one look. With ignore_merges that is every ordinary token by definition. */
static void mark_whole(struct bpe *bpe, bool ignore_merges) {
    struct bpe_scratch scratch = {0};
    struct ids ids = {0};
    for (size_t id = 0; id < bpe->vocab->count; id++) {
        struct str token = bpe->piece_texts[id];
        uint8_t kind = bpe->vocab->kinds[id];
        if (kind != TOKEN_NORMAL && kind != TOKEN_USER_DEFINED) continue;
        if (token.bytes == 0 || token.bytes > WHOLE_BYTES_MAX) continue;
        ids.count = 0;
        if (!ignore_merges) bpe_encode(bpe, token, &scratch, &ids);
        bpe->whole[id] = ignore_merges || (ids.count == 1 && ids.at[0] == (int32_t)id);
    }
    ids_release(&ids);
    bpe_scratch_release(&scratch);
}

enum err bpe_open(struct bpe *bpe, const struct vocab *vocab, const struct tokenizer_source *source,
                  bool ignore_merges, struct error *error) {
    struct bpe opened = {.vocab = vocab, .missing = TOKEN_NONE};
    if (source->missing != MISSING_DROPPED) opened.missing = source->unknown;
    opened.fuse_missing = source->missing == MISSING_UNKNOWN_FUSED;
    enum err err = index_pieces(&opened, source, error);
    if (err == OK) err = index_merges(&opened, source, error);
    if (err != OK) {
        bpe_close(&opened);
        return err;
    }
    mark_whole(&opened, ignore_merges);
    *bpe = opened;
    return OK;
}

void bpe_close(struct bpe *bpe) {
    table_close(&bpe->pieces);
    free(bpe->piece_texts);
    free(bpe->special_texts);
    free(bpe->whole);
    free(bpe->merges);
    *bpe = (struct bpe){0};
}
