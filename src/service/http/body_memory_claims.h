/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* body_memory_claims: who is next to send a large body when the memory of all bodies is full.
 *
 * A refused client tries again after a second. Whoever tries most often would find the memory each
 * time that it becomes free, and an owner with one client would never. So a refusal leaves a claim:
 * for 3 s the memory that was asked for is kept from owners who came later, and the claims of one
 * owner are one. Only the claim waits; no byte of the body does.
 *
 * Thread: one at a time.
 * Memory: none but the struct.
 * Invariant: claims are in the order of their first refusal, at most one per owner. */

#include "protocol/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLAIMS_MAX 64 /* further owners are refused without a claim */
#define CLAIM_MS 3000 /* `retry-after` is 1 s, and the body takes some time to come */
#define CLAIM_OWNER_BYTES (OWNER_BYTES + 40)

struct body_memory_claims {
    struct claim {
        char owner[CLAIM_OWNER_BYTES];
        uint64_t bytes;
        int64_t until_ms;
    } at[CLAIMS_MAX];
    size_t count;
};

/* True if an owner may begin a body that costs `bytes`, while `free_bytes` are left. Else the owner
 * has a claim now. */
bool body_memory_claims_admit(struct body_memory_claims *claims, const char *owner, uint64_t bytes,
                              uint64_t free_bytes, int64_t now_ms);
/* A body of the owner is whole: its claim is over. */
void body_memory_claims_end(struct body_memory_claims *claims, const char *owner);
