/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tokenizer/bpe_internal.h"

#include <assert.h>
#include <stdlib.h>

/* Up to here the quadratic scan beats the heap. */
#define SHORT_PIECE_BYTES 48
#define NO_RANK UINT32_MAX

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
static size_t first_bytes(const struct bpe *bpe, struct str piece, int32_t *ret_symbols) {
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

static size_t character_bytes(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The tokens of the bytes of a character that is no token itself; false when a byte has no
 * token. */
static bool fall_back(const struct bpe *bpe, struct str character, int32_t *ret_symbols) {
    for (size_t i = 0; i < character.bytes; i++) {
        ret_symbols[i] = bpe->byte_ids[(unsigned char)character.at[i]];
        if (ret_symbols[i] < 0) return false;
    }
    return true;
}

/* The tokens of the characters of a piece. */
static size_t first_characters(const struct bpe *bpe, struct str piece, int32_t *ret_symbols) {
    size_t count = 0;
    bool was_missing = false;
    for (size_t at = 0; at < piece.bytes;) {
        struct str character = {piece.at + at, character_bytes((unsigned char)piece.at[at])};
        int32_t id = character.bytes == 1 ? bpe->ascii_ids[(unsigned char)piece.at[at]]
                                          : table_find(&bpe->pieces, bpe->piece_texts, character);
        bool is_missing = false;
        if (id >= 0) {
            ret_symbols[count++] = id;
        } else if (fall_back(bpe, character, ret_symbols + count)) {
            count += character.bytes;
        } else {
            is_missing = true;
            if (bpe->missing >= 0 && !(was_missing && bpe->fuse_missing))
                ret_symbols[count++] = bpe->missing;
        }
        was_missing = is_missing;
        at += character.bytes;
    }
    return count;
}

static size_t first_symbols(const struct bpe *bpe, struct str piece, int32_t *ret_symbols) {
    return bpe->alphabet == BPE_CHARACTERS ? first_characters(bpe, piece, ret_symbols)
                                           : first_bytes(bpe, piece, ret_symbols);
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
 * 2. ranks[i] is the rank of the pair (i, next[i]) now. A heap entry whose rank differs is stale;
 *    one whose rank is equal stands for the pair that is there now, whichever put it.
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
        scratch->memory = mem_alloc(bytes);
        scratch->bytes = bytes;
    }
    return scratch->memory;
}

void bpe_scratch_release(struct bpe_scratch *scratch) {
    free(scratch->memory);
    *scratch = (struct bpe_scratch){.bytes_max = scratch->bytes_max};
}

static void encode_long(const struct bpe *bpe, struct str text, struct bpe_scratch *scratch,
                        struct ids *ids) {
    assert(text.bytes < UINT32_MAX);
    size_t room = text.bytes;
    size_t needed = room * (2 * sizeof(uint64_t) + 5 * sizeof(uint32_t));
    if (scratch->bytes_max > 0 && needed > scratch->bytes_max) {
        scratch->too_long_bytes = text.bytes;
        return;
    }
    uint64_t *memory = scratch_take(scratch, needed);
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

static void encode_merged(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                          struct ids *ids) {
    if (piece.bytes > SHORT_PIECE_BYTES) {
        encode_long(bpe, piece, scratch, ids);
        return;
    }
    int32_t symbols[SHORT_PIECE_BYTES];
    size_t count = merge_short(bpe, symbols, first_symbols(bpe, piece, symbols));
    for (size_t i = 0; i < count; i++) ids_add(ids, symbols[i]);
}

void bpe_encode(const struct bpe *bpe, struct str piece, struct bpe_scratch *scratch,
                struct ids *ids) {
    int32_t id = piece.bytes <= WHOLE_BYTES_MAX ? table_find(&bpe->pieces, bpe->piece_texts, piece)
                                                : TOKEN_NONE;
    unsigned char is_whole =
        id >= 0 ? atomic_load_explicit(&bpe->whole[id], memory_order_relaxed) : IS_NOT_WHOLE;
    if (is_whole == IS_WHOLE) {
        ids_add(ids, id);
        return;
    }
    size_t before = ids->count;
    encode_merged(bpe, piece, scratch, ids);
    if (is_whole != IS_WHOLE_UNKNOWN) return;
    bool is_one = ids->count == before + 1 && ids->at[before] == id;
    atomic_store_explicit(&bpe->whole[id], is_one ? IS_WHOLE : IS_NOT_WHOLE, memory_order_relaxed);
}
