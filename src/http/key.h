/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key: who may use the routes behind a key, as whom, and how often. Only SHA-256 sums of keys are
 * kept. A presented key is hashed and compared in constant time, with every fixed key and with the
 * row its public characters name, or with nobody's sum when they name none: the time taken and the
 * answer are the same for every wrong key.
 *
 * Keys come from two places: fixed ones that the operator lists, which belong to the default owner
 * and may do everything but administer; and the file of `quern key` (key_file.h), which is read
 * again at most once a second when it has changed. Once a set has had a key it asks for one until
 * it is closed: a file that is gone or broken opens no door.
 *
 * Thread: any.  Memory: copies all it is given. */

#include "http/key_file.h"

struct key_set;

struct key_set_options {
    const unsigned char (*digests)[SHA256_BYTES]; /* of the fixed keys */
    size_t digest_count;
    const char *path; /* of the file; NULL: none. It need not be there */
    int64_t look_ns;  /* between two looks at the file (0: a second) */
    /* The file has become unreadable (the keys read before stay in use), or readable again: then
     * the sentence is NULL. NULL allowed. */
    void (*report)(const char *sentence);
};

/* ERR_INVALID when the file is there and cannot be used. */
enum err key_set_open(struct key_set **ret_keys, const struct key_set_options *options,
                      struct error *error) MUST_CHECK;
void key_set_close(struct key_set *keys); /* NULL is allowed */

/* Who asks. Zero is nobody. */
struct key_caller {
    char id[KEY_ID_CHARACTERS + 1]; /* public; empty for a fixed key and where none is asked for */
    char owner[OWNER_BYTES];
    uint32_t scopes;
    uint64_t queued_tokens_max; /* 0: no limit */
    uint64_t batches_max;
};

bool key_caller_has(const struct key_caller *caller, enum http_scope scope);

enum key_answer {
    KEY_GOOD,
    KEY_MISSING,
    KEY_WRONG, /* unknown, expired or revoked */
    KEY_LATER, /* good, and used too often; see *ret_retry_s */
};

/* `authorization` is the header's value, empty when it is absent. A KEY_GOOD counts as a request.
 * *ret_caller is filled in for KEY_GOOD and KEY_LATER. `keys` NULL: everybody may do everything. */
enum key_answer key_check(struct key_set *keys, struct str authorization,
                          struct key_caller *ret_caller, uint32_t *ret_retry_s);
