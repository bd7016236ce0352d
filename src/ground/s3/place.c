/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/place.h"

#include <string.h>

#define SCHEME "s3://"

bool s3_is_place(const char *name) {
    return strncmp(name, SCHEME, strlen(SCHEME)) == 0;
}

static bool is_bucket_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

/* Whether a segment between slashes is "." or "..". */
static bool has_dot_segment(struct str key) {
    for (size_t at = 0; at <= key.bytes;) {
        size_t end = str_find_byte(key, '/', at);
        if (end == SIZE_MAX) end = key.bytes;
        struct str segment = {key.at + at, end - at};
        if (str_is(segment, ".") || str_is(segment, "..")) return true;
        at = end + 1;
    }
    return false;
}

static enum err check_key(const char *name, struct str key, struct error *error) {
    if (key.bytes == 0 || str_ends_with(key, STR("/")))
        return err_set(error, ERR_INVALID, "'%.200s' names no object: s3://BUCKET/KEY", name);
    if (key.bytes >= S3_KEY_BYTES)
        return err_set(error, ERR_INVALID, "the key of '%.200s' has more than %d bytes", name,
                       S3_KEY_BYTES - 1);
    for (size_t i = 0; i < key.bytes; i++)
        if ((unsigned char)key.at[i] < ' ' || key.at[i] == 0x7f)
            return err_set(error, ERR_INVALID, "the key of '%.200s' has a control character", name);
    if (has_dot_segment(key))
        return err_set(error, ERR_INVALID,
                       "the key of '%.200s' has a segment '.' or '..', which HTTP takes away",
                       name);
    return OK;
}

enum err s3_place_read(struct s3_place *ret_place, const char *name, struct error *error) {
    struct s3_place place = {0};
    struct str rest = str_skip(str_from(name), s3_is_place(name) ? strlen(SCHEME) : SIZE_MAX);
    size_t slash = str_find_byte(rest, '/', 0);
    struct str bucket = {rest.at, slash == SIZE_MAX ? rest.bytes : slash};
    struct str key = str_skip(rest, slash == SIZE_MAX ? rest.bytes : slash + 1);
    bool is_good = bucket.bytes >= 3 && bucket.bytes < S3_BUCKET_BYTES;
    for (size_t i = 0; is_good && i < bucket.bytes; i++) is_good = is_bucket_byte(bucket.at[i]);
    if (!is_good || bucket.at[0] == '.')
        return err_set(error, ERR_INVALID,
                       "'%.200s' names no bucket: s3://BUCKET/KEY, 3 to %d letters, digits and "
                       "'.-_'",
                       name, S3_BUCKET_BYTES - 1);
    enum err err = check_key(name, key, error);
    if (err != OK) return err;
    memcpy(place.bucket, bucket.at, bucket.bytes);
    memcpy(place.key, key.at, key.bytes);
    *ret_place = place;
    return OK;
}
