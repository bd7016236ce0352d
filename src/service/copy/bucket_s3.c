/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/bucket_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "s3/s3.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_MAX 16 /* as many as a restore has under way */
/* A storage that says nothing for so long is away: acknowledgements wait for it. */
#define SILENCE_MS 10000

static_assert(BUCKET_TOKEN_BYTES >= S3_TOKEN_BYTES, "the token of a list fits");

struct s3_bucket {
    struct bucket bucket;
    const volatile bool *stop;
    struct s3_place place; /* the key is the prefix, without a slash at its end */
    pthread_mutex_t lock;  /* guards the next two */
    struct s3 *idle[IDLE_MAX];
    size_t idle_count;
};

static void say(void *context, const char *sentence) {
    (void)context;
    log_warn("%s", sentence);
}

/* A connection, and the place of the object. */
static enum err take(struct s3_bucket *bucket, const char *name, struct s3 **ret_s3,
                     struct s3_place *ret_place, struct error *error) {
    struct s3 *s3 = NULL;
    const size_t bytes = strlen(bucket->place.key);
    *ret_place = bucket->place;
    snprintf(ret_place->key + bytes, sizeof ret_place->key - bytes, "/%s", name);
    pthread_mutex_lock(&bucket->lock);
    if (bucket->idle_count > 0) s3 = bucket->idle[--bucket->idle_count];
    pthread_mutex_unlock(&bucket->lock);
    const struct s3_options options = {.stop = bucket->stop, .say = say, .silence_ms = SILENCE_MS};
    if (!s3) return s3_open(ret_s3, &options, error);
    *ret_s3 = s3;
    return OK;
}

/* A bucket that does not exist is no object that does not: it is wrong whatever is asked for. */
static enum err judge(enum err err, const struct error *error) {
    return err == ERR_NOT_FOUND && strstr(error->text, "NoSuchBucket") ? ERR_INVALID : err;
}

/* After an error the account is read again: temporary credentials are renewed in its files. */
static void give_back(struct s3_bucket *bucket, struct s3 *s3, enum err err) {
    bool is_good = err == OK || err == ERR_NOT_FOUND || err == ERR_CONFLICT;
    pthread_mutex_lock(&bucket->lock);
    if (is_good && bucket->idle_count < IDLE_MAX) {
        bucket->idle[bucket->idle_count++] = s3;
        s3 = NULL;
    }
    pthread_mutex_unlock(&bucket->lock);
    s3_close(s3);
}

static enum err storage_read(struct bucket *base, const char *name, struct buf *ret_bytes,
                             struct error *error) {
    struct s3_bucket *bucket = (struct s3_bucket *)base;
    struct s3_place place;
    struct s3 *s3;
    enum err err = take(bucket, name, &s3, &place, error);
    if (err != OK) return err;
    err = judge(s3_object_read(s3, &place, ret_bytes, error), error);
    give_back(bucket, s3, err);
    return err;
}

static enum err storage_write(struct bucket *base, const char *name, struct str bytes,
                              bool only_new, struct error *error) {
    struct s3_bucket *bucket = (struct s3_bucket *)base;
    struct s3_place place;
    struct s3 *s3;
    enum err err = take(bucket, name, &s3, &place, error);
    if (err != OK) return err;
    err = judge(s3_object_write(s3, &place, bytes, only_new, error), error);
    give_back(bucket, s3, err);
    return err;
}

static enum err storage_remove(struct bucket *base, const char *name, struct error *error) {
    struct s3_bucket *bucket = (struct s3_bucket *)base;
    struct s3_place place;
    struct s3 *s3;
    enum err err = take(bucket, name, &s3, &place, error);
    if (err != OK) return err;
    err = judge(s3_object_remove(s3, &place, error), error);
    give_back(bucket, s3, err);
    return err;
}

struct listing {
    const char *folder;
    bucket_name_fn each;
    void *context;
};

static void take_rest(void *context, const char *rest) {
    const struct listing *listing = context;
    char name[BUCKET_NAME_BYTES];
    int bytes = snprintf(name, sizeof name, "%s/%s", listing->folder, rest);
    if (bytes < (int)sizeof name) listing->each(listing->context, name);
}

static enum err storage_list(struct bucket *base, const char *folder, bucket_name_fn each,
                             void *context, char *token, struct error *error) {
    struct s3_bucket *bucket = (struct s3_bucket *)base;
    struct listing listing = {folder, each, context};
    char name[BUCKET_NAME_BYTES];
    struct s3_place place;
    struct s3 *s3;
    snprintf(name, sizeof name, "%s/", folder);
    enum err err = take(bucket, name, &s3, &place, error);
    if (err != OK) return err;
    err = judge(s3_objects_list(s3, &place, take_rest, &listing, token, error), error);
    give_back(bucket, s3, err);
    return err;
}

static void storage_close(struct bucket *base) {
    struct s3_bucket *bucket = (struct s3_bucket *)base;
    for (size_t i = 0; i < bucket->idle_count; i++) s3_close(bucket->idle[i]);
    pthread_mutex_destroy(&bucket->lock);
    free(bucket);
}

/* A slash at the end of the prefix says nothing. */
static enum err read_prefix(struct s3_place *ret_place, const char *place, struct error *error) {
    char name[S3_BUCKET_BYTES + S3_KEY_BYTES];
    size_t bytes = strlen(place);
    while (bytes > 0 && place[bytes - 1] == '/') bytes--;
    if (bytes >= sizeof name - BUCKET_NAME_BYTES)
        return err_set(error, ERR_INVALID, "'%.200s…' is too long for a place", place);
    snprintf(name, sizeof name, "%.*s", (int)bytes, place);
    const char *bucket = strstr(name, "://"), *prefix = bucket ? strchr(bucket + 3, '/') : NULL;
    if (!prefix)
        return err_set(error, ERR_INVALID, "'%.200s' has no prefix: s3://BUCKET/PREFIX", place);
    enum err err = s3_place_read(ret_place, name, error);
    if (err == OK && strlen(ret_place->key) + BUCKET_NAME_BYTES >= sizeof ret_place->key)
        return err_set(error, ERR_INVALID, "the prefix of '%.200s…' is too long", place);
    return err;
}

enum err bucket_s3_open(struct bucket **ret_bucket, const char *place, const volatile bool *stop,
                        struct error *error) {
    struct s3_bucket *bucket = mem_new(1, sizeof *bucket);
    bucket->bucket =
        (struct bucket){storage_read, storage_write, storage_remove, storage_list, storage_close};
    bucket->stop = stop;
    pthread_mutex_init(&bucket->lock, NULL);
    enum err err = read_prefix(&bucket->place, place, error);
    if (err == OK)
        *ret_bucket = &bucket->bucket;
    else
        storage_close(&bucket->bucket);
    return err;
}
