/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bucket: the storage that holds a copy: a prefix of an S3 bucket, or a folder of another disk.
 *
 * A copy asks little of it: read, write, write only what does not exist, remove, list. There is no
 * renaming and no lock. The one promise that the whole copy rests on is that of two writers of one
 * new name one is told ERR_CONFLICT. The list only finds what may be removed: no state is read by
 * it.
 *
 * Thread: any, and several at a time.
 * Memory: one connection per call that is under way, kept for later ones.
 * Invariant: an object appears whole or not at all. */

#include "base/buf.h"
#include "base/err.h"

#define BUCKET_NAME_BYTES 96 /* room for a name below the prefix */
#define BUCKET_TOKEN_BYTES 2048
#define BUCKET_UNFINISHED ".new-" /* in the name of a folder's file that is not whole yet */

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
typedef void (*bucket_name_fn)(void *context, const char *name);
/* One page of the names below `folder`, "log" or "data", in any order, each from the prefix on;
 * unfinished files of other processes are among them. `token` is empty for the first page; it
 * becomes that of the next one, or empty behind the last. `each` makes no call to the bucket. */
enum err bucket_list(struct bucket *bucket, const char *folder, bucket_name_fn each, void *context,
                     char token[BUCKET_TOKEN_BYTES], struct error *error) MUST_CHECK;
