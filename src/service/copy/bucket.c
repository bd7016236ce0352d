/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/bucket_internal.h"

#include "s3/place.h"

#include <string.h>

enum err bucket_open(struct bucket **ret_bucket, const char *place, const volatile bool *stop,
                     struct error *error) {
    static const char file[] = "file://";
    if (s3_is_place(place)) return bucket_s3_open(ret_bucket, place, stop, error);
    if (strncmp(place, file, sizeof file - 1) == 0) place += sizeof file - 1;
    if (*place == '/') return bucket_folder_open(ret_bucket, place, error);
    return err_set(error, ERR_INVALID,
                   "'%.200s' is no place for a copy: s3://BUCKET/PREFIX, or the whole path of a "
                   "folder",
                   place);
}

void bucket_close(struct bucket *bucket) {
    if (bucket) bucket->close(bucket);
}

enum err bucket_read(struct bucket *bucket, const char *name, struct buf *ret_bytes,
                     struct error *error) {
    return bucket->read(bucket, name, ret_bytes, error);
}

enum err bucket_write(struct bucket *bucket, const char *name, struct str bytes, bool only_new,
                      struct error *error) {
    return bucket->write(bucket, name, bytes, only_new, error);
}

enum err bucket_remove(struct bucket *bucket, const char *name, struct error *error) {
    return bucket->remove(bucket, name, error);
}

enum err bucket_list(struct bucket *bucket, const char *folder, bucket_name_fn each, void *context,
                     char token[BUCKET_TOKEN_BYTES], struct error *error) {
    return bucket->list(bucket, folder, each, context, token, error);
}
