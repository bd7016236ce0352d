/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/redis.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"
#include "redis/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 5000
#define REPLY_BYTES ((size_t)256 << 20)
#define ROOM_BYTES ((size_t)64 << 10)
#define NS_PER_BYTE 1000 /* what a second per MB is */
#define OUT_KEPT ((size_t)4 << 20)

struct redis {
    struct redis_options options;
    struct stream *stream; /* NULL: not connected */
    struct buf out;
    struct reply_reader reader;
    size_t unanswered; /* commands that were sent and whose replies were not taken */
    size_t queued;
};

struct redis *redis_open(const struct redis_options *options) {
    struct redis *redis = mem_new(1, sizeof *redis);
    redis->options = *options;
    if (redis->options.timeout_ms == 0) redis->options.timeout_ms = TIMEOUT_MS;
    if (redis->options.reply_bytes_max == 0) redis->options.reply_bytes_max = REPLY_BYTES;
    buf_init(&redis->out, BUF_UNLIMITED);
    reply_reader_init(&redis->reader, redis->options.reply_bytes_max);
    return redis;
}

static void disconnect(struct redis *redis) {
    stream_close(redis->stream);
    redis->stream = NULL;
    redis->unanswered = 0;
    reply_reader_clear(&redis->reader);
}

void redis_drop(struct redis *redis) {
    disconnect(redis);
    redis->queued = 0;
    buf_clear(&redis->out);
}

void redis_close(struct redis *redis) {
    if (!redis) return;
    redis_drop(redis);
    buf_release(&redis->out);
    reply_reader_release(&redis->reader);
    free(redis);
}

void redis_add(struct redis *redis, const struct str *words, size_t count) {
    buf_printf(&redis->out, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        buf_printf(&redis->out, "$%zu\r\n", words[i].bytes);
        buf_add_str(&redis->out, words[i]);
        buf_add(&redis->out, "\r\n", 2);
    }
    redis->queued++;
}

/* --- replies --- */

static enum err read_reply(struct redis *redis, int64_t due_ns,
                           const struct reply_value **ret_reply, struct error *error) {
    for (;;) {
        size_t value_count, count;
        bool found;
        enum err err = reply_next(&redis->reader, ret_reply, &value_count, &found, error);
        if (err != OK || found) return err;
        char *room = reply_room(&redis->reader, ROOM_BYTES);
        if (!room)
            return err_set(error, ERR_CORRUPT,
                           "a reply of the queue's server has more than %zu "
                           "bytes",
                           redis->options.reply_bytes_max);
        err = stream_read(redis->stream, room, ROOM_BYTES, due_ns, &count, error);
        if (err != OK) return err;
        if (count == 0)
            return err_set(error, ERR_UNAVAILABLE, "the queue's server did not answer in time");
        buf_commit(&redis->reader.bytes, count);
        due_ns += (int64_t)count * NS_PER_BYTE;
    }
}

enum err redis_reply(struct redis *redis, int64_t wait_ms, const struct reply_value **ret_reply,
                     struct error *error) {
    if (!redis->stream || redis->unanswered == 0)
        return err_set(error, ERR_UNAVAILABLE, "the connection to the queue's server was lost");
    int64_t due_ns = sync_deadline_ns(redis->options.timeout_ms + wait_ms);
    enum err err = read_reply(redis, due_ns, ret_reply, error);
    if (err == OK)
        redis->unanswered--;
    else
        redis_drop(redis);
    return err;
}

static enum err code_of(struct str text) {
    if (str_starts_with(text, STR("NOPERM")) || str_starts_with(text, STR("NOAUTH")) ||
        str_starts_with(text, STR("WRONGPASS")))
        return ERR_DENIED;
    if (str_starts_with(text, STR("OOM"))) return ERR_LIMIT;
    if (str_starts_with(text, STR("LOADING")) || str_starts_with(text, STR("BUSY")) ||
        str_starts_with(text, STR("READONLY")) || str_starts_with(text, STR("MASTERDOWN")))
        return ERR_UNAVAILABLE;
    return ERR_IO;
}

enum err redis_result(struct redis *redis, int64_t wait_ms, const struct reply_value **ret_reply,
                      struct error *error) {
    enum err err = redis_reply(redis, wait_ms, ret_reply, error);
    if (err != OK || (*ret_reply)->kind != REPLY_ERROR) return err;
    struct str text = (*ret_reply)->text;
    return err_set(error, code_of(text), "the queue's server says: %.*s", STR_ARGS(text));
}

/* --- the connection --- */

static enum err authenticate(struct redis *redis, struct error *error) {
    const struct redis_options *options = &redis->options;
    const struct str words[] = {STR("AUTH"), str_from(options->place.user),
                                str_from(options->password)};
    const struct str only_password[] = {words[0], words[2]};
    if (!options->password) return OK;
    struct buf waiting = redis->out;
    buf_init(&redis->out, BUF_UNLIMITED);
    if (*options->place.user)
        redis_add(redis, words, 3);
    else
        redis_add(redis, only_password, 2);
    redis->queued--;
    const struct reply_value *reply;
    enum err err = stream_write(redis->stream, redis->out.at, redis->out.bytes,
                                sync_deadline_ns(options->timeout_ms), error);
    if (err == OK) err = read_reply(redis, sync_deadline_ns(options->timeout_ms), &reply, error);
    if (err == OK && reply->kind == REPLY_ERROR)
        err =
            err_set(error, code_of(reply->text), "the queue's server refuses user '%s': %.*s",
                    *options->place.user ? options->place.user : "default", STR_ARGS(reply->text));
    buf_release(&redis->out);
    redis->out = waiting;
    return err;
}

static enum err connect_now(struct redis *redis, struct error *error) {
    const struct redis_options *options = &redis->options;
    const struct stream_options stream = {.host = options->place.host,
                                          .port = options->place.port,
                                          .is_tls = options->place.is_tls,
                                          .ca_file = options->ca_file,
                                          .cert_file = options->cert_file,
                                          .timeout_ms = options->timeout_ms};
    enum err err = stream_open(&redis->stream, &stream, error);
    return err == OK ? authenticate(redis, error) : err;
}

enum err redis_send(struct redis *redis, struct error *error) {
    /* Replies that were not taken would be taken for those of the commands that go now. */
    if (redis->unanswered > 0) disconnect(redis);
    enum err err = redis->stream ? OK : connect_now(redis, error);
    if (err == OK)
        err = stream_write(redis->stream, redis->out.at, redis->out.bytes,
                           sync_deadline_ns(redis->options.timeout_ms) +
                               (int64_t)redis->out.bytes * NS_PER_BYTE,
                           error);
    if (err != OK) {
        redis_drop(redis);
        return err;
    }
    redis->unanswered += redis->queued;
    redis->queued = 0;
    buf_clear(&redis->out);
    if (redis->out.capacity > OUT_KEPT) {
        buf_release(&redis->out);
        buf_init(&redis->out, BUF_UNLIMITED);
    }
    return OK;
}
