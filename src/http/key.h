/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key: who may use the routes behind a key. Only SHA-256 sums of keys are kept; a presented key is
 * hashed and compared with every sum in constant time, so that the time taken says nothing.
 *
 * Thread: any; read-only.  Memory: the array is borrowed. */

#include "base/hash.h"

struct key_set {
    const unsigned char (*digests)[SHA256_BYTES]; /* borrowed */
    size_t count;                                 /* 0: everybody may */
};

enum key_answer { KEY_GOOD, KEY_MISSING, KEY_WRONG };

/* `authorization` is the header's value, empty when it is absent. */
enum key_answer key_check(const struct key_set *keys, struct str authorization);
