/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/deck.h"

#include "base/mem.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "batch/line.h"
#include "batch/state.h"
#include "curation/facts.h"
#include "json/span.h"

#include <pthread.h>
#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
#include <stdlib.h>
#include <string.h>

#define DECKS_KEPT 4                  /* that no caller has */
#define PIECE_BYTES ((size_t)1 << 20) /* of results, read at once */

struct deck_line {
    uint64_t offset; /* in the input */
    uint64_t id_hash;
    uint32_t bytes;
    uint32_t sequence; /* number of its record; 0: no result yet */
};

struct deck {
    struct decks *decks;
    char batch_id[STORE_ID_BYTES];
    uint32_t users; /* guarded by decks->lock, as the next two */
    bool is_kept;
    uint64_t used_at;
    pthread_mutex_t lock; /* guards the rest while it is made and followed */
    bool is_made;
    bool is_whole; /* the batch has ended, and all of its results were taken */
    char input_file_id[STORE_ID_BYTES];
    int64_t created_unix_s;
    uint64_t after; /* sequence number of the last result that was taken */
    struct deck_line *lines;
    size_t count, capacity;
    uint32_t *slots; /* line + 1 by the hash of its custom_id; 0: free */
    size_t slot_count;
    bool has_one_shape;
    struct facts *facts;
};

struct decks {
    struct store *store;
    struct runner *runner;
    unsigned char key[crypto_shorthash_KEYBYTES];
    pthread_mutex_t lock; /* guards the rest */
    struct deck *kept[DECKS_KEPT];
    uint64_t clock; /* number of calls of deck_take, for used_at */
};

/* --- custom_ids --- */

static uint64_t hash_of(const struct decks *decks, struct str id) {
    unsigned char sum[crypto_shorthash_BYTES];
    uint64_t hash;
    crypto_shorthash(sum, (const unsigned char *)(id.bytes ? id.at : ""), id.bytes, decks->key);
    memcpy(&hash, sum, sizeof hash);
    return hash;
}

/* The hash of a raw custom_id; 0 if it is no string. */
static uint64_t hash_raw(const struct decks *decks, struct str raw, struct buf *scratch) {
    if (!json_span_is_string(raw)) return 0;
    buf_clear(scratch);
    uint64_t hash = hash_of(decks, json_span_text(raw, scratch));
    return hash ? hash : 1;
}

/* The first line at or behind `*at`, a place in the slots, with this hash; false if none is left.
 * *at moves behind it. */
static bool next_line(const struct deck *deck, uint64_t hash, size_t *at, uint32_t *ret_line) {
    size_t mask = deck->slot_count - 1;
    if (deck->slot_count == 0) return false;
    for (uint32_t slot; (slot = deck->slots[*at & mask]) != 0;) {
        ++*at;
        if (deck->lines[slot - 1].id_hash != hash) continue;
        *ret_line = slot - 1;
        return true;
    }
    return false;
}

static void fill_slots(struct deck *deck) {
    deck->slot_count = 16;
    while (deck->slot_count < 2 * deck->count) deck->slot_count *= 2;
    deck->slots = mem_new(deck->slot_count, sizeof *deck->slots);
    for (size_t i = 0; i < deck->count; i++) {
        size_t at = (size_t)deck->lines[i].id_hash, mask = deck->slot_count - 1;
        if (deck->lines[i].id_hash == 0) continue;
        while (deck->slots[at & mask] != 0) at++;
        deck->slots[at & mask] = (uint32_t)i + 1;
    }
}

/* --- making --- */

static enum err open_input(const struct deck *deck, int *ret_fd, uint64_t *ret_bytes,
                           struct error *error) {
    struct store_file file;
    enum err err = store_input_open(deck->decks->store, str_from(deck->input_file_id),
                                    deck->created_unix_s, ret_fd, &file, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, err, "The input file '%s' of this batch was deleted or has expired.",
                       deck->input_file_id);
    if (err == OK) *ret_bytes = file.bytes;
    return err;
}

/* The hash of the answer's shape that a request asks for; 0: it asks for none. */
static uint64_t hash_shape(const struct decks *decks, const struct batch_line *line,
                           struct buf *room) {
    buf_clear(room);
    struct str shape = batch_line_shape(line, room);
    if (shape.bytes == 0) shape = line->questions;
    return shape.bytes ? hash_of(decks, shape) : 0;
}

static enum err read_input(struct deck *deck, struct error *error) {
    struct jsonl_file input;
    struct str text;
    struct buf scratch;
    jsonl_file_init(&input);
    enum err err = open_input(deck, &input.fd, &input.bytes, error);
    if (err != OK) return err;
    buf_init(&scratch, BUF_UNLIMITED);
    deck->has_one_shape = true;
    for (uint64_t first = 0; deck->count < UINT32_MAX - 1 && jsonl_file_next(&input, &text);) {
        struct batch_line line;
        if (batch_line_read(text, &line) != BATCH_LINE_READ) line = (struct batch_line){0};
        uint64_t shape = hash_shape(deck->decks, &line, &scratch);
        if (deck->count == 0) first = shape;
        if (shape == 0 || shape != first) deck->has_one_shape = false;
        deck->lines = vec_grow(deck->lines, deck->count, &deck->capacity, sizeof *deck->lines);
        deck->lines[deck->count++] =
            (struct deck_line){.offset = jsonl_file_line_at(&input, text),
                               .bytes = (uint32_t)text.bytes,
                               .id_hash = hash_raw(deck->decks, line.custom_id, &scratch)};
    }
    if (input.failed) err = err_set(error, input.why.code, "%s", input.why.text);
    jsonl_file_close(&input);
    buf_release(&scratch);
    if (err != OK) {
        deck->count = 0; /* the next caller makes it anew */
        return err;
    }
    fill_slots(deck);
    facts_open(&deck->facts, deck->count);
    return OK;
}

/* --- following --- */

/* The raw custom_id of a result line, which may be cut off behind it; `at` NULL if it has
 * none. */
static struct str id_of_result(struct str text) {
    struct json_span_iter iter;
    struct str key, value;
    if (!json_span_enter(&iter, text)) return (struct str){NULL, 0};
    while (json_span_member(&iter, &key, &value))
        if (json_span_string_is(key, "custom_id")) return value;
    return (struct str){NULL, 0};
}

/* Notes the result of a line. False if its custom_id is not whole. */
static bool note_result(struct deck *deck, struct str text, uint64_t sequence,
                        struct buf *scratch) {
    struct str raw = id_of_result(text);
    uint32_t line;
    if (!raw.at) return false;
    uint64_t hash = hash_raw(deck->decks, raw, scratch);
    size_t at = (size_t)hash;
    if (next_line(deck, hash, &at, &line)) deck->lines[line].sequence = (uint32_t)sequence;
    return true;
}

/* Notes the lines of a piece; the last one may be cut off. Moves deck->after behind them. */
static void note_piece(struct deck *deck, struct str text, struct buf *scratch) {
    while (text.bytes > 0) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str line = {text.at, end == SIZE_MAX ? text.bytes : end};
        bool is_first = line.bytes == text.bytes; /* one line fills the piece */
        bool is_noted = note_result(deck, line, deck->after + 1, scratch);
        if (!is_noted && end == SIZE_MAX && !is_first) return;
        deck->after++;
        text = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
    }
}

static size_t count_ends(struct str text) {
    size_t count = 0;
    for (size_t at = 0; (at = str_find_byte(text, '\n', at)) != SIZE_MAX; at++) count++;
    return count;
}

/* Reads a piece of at most `lines_max` results behind deck->after. */
static enum err read_piece(struct deck *deck, struct runner_results *results, uint64_t lines_max,
                           struct buf *piece, struct page_read *ret_read, struct error *error) {
    struct page page = {.from = {.after = deck->after},
                        .lines_max = lines_max,
                        .bytes_max = UINT64_MAX,
                        .room = PIECE_BYTES};
    buf_clear(piece);
    return runner_results_read(results, &page, piece, ret_read, error);
}

/* Takes the results that have come. Sequence numbers have gaps where a record is damaged or a
 * duplicate. The lines of such a piece are read one by one, because a page tells only its last
 * number. */
static enum err follow(struct deck *deck, struct runner_results *results, bool *ret_more,
                       struct error *error) {
    struct buf piece, scratch;
    struct page_read read;
    uint64_t lines_max = UINT64_MAX, gap_ends = 0;
    enum err err;
    buf_init(&piece, PIECE_BYTES);
    buf_init(&scratch, BUF_UNLIMITED);
    while ((err = read_piece(deck, results, lines_max, &piece, &read, error)) == OK) {
        uint64_t passed = read.next.after - deck->after;
        if (piece.bytes == 0) break;
        if (lines_max > 1 && passed != count_ends(buf_str(&piece))) {
            lines_max = 1;
            gap_ends = read.next.after;
            continue;
        }
        if (lines_max == 1) deck->after = read.next.after - (read.next.skip == 0);
        note_piece(deck, buf_str(&piece), &scratch);
        if (deck->after >= gap_ends) lines_max = UINT64_MAX;
    }
    if (err == OK) *ret_more = read.more;
    buf_release(&piece);
    buf_release(&scratch);
    return err;
}

static enum err bring_up_to_date(struct deck *deck, bool has_ended, struct error *error) {
    struct runner_results *results;
    bool more = true;
    enum err err = deck->is_made ? OK : read_input(deck, error);
    if (err == OK) deck->is_made = true;
    if (err != OK || deck->is_whole) return err;
    runner_results_open(&results, deck->decks->runner, str_from(deck->batch_id));
    err = follow(deck, results, &more, error);
    runner_results_close(results);
    if (err == OK) deck->is_whole = has_ended && !more;
    return err;
}

/* --- taking --- */

static void free_deck(struct deck *deck) {
    pthread_mutex_destroy(&deck->lock);
    facts_close(deck->facts);
    free(deck->lines);
    free(deck->slots);
    free(deck);
}

static struct deck *make_deck(struct decks *decks, const struct store_batch *batch) {
    struct deck *deck = mem_new(1, sizeof *deck);
    deck->decks = decks;
    memcpy(deck->batch_id, batch->id, sizeof deck->batch_id);
    memcpy(deck->input_file_id, batch->input_file_id, sizeof deck->input_file_id);
    deck->created_unix_s = batch->created_unix_s;
    pthread_mutex_init(&deck->lock, NULL);
    return deck;
}

/* Puts a deck into a free place, or into that of the least recently used deck without a caller. If
 * no place exists, the deck is freed when it is dropped. The caller holds the lock. */
static void keep(struct decks *decks, struct deck *deck) {
    struct deck **place = NULL;
    for (size_t i = 0; i < DECKS_KEPT; i++) {
        struct deck **at = &decks->kept[i];
        if (*at && (*at)->users > 0) continue;
        if (!place || (*place && (!*at || (*at)->used_at < (*place)->used_at))) place = at;
    }
    if (!place) return;
    if (*place) free_deck(*place);
    deck->is_kept = true;
    *place = deck;
}

static struct deck *find_or_make(struct decks *decks, const struct store_batch *batch) {
    struct deck *deck = NULL;
    pthread_mutex_lock(&decks->lock);
    for (size_t i = 0; i < DECKS_KEPT && !deck; i++)
        if (decks->kept[i] && strcmp(decks->kept[i]->batch_id, batch->id) == 0)
            deck = decks->kept[i];
    if (!deck) {
        deck = make_deck(decks, batch);
        keep(decks, deck);
    }
    deck->users++;
    deck->used_at = ++decks->clock;
    pthread_mutex_unlock(&decks->lock);
    return deck;
}

enum err deck_take(struct decks *decks, const struct store_batch *batch, struct deck **ret_deck,
                   struct error *error) {
    struct deck *deck = find_or_make(decks, batch);
    pthread_mutex_lock(&deck->lock);
    enum err err = bring_up_to_date(deck, batch_status_is_terminal(batch->status), error);
    pthread_mutex_unlock(&deck->lock);
    if (err == OK)
        *ret_deck = deck;
    else
        deck_drop(deck);
    return err;
}

void deck_drop(struct deck *deck) {
    struct decks *decks = deck->decks;
    pthread_mutex_lock(&decks->lock);
    bool is_last = --deck->users == 0;
    /* A deck that could not be made leaves its place: the next caller makes a new one. */
    if (is_last && !deck->is_made)
        for (size_t i = 0; i < DECKS_KEPT; i++)
            if (decks->kept[i] == deck) {
                decks->kept[i] = NULL;
                deck->is_kept = false;
            }
    bool is_gone = is_last && !deck->is_kept;
    pthread_mutex_unlock(&decks->lock);
    if (is_gone) free_deck(deck);
}

void decks_open(struct decks **ret_decks, struct store *store, struct runner *runner) {
    struct decks *decks = mem_new(1, sizeof *decks);
    decks->store = store;
    decks->runner = runner;
    randombytes_buf(decks->key, sizeof decks->key);
    pthread_mutex_init(&decks->lock, NULL);
    *ret_decks = decks;
}

void decks_close(struct decks *decks) {
    if (!decks) return;
    for (size_t i = 0; i < DECKS_KEPT; i++)
        if (decks->kept[i]) free_deck(decks->kept[i]);
    pthread_mutex_destroy(&decks->lock);
    free(decks);
}

/* --- looking --- */

uint32_t deck_lines(const struct deck *deck) {
    return (uint32_t)deck->count;
}

static uint32_t sequence_of(struct deck *deck, uint32_t line) {
    pthread_mutex_lock(&deck->lock);
    uint32_t sequence = line < deck->count ? deck->lines[line].sequence : 0;
    pthread_mutex_unlock(&deck->lock);
    return sequence;
}

bool deck_has_result(struct deck *deck, uint32_t line) {
    return sequence_of(deck, line) != 0;
}

unsigned char *deck_results(struct deck *deck) {
    pthread_mutex_lock(&deck->lock);
    unsigned char *has = mem_new(deck->count + 1, 1);
    for (size_t i = 0; i < deck->count; i++) has[i] = deck->lines[i].sequence != 0;
    pthread_mutex_unlock(&deck->lock);
    return has;
}

bool deck_has_one_shape(const struct deck *deck) {
    return deck->has_one_shape && deck->count > 0;
}

bool deck_match(const struct deck *deck, uint32_t line, const struct deck *other,
                uint32_t *ret_line) {
    uint64_t hash = deck->lines[line].id_hash;
    size_t at = (size_t)hash;
    return hash != 0 && next_line(other, hash, &at, ret_line);
}

struct facts *deck_facts(const struct deck *deck) {
    return deck->facts;
}

/* --- reading --- */

enum err deck_reader_open(struct deck_reader *ret_reader, struct deck *deck, struct error *error) {
    uint64_t bytes;
    struct deck_reader reader = {.deck = deck};
    enum err err = open_input(deck, &reader.input_fd, &bytes, error);
    if (err != OK) return err;
    runner_results_open(&reader.results, deck->decks->runner, str_from(deck->batch_id));
    *ret_reader = reader;
    return OK;
}

void deck_reader_close(struct deck_reader *reader) {
    os_close(reader->input_fd);
    runner_results_close(reader->results);
}

enum err deck_read_request(struct deck_reader *reader, uint32_t line, struct buf *buf,
                           struct error *error) {
    const struct deck_line *at = &reader->deck->lines[line]; /* it never moves or changes */
    char *room = at->bytes <= DECK_TEXT_BYTES_MAX ? buf_reserve(buf, at->bytes) : NULL;
    if (!room)
        return err_set(error, ERR_LIMIT, "The request on line %u has too many bytes to be shown.",
                       line + 1);
    enum err err = os_pread_all(reader->input_fd, room, at->bytes, at->offset, error);
    if (err == OK) buf_commit(buf, at->bytes);
    return err;
}

enum err deck_find(struct deck_reader *reader, struct str custom_id, uint32_t *ret_line,
                   struct error *error) {
    struct deck *deck = reader->deck;
    struct buf text, scratch;
    uint32_t line;
    uint64_t hash = hash_of(deck->decks, custom_id);
    enum err err = OK;
    bool found = false;
    if (hash == 0) hash = 1;
    size_t at = (size_t)hash;
    buf_init(&text, DECK_TEXT_BYTES_MAX);
    buf_init(&scratch, BUF_UNLIMITED);
    while (err == OK && !found && next_line(deck, hash, &at, &line)) {
        buf_clear(&text);
        buf_clear(&scratch);
        err = deck_read_request(reader, line, &text, error);
        struct str raw = json_span_get(buf_str(&text), "custom_id");
        found = err == OK && json_span_is_string(raw) &&
                str_equals(json_span_text(raw, &scratch), custom_id);
    }
    buf_release(&text);
    buf_release(&scratch);
    if (err == OK && found) *ret_line = line;
    return err == OK && !found ? err_set(error, ERR_NOT_FOUND, "no such line") : err;
}

/* True if the result has the custom_id of the line. */
static bool is_answer_of(struct deck_reader *reader, uint32_t line, struct str result) {
    struct buf scratch;
    buf_init(&scratch, BUF_UNLIMITED);
    bool same = hash_raw(reader->deck->decks, id_of_result(result), &scratch) ==
                reader->deck->lines[line].id_hash;
    buf_release(&scratch);
    return same;
}

enum err deck_read_result(struct deck_reader *reader, uint32_t line, struct buf *buf,
                          struct error *error) {
    uint32_t sequence = sequence_of(reader->deck, line);
    struct page_read read;
    size_t before = buf->bytes;
    if (sequence == 0) return err_set(error, ERR_NOT_FOUND, "Line %u has no result yet.", line + 1);
    struct page page = {.from = {.after = sequence - 1},
                        .lines_max = 1,
                        .bytes_max = UINT64_MAX,
                        .room = DECK_TEXT_BYTES_MAX};
    enum err err = runner_results_read(reader->results, &page, buf, &read, error);
    if (err != OK) return err;
    struct str text = str_skip(buf_str(buf), before);
    if (text.bytes > 0 && text.at[text.bytes - 1] == '\n') {
        buf_truncate(buf, buf->bytes - 1);
        text.bytes--;
    } else if (text.bytes > 0) {
        err = err_set(error, ERR_LIMIT, "The result of line %u has too many bytes to be shown.",
                      line + 1);
    }
    /* A record found damaged since then is absent, and its line runs again. */
    if (err == OK && (text.bytes == 0 || !is_answer_of(reader, line, text)))
        err = err_set(error, ERR_CORRUPT, "the record of line %u is damaged", line + 1);
    if (err != OK) buf_truncate(buf, before);
    return err;
}
