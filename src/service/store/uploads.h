/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* uploads: files that arrive in parts.
 *
 * A part is durable when it is acknowledged, like a file: its bytes are synced and renamed into
 * parts/, then its row is added. Completing an upload joins its parts into a spool, which becomes a
 * file in the transaction that ends the upload.
 *
 * An upload ends once: by completion, by cancelling, or by its expiry. The next sweep removes the
 * rows of its parts and then their bytes; the next start removes bytes without a row. The purpose
 * of the bytes is not looked at.
 *
 * Thread: any; one spool belongs to one thread at a time.
 * Memory: rows are plain structs.
 * Invariant: only a pending upload takes parts, and only a pending upload becomes a file. */

#include "base/digest.h"
#include "store/files.h"

#define STORE_UPLOAD_PARTS_MAX 10000 /* parts per upload */

enum upload_status {
    UPLOAD_PENDING,
    UPLOAD_COMPLETED,
    UPLOAD_CANCELLED,
    UPLOAD_EXPIRED, /* never stored: a pending upload past its expiry */
};

struct store_upload {
    char id[STORE_ID_BYTES];
    char owner[OWNER_BYTES];
    char purpose[32];
    char filename[STORE_FILENAME_BYTES];
    uint64_t bytes; /* size of the whole file, as the client announced it */
    int64_t created_unix_s;
    int64_t expires_unix_s;
    int64_t file_expires_after_s; /* lifetime of the file after its creation; 0: no expiry */
    enum upload_status status;
    char file_id[STORE_ID_BYTES]; /* empty until completed */
    uint64_t part_count;          /* parts that clients have sent, also twice */
    uint64_t part_bytes;
    uint64_t owner_bytes_max; /* not stored: the owner's bound for the new upload; 0: none */
};

struct store_part {
    char id[STORE_ID_BYTES];
    uint64_t bytes;
    unsigned char sha256[SHA256_BYTES];
    int64_t created_unix_s;
};

/* "pending", "completed", "cancelled", "expired" */
const char *store_upload_status_name(enum upload_status status);

/* Adds a pending upload and fills in its id. Status and file_id are not looked at. ERR_LIMIT above
 * owner_bytes_max, ERR_INVALID if the owner has 1,000 pending ones. */
enum err store_upload_create(struct store *store, struct store_upload *upload,
                             struct error *error) MUST_CHECK;
/* ERR_NOT_FOUND for an unknown upload. */
enum err store_upload_get(struct store *store, struct str id, int64_t now_unix_s,
                          struct store_upload *ret_upload, struct error *error) MUST_CHECK;
/* Makes the spool a part of the upload; the spool is freed, also after an error. ERR_NOT_FOUND for
 * an unknown upload, ERR_INVALID when it is not pending or has too many parts or bytes, ERR_LIMIT
 * if its owner may not have so many bytes (`owner_bytes_max` 0: any number). */
enum err store_part_commit(struct store_spool *spool, struct str upload_id,
                           uint64_t owner_bytes_max, int64_t now_unix_s,
                           struct store_part *ret_part, struct error *error) MUST_CHECK;

struct store_join {
    struct str upload_id;
    const struct str *part_ids; /* in the order of the file */
    size_t part_count;
    char *md5_hex; /* DIGEST_HEX_BYTES of room for the file's MD5; NULL: not wanted */
    int64_t now_unix_s;
};

/* Joins parts in a new spool. ERR_NOT_FOUND for an unknown upload. ERR_INVALID, with a sentence for
 * the client, when it is not pending, when a part is another upload's or named twice, or when the
 * parts do not have the announced bytes. An error leaves the upload as it was. */
enum err store_upload_join(struct store *store, const struct store_join *join,
                           struct store_spool **ret_spool, struct error *error) MUST_CHECK;
/* Makes the joined spool a file (as store_spool_commit) and ends the upload, in one transaction.
 * ERR_INVALID, and no file, when another call has ended the upload meanwhile. */
enum err store_upload_finish(struct store_spool *spool, struct str upload_id, int64_t now_unix_s,
                             struct store_file *file, struct error *error) MUST_CHECK;
/* ERR_NOT_FOUND for an unknown upload, ERR_INVALID when it is not pending. */
enum err store_upload_cancel(struct store *store, struct str id, int64_t now_unix_s,
                             struct error *error) MUST_CHECK;
/* Removes parts that no pending upload needs, and rows of uploads 30 days after their expiry. */
enum err store_upload_sweep(struct store *store, int64_t now_unix_s,
                            struct error *error) MUST_CHECK;
