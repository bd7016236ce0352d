/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/key_throttle.h"

#include "base/mem.h"

#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 256
#define PLACES 8 /* addresses of a row */
#define NETWORK_BYTES 8
#define MS_PER_GUESS 1000

/* Bytes of an address of IPv4 (as IPv6 writes it), or of a network of IPv6 and zeros. */
struct source {
    unsigned char bytes[16];
};

struct throttle_place {
    struct source source;
    uint32_t left; /* guesses at `at_ms` */
    int64_t at_ms; /* 0: the place is empty */
    bool is_told;  /* the address used up its guesses, and has not got all of them back since */
};

struct key_throttle {
    unsigned char seed[crypto_shorthash_KEYBYTES];
    struct throttle_place rows[ROWS][PLACES];
};

struct key_throttle *key_throttle_new(void) {
    struct key_throttle *throttle = mem_new(1, sizeof *throttle);
    randombytes_buf(throttle->seed, sizeof throttle->seed);
    return throttle;
}

void key_throttle_free(struct key_throttle *throttle) {
    free(throttle);
}

static struct source source_of(const struct address *peer) {
    static const unsigned char v4[12] = {[10] = 0xFF, [11] = 0xFF};
    struct source source = {{0}};
    bool is_v4 = memcmp(peer->bytes, v4, sizeof v4) == 0;
    memcpy(source.bytes, peer->bytes, is_v4 ? sizeof source.bytes : NETWORK_BYTES);
    return source;
}

static void fill_up(struct throttle_place *place, int64_t now_ms) {
    int64_t more = (now_ms - place->at_ms) / MS_PER_GUESS;
    if (more <= 0) return;
    place->at_ms += more * MS_PER_GUESS;
    place->left = more < KEY_THROTTLE_AT_ONCE - place->left ? place->left + (uint32_t)more
                                                            : KEY_THROTTLE_AT_ONCE;
    if (place->left == KEY_THROTTLE_AT_ONCE) place->is_told = false;
}

/* The place of the address, up to date; NULL: it has sent no wrong key lately. */
static struct throttle_place *find(struct throttle_place row[PLACES], const struct source *source,
                                   int64_t now_ms) {
    for (int i = 0; i < PLACES; i++)
        if (row[i].at_ms && memcmp(&row[i].source, source, sizeof *source) == 0) {
            fill_up(&row[i], now_ms);
            return &row[i];
        }
    return NULL;
}

static struct throttle_place *row_of(struct key_throttle *throttle, const struct source *source) {
    unsigned char hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, (const unsigned char *)source, sizeof *source, throttle->seed);
    return throttle->rows[hash[0] % ROWS];
}

static struct throttle_place *take_place(struct throttle_place row[PLACES],
                                         const struct source *source, int64_t now_ms) {
    struct throttle_place *best = &row[0];
    for (int i = 0; i < PLACES; i++) {
        if (row[i].at_ms) fill_up(&row[i], now_ms);
        uint32_t left = row[i].at_ms ? row[i].left : KEY_THROTTLE_AT_ONCE + 1;
        uint32_t most = best->at_ms ? best->left : KEY_THROTTLE_AT_ONCE + 1;
        if (left > most) best = &row[i];
    }
    *best =
        (struct throttle_place){.source = *source, .left = KEY_THROTTLE_AT_ONCE, .at_ms = now_ms};
    return best;
}

bool key_throttle_allows(struct key_throttle *throttle, const struct address *peer,
                         int64_t now_ms) {
    struct source source = source_of(peer);
    const struct throttle_place *place = find(row_of(throttle, &source), &source, now_ms);
    return !place || place->left > 0;
}

bool key_throttle_count(struct key_throttle *throttle, const struct address *peer, int64_t now_ms) {
    struct source source = source_of(peer);
    struct throttle_place *row = row_of(throttle, &source);
    struct throttle_place *place = find(row, &source, now_ms);
    if (!place) place = take_place(row, &source, now_ms);
    if (place->left > 0) place->left--;
    if (place->left > 0 || place->is_told) return false;
    place->is_told = true;
    return true;
}
