/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/text_search.h"

#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

struct text_search {
    size_t bytes;
    char *part;       /* (bytes) folded */
    uint16_t *border; /* (bytes) for part[0..i]: the longest proper prefix that is its end, too */
};

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* How much of the part matches after one byte more. */
static size_t advance(const struct text_search *search, size_t matched, char c) {
    while (matched > 0 && search->part[matched] != c) matched = search->border[matched - 1];
    return matched + (search->part[matched] == c);
}

void text_search_open(struct text_search **ret_search, struct str part) {
    struct text_search *search = mem_new(1, sizeof *search);
    assert(part.bytes <= UINT16_MAX);
    search->bytes = part.bytes;
    search->part = mem_new(part.bytes + 1, 1);
    search->border = mem_new(part.bytes + 1, sizeof *search->border);
    for (size_t i = 0; i < part.bytes; i++) search->part[i] = lower(part.at[i]);
    for (size_t i = 1; i < part.bytes; i++)
        search->border[i] = (uint16_t)advance(search, search->border[i - 1], search->part[i]);
    *ret_search = search;
}

void text_search_close(struct text_search *search) {
    if (!search) return;
    free(search->part);
    free(search->border);
    free(search);
}

bool text_search_finds(const struct text_search *search, struct str whole) {
    size_t matched = 0;
    if (search->bytes == 0) return true;
    if (search->bytes > whole.bytes) return false;
    char small = search->part[0], large = small;
    if (small >= 'a' && small <= 'z') large = (char)(small & ~0x20);
    for (size_t i = 0; i < whole.bytes; i++) {
        char c = whole.at[i];
        if (matched == 0 && c != small && c != large) continue;
        matched = advance(search, matched, lower(c));
        if (matched == search->bytes) return true;
    }
    return false;
}
