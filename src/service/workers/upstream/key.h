/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_key: whether an upstream refuses its API key.
 *
 * An answer of 401, 402 or 403 may be about the key or about the request. It is about the key if it
 * comes for more than one request until the breaker opens; from then on the key is refused, and no
 * such answer counts for a line. Any other answer proves the key good. A 403 of an upstream that
 * has answered others is the request's own, as from a moderation.
 *
 * upstream_key_outcome decides and changes nothing; the other functions learn, once the decision is
 * made. Knows no socket, no breaker and no clock.
 *
 * Thread: one.
 * Memory: none. */

#include "protocol/request.h"

/* Zero is a valid start. */
struct upstream_key {
    bool is_refused;
    bool has_answered;  /* the upstream has ever answered anything else than 401, 402 and 403 */
    uint32_t requests;  /* different ones in a row that met 401, 402 or 403 */
    uint64_t last_body; /* hash of the last of them */
    uint32_t openings;  /* openings of the breaker while the key is refused */
};

/* 401, 402 and 403: the key is wrong, not paid for, or not for this. */
bool upstream_is_key_status(int status);
/* True if an answer with this status says something about the key. */
bool upstream_key_is_doubted(const struct upstream_key *key, int status);
/* The outcome of a request whose answer doubts the key: NOT_RUN if the key is refused, also if it
 * is this answer that proves it; else TRY_AGAIN. `opens_breaker`: this answer opens the breaker. */
enum outcome upstream_key_outcome(const struct upstream_key *key, struct str body,
                                  bool opens_breaker);

/* Notes that the request with this body met an answer that doubts the key. */
void upstream_key_doubt(struct upstream_key *key, struct str body);
/* Notes that the upstream gave any other answer. True if the key was refused until now. */
bool upstream_key_accept(struct upstream_key *key);
