/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upload_state: what is known of a multipart upload, in a file, so that a later call goes on.
 *
 * The file has one line per fact, each appended when it is true:
 *   quern-upload 1 FILE_BYTES PLACE UPLOAD_ID    PLACE: a sum of endpoint, bucket and key
 *   NUMBER SHA256 ETAG   a part that S3 has; the last line of a number counts
 * A line without its LF is the rest of a killed process, and is cut off. A file that does not begin
 * as above, or is of another upload, is begun anew.
 *
 * Thread: one; another process that opens the same file gets ERR_CONFLICT.
 * Memory: 330 bytes per part. */

#include "base/buf.h"
#include "base/digest.h"
#include "s3/call.h"

#define S3_UPLOAD_ID_BYTES 2048
#define S3_PARTS_MAX 10000 /* S3's own limit */

struct upload_part {
    char sum[DIGEST_HEX_BYTES]; /* SHA-256 of its bytes; empty: the part is not known */
    char etag[S3_ETAG_BYTES];
    bool is_there; /* S3 has said so in this call */
};

struct upload_state {
    const char *path;
    int fd;
    char upload_id[S3_UPLOAD_ID_BYTES]; /* empty: none is under way */
    uint64_t file_bytes;
    char place[DIGEST_HEX_BYTES];
    struct upload_part *parts; /* (part_count); part 1 is the first */
    uint32_t part_count;
};

/* `file_bytes`, `place`, `path` and `part_count` are set. Reads what an earlier call has left. */
enum err upload_state_open(struct upload_state *state, struct error *error) MUST_CHECK;
/* Forgets all parts, and notes a new upload. ERR_CORRUPT for an id with a blank or a control
 * character. */
enum err upload_state_begin(struct upload_state *state, const char *upload_id,
                            struct error *error) MUST_CHECK;
enum err upload_state_add(struct upload_state *state, uint32_t number, const char *sum,
                          const char *etag, struct error *error) MUST_CHECK;
void upload_state_close(struct upload_state *state);
/* Takes a line apart for the state; false if it is none. For tests of hostile bytes, too. */
bool upload_state_take(struct upload_state *state, struct str line);
