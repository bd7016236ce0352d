/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bucket_internal: what a kind of storage gives to a bucket.
 *
 * Thread: any.
 * Memory: `close` frees the bucket. */

#include "copy/bucket.h"

struct bucket {
    enum err (*read)(struct bucket *bucket, const char *name, struct buf *ret_bytes,
                     struct error *error);
    enum err (*write)(struct bucket *bucket, const char *name, struct str bytes, bool only_new,
                      struct error *error);
    enum err (*remove)(struct bucket *bucket, const char *name, struct error *error);
    enum err (*list)(struct bucket *bucket, const char *folder, bucket_name_fn each, void *context,
                     char *token, struct error *error);
    void (*close)(struct bucket *bucket);
};

enum err bucket_folder_open(struct bucket **ret_bucket, const char *path,
                            struct error *error) MUST_CHECK;
enum err bucket_s3_open(struct bucket **ret_bucket, const char *place, const volatile bool *stop,
                        struct error *error) MUST_CHECK;
