/* SPDX-License-Identifier: Apache-2.0 */
#include "s3/call.h"

#include "base/digest.h"
#include "s3/listing.h"

#include <string.h>

#define PAGE_KEYS "500" /* so that a page of keys of 1 KiB fits into an answer of 1 MiB */

struct reading {
    struct buf *into;
    size_t from; /* bytes that the buf had before */
};

static bool take(void *context, const struct net_exchange *exchange, struct str piece) {
    struct reading *reading = context;
    (void)exchange;
    buf_add_str(reading->into, piece);
    return !reading->into->overflowed;
}

enum err s3_object_read(struct s3 *s3, const struct s3_place *place, struct buf *ret_bytes,
                        struct error *error) {
    struct reading reading = {ret_bytes, ret_bytes->bytes};
    const struct s3_call call = {.method = "GET",
                                 .what = "the download",
                                 .place = place,
                                 .bytes = take,
                                 .context = &reading};
    enum err err = s3_call_once(s3, &call, error);
    if (err == OK && ret_bytes->overflowed)
        err = err_set(error, ERR_LIMIT, "s3://%.63s/%.200s has more than %zu bytes", place->bucket,
                      place->key, ret_bytes->bytes_max);
    else if (err == OK && !s3_is_good(s3))
        err = s3_judge(s3, &call, error);
    if (err != OK) buf_truncate(ret_bytes, reading.from);
    return err;
}

enum err s3_object_write(struct s3 *s3, const struct s3_place *place, struct str bytes,
                         bool only_new, struct error *error) {
    char sum[DIGEST_HEX_BYTES];
    struct digest digest;
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, bytes.at, bytes.bytes);
    digest_end_hex(&digest, sum);
    digest_release(&digest);
    const struct net_file file = {.fd = -1, .before = bytes};
    const struct s3_call call = {
        .method = "PUT",
        .what = "the upload",
        .place = place,
        .lines = {"Content-Type: application/octet-stream", only_new ? "If-None-Match: *" : NULL},
        .file = &file,
        .payload_hex = sum};
    enum err err = s3_call_once(s3, &call, error);
    if (err != OK || s3_is_good(s3)) return err;
    if (only_new && s3->answer.end == NET_END_WHOLE && s3->answer.status == 412)
        return err_set(error, ERR_CONFLICT, "s3://%.63s/%.200s exists", place->bucket, place->key);
    /* Another write of the same name is under way: who won shows at the next attempt. */
    if (only_new && s3->answer.end == NET_END_WHOLE && s3->answer.status == 409)
        return err_set(error, ERR_UNAVAILABLE, "s3://%.63s/%.200s is being written", place->bucket,
                       place->key);
    return s3_judge(s3, &call, error);
}

enum err s3_object_remove(struct s3 *s3, const struct s3_place *place, struct error *error) {
    const struct s3_call call = {.method = "DELETE", .what = "the removal", .place = place};
    enum err err = s3_call_once(s3, &call, error);
    if (err != OK || s3_is_good(s3)) return err;
    err = s3_judge(s3, &call, error);
    return err == ERR_NOT_FOUND ? OK : err;
}

enum err s3_objects_list(struct s3 *s3, const struct s3_place *prefix, s3_name_fn each,
                         void *context, char token[S3_TOKEN_BYTES], struct error *error) {
    struct s3_place bucket = *prefix;
    bucket.key[0] = '\0';
    const struct sigv4_field query[] = {{"list-type", "2"},
                                        {"max-keys", PAGE_KEYS},
                                        {"prefix", prefix->key},
                                        {"continuation-token", token}};
    size_t count = sizeof query / sizeof *query - (*token ? 0 : 1);
    const struct s3_call call = {.method = "GET",
                                 .what = "the list of objects",
                                 .place = &bucket,
                                 .query = query,
                                 .query_count = count};
    enum err err = s3_call_once(s3, &call, error);
    if (err == OK && !s3_is_good(s3)) err = s3_judge(s3, &call, error);
    if (err != OK) return err;
    err = s3_listing_read(buf_str(&s3->body), prefix->key, each, context, token, error);
    return err == OK ? OK : err_prefix(error, "s3://%.63s/%.200s", prefix->bucket, prefix->key);
}
