/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key_file: the keys that `quern key` makes, one JSON object per line in `keys.jsonl` of the state
 * directory. Only the SHA-256 of a key is kept; its eight public characters name its row.
 *
 * It is a file of its own and not a table of meta.db, because the server holds that database and
 * the command must work while the server runs. The command replaces the file as a whole by a
 * rename, under a lock file; the server reads it again after a change (key_set.h).
 *
 * A file of keys that is lost would open the server to everyone at its next start. So the first key
 * leaves a mark, KEY_FILE_MARK, and a mark without keys is an error.
 *
 * Thread: any.
 * Memory: rows are plain structs; key_file_release frees the array.
 * Invariant: rows are added and revoked, never removed. */

#include "base/err.h"
#include "base/hash.h"
#include "keys/key_scope.h"
#include "protocol/request.h"

#include <stdint.h>

#define KEY_FILE_NAME "keys.jsonl"
#define KEY_FILE_MARK "keys.made" /* an empty file: keys were made in this directory once */
#define KEY_ID_CHARACTERS 8
/* Open batches of an owner whose key sets no other number, and where no key is needed. Each has
 * three files open: with the 1,024 connections they fit into 4,096, the smallest hard limit of open
 * files that systems set. */
#define KEY_BATCHES_MAX 1000
#define KEY_TEXT_BYTES 56 /* "sk-", the id, '_', the 43 characters of the secret, NUL */

struct key_row {
    char id[KEY_ID_CHARACTERS + 1];
    unsigned char sha256[SHA256_BYTES]; /* sum of the whole key */
    char name[128];
    char owner[OWNER_BYTES]; /* empty: the default owner */
    uint32_t scopes;
    int64_t created_unix_s;
    int64_t expires_unix_s;       /* 0: never */
    int64_t revoked_unix_s;       /* 0: not revoked */
    uint64_t requests_per_minute; /* 0: no limit, as for the next three */
    uint64_t queued_tokens_max;
    uint64_t batches_max;
    uint64_t stored_bytes_max;
};

struct key_file {
    struct key_row *rows;
    size_t count;
};

/* True for 1 to 63 characters A-Z a-z 0-9 . _ - ; "default" is the default owner. */
bool key_owner_is_sane(struct str owner);

/* ERR_NOT_FOUND if the file does not exist. ERR_INVALID if it is a link, if it belongs neither to
 * the owner of its folder nor to root, if other users than its owner can read it, or if a line is
 * no row; the sentence has the line's number. */
enum err key_file_read(struct key_file *ret_file, const char *path, struct error *error) MUST_CHECK;
void key_file_release(struct key_file *file);
/* The rows of a state directory; none if it has no file of keys. Errors as of key_file_read. */
enum err key_file_list(struct key_file *ret_file, const char *state_dir,
                       struct error *error) MUST_CHECK;
/* "good", "expired" or "revoked". */
const char *key_row_state(const struct key_row *row, int64_t now_unix_s);
/* ERR_CORRUPT, with the ways out, if keys were made in this directory and none is left. Marks a
 * directory whose keys are older than the mark. */
enum err key_file_check_lost(const char *state_dir, struct error *error) MUST_CHECK;

/* Makes a new key and its durable row. Fills in the id, the time and the hash; the caller gives the
 * rest of *row. `ret_text` gets the key's text, which exists nowhere else; the caller wipes it. */
enum err key_file_add(const char *state_dir, struct key_row *row, int64_t now_unix_s,
                      char ret_text[KEY_TEXT_BYTES], struct error *error) MUST_CHECK;
/* Revokes the key with that id, or the only one with that name; *ret_row is its row. Revoking twice
 * changes nothing. */
enum err key_file_revoke(const char *state_dir, struct str id_or_name, int64_t now_unix_s,
                         struct key_row *ret_row, struct error *error) MUST_CHECK;
