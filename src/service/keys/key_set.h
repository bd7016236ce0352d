/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key: who may use the routes behind a key, for which owner, and how often.
 *
 * Only SHA-256 sums of keys are kept. A presented key is hashed and compared in constant time with
 * every fixed key and with the row that its public characters name, or else with a sum that no key
 * has. So the answer and its time are the same for every wrong key.
 *
 * Keys come from two places. The operator lists fixed keys, which belong to the default owner and
 * may do everything except administer. The file of `quern key` (key_file.h) has the others; a
 * changed file is read again at most once per second. A set that ever had a key asks for one until
 * it is closed: a missing or broken file grants no access.
 *
 * Thread: any.
 * Memory: copies its options. */

#include "keys/key_file.h"

struct key_set;

struct key_set_options {
    const unsigned char (*digests)[SHA256_BYTES]; /* sums of the fixed keys */
    size_t digest_count;
    const char *path; /* path of the file, which need not exist; NULL: none */
    int64_t look_ns;  /* between two looks at the file (0: a second) */
    /* The file has become unreadable (the keys read before stay in use), or readable again: then
     * the sentence is NULL. `report` may be NULL. */
    void (*report)(const char *sentence);
};

/* ERR_INVALID if the file exists and cannot be used. */
enum err key_set_open(struct key_set **ret_keys, const struct key_set_options *options,
                      struct error *error) MUST_CHECK;
void key_set_close(struct key_set *keys); /* NULL is allowed */
/* Replaces the fixed keys by the keys with these sums, of which it makes copies. */
void key_set_fix(struct key_set *keys, const unsigned char (*digests)[SHA256_BYTES], size_t count);

/* The caller that a key names. Zero is the caller of an open route. */
struct key_caller {
    char id[KEY_ID_CHARACTERS + 1]; /* public; empty for a fixed key and where no key is needed */
    char owner[OWNER_BYTES];
    uint32_t scopes;
    uint64_t queued_tokens_max; /* 0: no limit */
    uint64_t batches_max;
    uint64_t stored_bytes_max;
    bool is_fixed;
    unsigned char digest[SHA256_BYTES]; /* sum of a fixed key */
};

/* True while a caller's key is in force, and while none is needed for a caller that showed none. So
 * a long answer ends when its key is revoked, expires or is taken out of the operator's file. */
bool key_set_still_knows(struct key_set *keys, const struct key_caller *caller);

/* True once a key exists: requests without one are refused from then on. */
bool key_set_asks(struct key_set *keys);
/* Reads the file now if it has changed, so that a change by this process counts at once. */
void key_set_look(struct key_set *keys);
/* *ret_left becomes the number of requests that a key may make now, at most its limit per minute.
 * False if the set has no such key, or the key has no limit. */
bool key_set_left(struct key_set *keys, const char *id, uint64_t *ret_left);

bool key_caller_has(const struct key_caller *caller, enum key_scope scope);

enum key_answer {
    KEY_GOOD,
    KEY_MISSING,
    KEY_WRONG,  /* unknown, expired or revoked */
    KEY_LATER,  /* good, but used too often; again after *ret_retry_s seconds */
    KEY_UNSEEN, /* with KEY_NO_GUESS: wrong, or a fixed key */
};

enum key_manner {
    KEY_LOOK = 1,     /* does not count as a request of the key */
    KEY_NO_GUESS = 2, /* leaves out the fixed keys, which people may have made up; the 256 random
                         bits of a key of `quern key` cannot be guessed */
};

/* Checks the value of the Authorization header, empty if absent. KEY_GOOD counts as one request of
 * the key. *ret_caller is filled in for KEY_GOOD and KEY_LATER. `keys` NULL: every caller may do
 * everything. `manner`: a sum of enum key_manner. */
enum key_answer key_check(struct key_set *keys, struct str authorization, unsigned manner,
                          struct key_caller *ret_caller, uint32_t *ret_retry_s);
