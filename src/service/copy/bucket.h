/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bucket: the storage that holds a copy: a prefix of an S3 bucket, or a folder of another disk.
 *
 * A copy asks little of it: read, write, write only what does not exist, remove. There is no
 * listing, no renaming and no lock. The one promise that the whole copy rests on is that of two
 * writers of one new name one is told ERR_CONFLICT.
 *
 * Thread: any, and several at a time.
 * Memory: one connection per call that is under way, kept for later ones.
 * Invariant: an object appears whole or not at all. */

#include "base/buf.h"
#include "base/err.h"

#define BUCKET_NAME_BYTES 96 /* room for a name below the prefix */

struct bucket;

/* `place` is s3://BUCKET/PREFIX, file:///FOLDER or /FOLDER. *stop ends calls to S3 with
 * ERR_CANCELLED. Makes no call. */
enum err bucket_open(struct bucket **ret_bucket, const char *place, const volatile bool *stop,
                     struct error *error) MUST_CHECK;
void bucket_close(struct bucket *bucket); /* NULL is allowed */

/* One attempt each; ERR_UNAVAILABLE and ERR_IO may pass. */
enum err bucket_read(struct bucket *bucket, const char *name, struct buf *ret_bytes,
                     struct error *error) MUST_CHECK;
enum err bucket_write(struct bucket *bucket, const char *name, struct str bytes, bool only_new,
                      struct error *error) MUST_CHECK;
enum err bucket_remove(struct bucket *bucket, const char *name, struct error *error) MUST_CHECK;
