/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/table.h"

#include <assert.h>
#include <sodium/randombytes.h>
#include <stdlib.h>

struct hash_key hash_key_new(void) {
    struct hash_key key;
    randombytes_buf(key.at, sizeof key.at);
    return key;
}

bool table_open(struct table *table, size_t count) {
    size_t slot_count = 16;
    while (slot_count < count * 2) slot_count *= 2;
    uint64_t *slots = calloc(slot_count, sizeof *slots);
    if (!slots) return false;
    *table = (struct table){.key = hash_key_new(), .slots = slots, .mask = slot_count - 1};
    return true;
}

void table_close(struct table *table) {
    free(table->slots);
    *table = (struct table){0};
}

static uint64_t slot_value(uint64_t hash, int32_t id) {
    return hash >> 32 << 32 | ((uint64_t)id + 1);
}

int32_t table_add(struct table *table, const struct str *keys, int32_t id) {
    assert(keys[id].bytes > 0);
    uint64_t hash = hash_bytes(&table->key, keys[id]);
    uint64_t *slot = table_slot(table, keys, keys[id], hash);
    if (*slot != 0) return (int32_t)(*slot & UINT32_MAX) - 1;
    *slot = slot_value(hash, id);
    return -1;
}

void table_replace(struct table *table, const struct str *keys, int32_t id) {
    assert(keys[id].bytes > 0);
    uint64_t hash = hash_bytes(&table->key, keys[id]);
    *table_slot(table, keys, keys[id], hash) = slot_value(hash, id);
}
