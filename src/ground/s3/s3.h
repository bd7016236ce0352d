/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* s3: files from and to object storage that speaks S3's API.
 *
 * A download goes on where it stopped, also after its process was killed: with a Range from the
 * bytes that are there, and If-Match with the ETag that they belong to. An upload of more than one
 * part is a multipart upload, whose parts are written down as they arrive; the next call sends the
 * others. Nothing appears under its name before it is whole, neither the file nor the object.
 *
 * Redirects are not followed: a bucket of another region is an error that names the region.
 *
 * Thread: one.
 * Memory: one answer of at most 1 MiB; the bytes of files are not kept. s3_close wipes the secret.
 * Invariant: bytes of two versions of an object are never put together. */

#include "base/buf.h"
#include "base/err.h"
#include "s3/place.h"

#include <stdint.h>

/* Tools of AWS cut files at this size, too; a killed upload sends at most so much again. */
#define S3_PART_BYTES ((uint64_t)8 << 20)

struct s3;

struct s3_options {
    const volatile bool *stop; /* ends a call with ERR_CANCELLED */
    void *context;
    /* Tells the user a sentence, such as why a call waits. */
    void (*say)(void *context, const char *sentence);
    int64_t silence_ms; /* limit of a silence of the server (default 300 s) */
};

/* Reads account and endpoint; makes no call. Errors of s3_account_read, and ERR_INVALID for an
 * endpoint that is no http or https URL. */
enum err s3_open(struct s3 **ret_s3, const struct s3_options *options,
                 struct error *error) MUST_CHECK;
void s3_close(struct s3 *s3); /* NULL is allowed */

/* The errors of the three below name the object and what S3 said: ERR_NOT_FOUND, ERR_DENIED,
 * ERR_UNAVAILABLE after the last attempt, ERR_CANCELLED, ERR_INVALID, ERR_CORRUPT for an answer
 * that does not fit, and those of the file system. */

/* Whether the object exists. An account that may not read it is told false: it may write it all the
 * same. */
enum err s3_look(struct s3 *s3, const struct s3_place *place, bool *ret_exists,
                 struct error *error) MUST_CHECK;
/* Fetches the object into `path`, which appears whole. PATH.part and PATH.etag stay after a break;
 * a file `path` of an earlier call is taken if it is the object's present content. */
enum err s3_get(struct s3 *s3, const struct s3_place *place, const char *path,
                struct error *error) MUST_CHECK;
/* Sends the file. PATH.upload stays after a break. */
enum err s3_put(struct s3 *s3, const struct s3_place *place, const char *path,
                struct error *error) MUST_CHECK;
/* Removes the file, and what the two above may have left next to it. */
enum err s3_forget(const char *path, struct error *error) MUST_CHECK;

/* --- objects that fit into memory: one attempt each; the caller tries again --- */

/* Appends the object to the buf, whose maximum holds. ERR_LIMIT for a larger one. */
enum err s3_object_read(struct s3 *s3, const struct s3_place *place, struct buf *ret_bytes,
                        struct error *error) MUST_CHECK;
/* Writes the object, with `only_new` unless it exists: ERR_CONFLICT. The storage decides that at
 * once for all who write (If-None-Match), which is a refusal where it does not know the header. */
enum err s3_object_write(struct s3 *s3, const struct s3_place *place, struct str bytes,
                         bool only_new, struct error *error) MUST_CHECK;
/* An object that does not exist is no error. */
enum err s3_object_remove(struct s3 *s3, const struct s3_place *place,
                          struct error *error) MUST_CHECK;

#define S3_TOKEN_BYTES 2048
typedef void (*s3_name_fn)(void *context, const char *rest);
/* One page, of at most 500, of the objects whose keys begin with that of `prefix`: `each` gets the
 * rest of each key. `token` is empty for the first page; it becomes that of the next one, or empty
 * behind the last. */
enum err s3_objects_list(struct s3 *s3, const struct s3_place *prefix, s3_name_fn each,
                         void *context, char token[S3_TOKEN_BYTES], struct error *error) MUST_CHECK;
