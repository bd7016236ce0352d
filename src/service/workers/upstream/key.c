/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/key.h"

bool upstream_is_key_status(int status) {
    return status == 401 || status == 402 || status == 403;
}

bool upstream_key_is_doubted(const struct upstream_key *key, int status) {
    if (status == 403 && key->has_answered && !key->is_refused) return false;
    return upstream_is_key_status(status);
}

/* FNV-1a. */
static uint64_t hash_of(struct str body) {
    uint64_t sum = 0xCBF29CE484222325u;
    for (size_t i = 0; i < body.bytes; i++)
        sum = (sum ^ (unsigned char)body.at[i]) * 0x100000001B3u;
    return sum;
}

/* The number of different requests that have met such an answer, this body included. */
static uint32_t requests_with(const struct upstream_key *key, uint64_t body) {
    return key->requests + (key->requests == 0 || key->last_body != body);
}

enum outcome upstream_key_outcome(const struct upstream_key *key, struct str body,
                                  bool opens_breaker) {
    bool is_proved = opens_breaker && requests_with(key, hash_of(body)) > 1;
    return key->is_refused || is_proved ? OUTCOME_NOT_RUN : OUTCOME_TRY_AGAIN;
}

void upstream_key_doubt(struct upstream_key *key, struct str body) {
    uint64_t sum = hash_of(body);
    key->requests = requests_with(key, sum);
    key->last_body = sum;
}

bool upstream_key_accept(struct upstream_key *key) {
    bool was_refused = key->is_refused;
    *key = (struct upstream_key){.has_answered = true};
    return was_refused;
}
