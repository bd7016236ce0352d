/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key_file: the keys that `quern key` makes, one JSON object a line in `keys.jsonl` of the state
 * directory. Of a key only the SHA-256 is kept; its eight public characters say which row it is.
 *
 * A file of its own and not a table of meta.db, because the server holds that database and the
 * command must work beside it: the file is replaced as a whole by a rename, under a lock file, and
 * the server reads it again when it has changed (key.h).
 *
 * Thread: any.  Memory: rows are plain structs; the array is freed with key_file_release.
 * Invariant: rows are added and revoked, never removed. */

#include "base/err.h"
#include "base/hash.h"
#include "protocol/request.h"

#include <stdint.h>

#define KEY_FILE_NAME "keys.jsonl"
#define KEY_ID_CHARACTERS 8
#define KEY_TEXT_BYTES 56 /* "sk-", the id, '_', 43 characters of the secret, NUL */
#define KEYS_PER_FILE_MAX 10000

/* What a route asks of a key; bit i of a row's scopes: it has scope i. */
enum http_scope {
    HTTP_SCOPE_ADMIN, /* the value of a row that forgot; has all the others */
    HTTP_SCOPE_FILES,
    HTTP_SCOPE_BATCHES,
    HTTP_SCOPE_INFER,
    HTTP_SCOPE_METRICS,
    HTTP_SCOPE_NAMED_COUNT,
    HTTP_SCOPE_KEY,  /* any key */
    HTTP_SCOPE_OPEN, /* everybody, without a key: health, version */
};

#define KEY_SCOPES_ALL ((1u << HTTP_SCOPE_NAMED_COUNT) - 1)
#define KEY_SCOPES_DEFAULT                                                                         \
    (1u << HTTP_SCOPE_FILES | 1u << HTTP_SCOPE_BATCHES | 1u << HTTP_SCOPE_INFER)

struct key_row {
    char id[KEY_ID_CHARACTERS + 1];
    unsigned char sha256[SHA256_BYTES]; /* of the whole key */
    char name[128];
    char owner[OWNER_BYTES]; /* empty: the default owner */
    uint32_t scopes;
    int64_t created_unix_s;
    int64_t expires_unix_s;       /* 0: never */
    int64_t revoked_unix_s;       /* 0: it is not */
    uint64_t requests_per_minute; /* 0: no limit, as for the next two */
    uint64_t queued_tokens_max;
    uint64_t batches_max;
};

struct key_file {
    struct key_row *rows;
    size_t count;
};

/* "admin", "files", …; the name must be one of HTTP_SCOPE_NAMED_COUNT. */
const char *key_scope_name(enum http_scope scope);
/* "files,batches" → bits. ERR_INVALID with the word that is none. */
enum err key_scopes_read(struct str list, uint32_t *ret_scopes, struct error *error) MUST_CHECK;
/* 1 to 63 of A-Z a-z 0-9 . _ -; "default" is the default owner. */
bool key_owner_is_sane(struct str owner);

/* ERR_NOT_FOUND when there is no file; ERR_INVALID when others than its owner can read it or a line
 * is not a row, with its number. */
enum err key_file_read(struct key_file *ret_file, const char *path, struct error *error) MUST_CHECK;
void key_file_release(struct key_file *file);

/* Makes a new key: id, created time and hash are filled in, the rest of *row is the caller's. The
 * text, which exists nowhere else, goes to `ret_text`; the caller wipes it. The row is durable. */
enum err key_file_add(const char *state_dir, struct key_row *row, int64_t now_unix_s,
                      char ret_text[KEY_TEXT_BYTES], struct error *error) MUST_CHECK;
/* Revokes the key of that id, or of that name when it is the only one. *ret_row is the row.
 * Revoking twice changes nothing. */
enum err key_file_revoke(const char *state_dir, struct str id_or_name, int64_t now_unix_s,
                         struct key_row *ret_row, struct error *error) MUST_CHECK;
