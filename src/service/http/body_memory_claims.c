/* SPDX-License-Identifier: Apache-2.0 */
#include "http/body_memory_claims.h"

#include <stdio.h>
#include <string.h>

static void drop_claim(struct body_memory_claims *claims, size_t index) {
    claims->count--;
    memmove(&claims->at[index], &claims->at[index + 1],
            (claims->count - index) * sizeof claims->at[0]);
}

static void forget_old(struct body_memory_claims *claims, int64_t now_ms) {
    for (size_t i = 0; i < claims->count;)
        if (claims->at[i].until_ms <= now_ms)
            drop_claim(claims, i);
        else
            i++;
}

/* The index of the owner's claim; `count` if it has none. *ret_ahead: the memory of all claims
 * before it. */
static size_t find_claim(const struct body_memory_claims *claims, const char *owner,
                         uint64_t *ret_ahead) {
    size_t i = 0;
    *ret_ahead = 0;
    for (; i < claims->count && strcmp(claims->at[i].owner, owner) != 0; i++)
        *ret_ahead += claims->at[i].bytes;
    return i;
}

bool body_memory_claims_admit(struct body_memory_claims *claims, const char *owner, uint64_t bytes,
                              uint64_t free_bytes, int64_t now_ms) {
    uint64_t ahead;
    forget_old(claims, now_ms);
    size_t index = find_claim(claims, owner, &ahead);
    bool is_admitted = bytes + ahead <= free_bytes;
    if (index == claims->count) {
        if (is_admitted || claims->count == CLAIMS_MAX) return is_admitted;
        snprintf(claims->at[index].owner, sizeof claims->at[index].owner, "%s", owner);
        claims->count++;
    }
    /* An admitted one keeps its claim until its body is whole, as its bytes are counted when they
     * come. */
    claims->at[index].bytes = bytes;
    claims->at[index].until_ms = now_ms + CLAIM_MS;
    return is_admitted;
}

void body_memory_claims_end(struct body_memory_claims *claims, const char *owner) {
    uint64_t ahead;
    size_t index = find_claim(claims, owner, &ahead);
    if (index < claims->count) drop_claim(claims, index);
}
