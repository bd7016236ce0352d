/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/idset.h"

#include "base/mem.h"

#include <assert.h>
#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BITS 20
#define HASH_BITS 44
#define FIRST_BITS 10

void idset_init(struct idset *set) {
    *set = (struct idset){.bits = FIRST_BITS};
    static_assert(sizeof set->key == crypto_shorthash_KEYBYTES, "the key of SipHash");
    randombytes_buf(set->key, sizeof set->key);
    set->slots = mem_new((size_t)1 << set->bits, sizeof *set->slots);
}

void idset_release(struct idset *set) {
    free(set->slots);
    set->slots = NULL;
}

static void put(uint64_t *slots, unsigned bits, uint64_t slot) {
    size_t mask = ((size_t)1 << bits) - 1;
    size_t at = (size_t)(slot >> (LINE_BITS + HASH_BITS - bits));
    while (slots[at] != 0) at = (at + 1) & mask;
    slots[at] = slot;
}

static void grow(struct idset *set) {
    unsigned bits = set->bits + 1;
    uint64_t *slots = mem_new((size_t)1 << bits, sizeof *slots);
    for (size_t i = 0; i < (size_t)1 << set->bits; i++)
        if (set->slots[i] != 0) put(slots, bits, set->slots[i]);
    free(set->slots);
    set->slots = slots;
    set->bits = bits;
}

bool idset_add(struct idset *set, struct str id, uint32_t line, idset_same_fn same, void *context,
               uint32_t *ret_first) {
    assert(line < IDSET_LINES_MAX);
    unsigned char sum[crypto_shorthash_BYTES];
    uint64_t hash;
    crypto_shorthash(sum, (const unsigned char *)(id.bytes ? id.at : ""), id.bytes, set->key);
    memcpy(&hash, sum, sizeof hash);
    hash >>= 64 - HASH_BITS;
    if (hash == 0) hash = 1; /* 0 marks a free slot */
    size_t mask = ((size_t)1 << set->bits) - 1;
    size_t at = (size_t)(hash >> (HASH_BITS - set->bits));
    for (; set->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t other = (uint32_t)(set->slots[at] & (IDSET_LINES_MAX - 1));
        if (set->slots[at] >> LINE_BITS != hash || !same(context, other)) continue;
        *ret_first = other;
        return false;
    }
    set->slots[at] = hash << LINE_BITS | line;
    set->count++;
    if ((uint64_t)set->count * 5 > ((uint64_t)4 << set->bits)) grow(set);
    return true;
}
