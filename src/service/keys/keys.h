/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* keys: the room of API keys. It opens the set of keys that clients may use, from the operator's
 * places and the state directory, and reads the operator's keys again when the server reloads.
 *
 *   key_set       whom a presented key names, what it may do and how often; the server asks it
 *   key_file      the keys that `quern key` and POST /v1/keys make, on disk
 *   key_new       the properties of a new key, checked
 *   key_scope     the rights that a key has and a route needs
 *   key_throttle  how many wrong keys an address may send
 *
 * The room knows no request and no route: http asks it for the caller of each request.
 *
 * Thread: main.
 * Memory: the caller closes the set; the key texts are wiped. */

#include "keys/key_set.h"
#include "secrets/secret.h"

/* Where the operator's own keys are. */
struct keys_places {
    const char *file;        /* one key per line; NULL: QUERN_API_KEYS_FILE and its kind */
    const char *const *told; /* (told_count) keys of the command line, in addition to the file's;
                                wiped where they are */
    size_t told_count;
};

/* The fixed keys that a place has. Zero is a valid start. */
struct keys_fixed {
    unsigned char (*digests)[SHA256_BYTES]; /* NULL: none */
    size_t count;
    bool is_gone; /* a later read cannot find them (secret.h) */
};

struct keys;

/* Opens the set: the told keys, the fixed keys of the file (NULL: of QUERN_API_KEYS_FILE,
 * QUERN_API_KEYS or the credential api-keys, if one exists) and the keys of `quern key` in
 * `state_dir`. ERR_INVALID if a key file has no key or group or others can read it. */
enum err keys_open(struct keys **ret_keys, const struct keys_places *places, const char *state_dir,
                   const struct secret_variables *variables, struct error *error) MUST_CHECK;
void keys_close(struct keys *keys);                /* NULL is allowed */
struct key_set *keys_set(const struct keys *keys); /* NULL for NULL */

/* Reads the fixed keys again; nothing changes yet. */
enum err keys_read(struct keys_fixed *ret_fixed, const char *file,
                   const struct secret_variables *variables, struct error *error) MUST_CHECK;
void keys_fixed_release(struct keys_fixed *fixed);
/* From now on the set has these fixed keys and the told ones. Keys of a variable that was
 * overwritten stay if no place has others. */
void keys_take(struct keys *keys, const struct keys_fixed *fixed);
