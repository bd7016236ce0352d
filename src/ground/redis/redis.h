/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* redis: a client of one Redis or Valkey server.
 *
 * Commands are queued, sent together, and their replies are taken one by one in the same order. A
 * connection is made when commands are sent and none is open. After any failure the connection is
 * closed and what was queued is forgotten: whether the server has run those commands is not known,
 * so the caller must be able to send them again. It knows no command but AUTH.
 *
 * Thread: a client belongs to one thread.
 * Memory: the queued commands, and the reply that was handed out. */

#include "base/str.h"
#include "redis/place.h"
#include "redis/reply.h"

struct redis;

/* Texts are borrowed as long as the client lives. */
struct redis_options {
    struct redis_place place;
    const char *password;  /* NULL: none */
    const char *ca_file;   /* as in stream.h */
    const char *cert_file; /* likewise */
    /* For a connection, and for each reply (default 5 s); what is sent or read may take a second
     * more per MB. */
    int64_t timeout_ms;
    size_t reply_bytes_max; /* replies that are there at a time (default 256 MiB) */
};

struct redis *redis_open(const struct redis_options *options);
void redis_close(struct redis *redis); /* NULL is allowed */
/* Queues a command of `count` words. */
void redis_add(struct redis *redis, const struct str *words, size_t count);
/* Sends what is queued, over a new connection if replies were left untaken. ERR_UNAVAILABLE with
 * the reason; ERR_DENIED if the password or the certificate is refused. */
enum err redis_send(struct redis *redis, struct error *error) MUST_CHECK;
/* The reply to the next command, the root value first; it is the reader's until the next call. The
 * server may take `wait_ms` longer than the timeout. ERR_UNAVAILABLE; ERR_CORRUPT for bytes that
 * are no reply, or of more than reply_bytes_max. A reply of the kind REPLY_ERROR is a reply. */
enum err redis_reply(struct redis *redis, int64_t wait_ms, const struct reply_value **ret_reply,
                     struct error *error) MUST_CHECK;
/* As redis_reply; an error that the server replies is ERR_IO with its sentence, ERR_DENIED if the
 * user may not do it, ERR_LIMIT if its memory is full, and ERR_UNAVAILABLE while it starts. */
enum err redis_result(struct redis *redis, int64_t wait_ms, const struct reply_value **ret_reply,
                      struct error *error) MUST_CHECK;
/* Closes the connection; the next commands get a new one. */
void redis_drop(struct redis *redis);
