/* SPDX-License-Identifier: Apache-2.0 */

/* The Redis or Valkey server between machines. */

#include "doctor/doctor_internal.h"

#include "base/clock.h"
#include "base/str.h"
#include "cluster/bus_redis.h"
#include "node/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE "queue"
#define MEMORY_MIN ((uint64_t)512 << 20) /* what may be in flight, and as much of results */
#define SKEW_MS 1000

/* Asks one command. *ret_text is the reply's text, copied by the caller before the next call. */
static enum err ask(struct redis *redis, const char *const *words, size_t count,
                    const struct reply_value **ret_reply, struct error *error) {
    struct str list[4];
    for (size_t i = 0; i < count; i++) list[i] = str_from(words[i]);
    redis_add(redis, list, count);
    enum err err = redis_send(redis, error);
    return err == OK ? redis_result(redis, 0, ret_reply, error) : err;
}

#define ASK(redis, ret_reply, error, ...)                                                          \
    ask(redis, (const char *const[]){__VA_ARGS__},                                                 \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), ret_reply, error)

/* The value of a line "name:value" of INFO; empty if there is none. */
static struct str info_value(struct str info, const char *name) {
    struct str wanted = str_from(name), line;
    while (info.bytes > 0) {
        size_t end = str_find(info, STR("\n"), 0);
        line = (struct str){info.at, end == SIZE_MAX ? info.bytes : end};
        info = str_skip(info, end == SIZE_MAX ? info.bytes : end + 1);
        if (str_starts_with(line, wanted) && line.bytes > wanted.bytes &&
            line.at[wanted.bytes] == ':')
            return str_trim(str_skip(line, wanted.bytes + 1));
    }
    return STR("");
}

static uint64_t number_of(struct str text) {
    uint64_t number;
    return str_to_u64(text, &number) ? number : 0;
}

static void check_version(struct doctor *doctor, const struct redis_place *place, struct str info) {
    struct str valkey = info_value(info, "valkey_version");
    struct str version = valkey.bytes ? valkey : info_value(info, "redis_version");
    size_t dot = str_find(version, STR("."), 0);
    uint64_t major = number_of((struct str){version.at, dot == SIZE_MAX ? 0 : dot});
    const char *name = valkey.bytes ? "Valkey" : "Redis";
    if (major >= 7)
        doctor_find(doctor, DOCTOR_GOOD, QUEUE, NULL, "%s:%d runs %s %.*s", place->host,
                    place->port, name, STR_ARGS(version));
    else
        doctor_find(doctor, DOCTOR_WRONG, QUEUE, "install Redis 7.0, Valkey 7.2, or newer",
                    "%s:%d runs %s %.*s, which is too old", place->host, place->port, name,
                    STR_ARGS(version));
}

static void check_memory(struct doctor *doctor, struct str info) {
    struct str policy = info_value(info, "maxmemory_policy");
    uint64_t most = number_of(info_value(info, "maxmemory"));
    if (policy.bytes && !str_is(policy, "noeviction"))
        doctor_find(doctor, DOCTOR_WRONG, QUEUE,
                    "start it with --maxmemory-policy noeviction: then it refuses when it is full",
                    "maxmemory-policy is %.*s: it would drop what servers and nodes wait for",
                    STR_ARGS(policy));
    else if (most == 0)
        doctor_find(doctor, DOCTOR_HINT, QUEUE, "start it with --maxmemory 1gb",
                    "maxmemory is not set: it may take all memory of its machine");
    else if (most < MEMORY_MIN)
        doctor_find(doctor, DOCTOR_HINT, QUEUE,
                    "raise --maxmemory, or lower --queue-memory-bytes of the server",
                    "maxmemory is %" PRIu64 " MiB; requests in flight may take 256 MiB, and "
                    "results that wait come on top",
                    most >> 20);
    else
        doctor_find(doctor, DOCTOR_GOOD, QUEUE, NULL,
                    "maxmemory is %" PRIu64 " MiB, and it refuses when it is full", most >> 20);
}

static void check_kind(struct doctor *doctor, struct str info) {
    if (str_is(info_value(info, "role"), "slave"))
        doctor_find(doctor, DOCTOR_WRONG, QUEUE, "name the primary server in the URL",
                    "it is a replica, which takes no writes");
    if (str_is(info_value(info, "cluster_enabled"), "1"))
        doctor_find(doctor, DOCTOR_HINT, QUEUE,
                    "use a single server, or name the one that has the slot of {quern:NAME}",
                    "it is a node of a Redis Cluster; quern follows no redirection");
    if (str_is(info_value(info, "aof_enabled"), "1"))
        doctor_find(doctor, DOCTOR_HINT, QUEUE, "start it with --appendonly no --save \"\"",
                    "it writes an append-only file: that costs time, and saves nothing, since the "
                    "server of quern keeps all that must not be lost");
}

static void check_info(struct doctor *doctor, struct redis *redis,
                       const struct redis_place *place) {
    const struct reply_value *reply;
    struct error error;
    enum err err = ASK(redis, &reply, &error, "INFO");
    if (err == OK && reply->kind == REPLY_TEXT) {
        check_version(doctor, place, reply->text);
        check_memory(doctor, reply->text);
        check_kind(doctor, reply->text);
    } else if (err == ERR_DENIED) {
        doctor_find(doctor, DOCTOR_HINT, QUEUE, "look with the server's user",
                    "%s:%d is reached; the user '%s' may not see its version and memory, which is "
                    "right for a node",
                    place->host, place->port, *place->user ? place->user : "default");
    } else {
        doctor_find(doctor, DOCTOR_WRONG, QUEUE, "is it a Redis or Valkey server?", "%s:%d: %s",
                    place->host, place->port, err == OK ? "INFO has no text" : error.text);
    }
}

static void check_clock(struct doctor *doctor, struct redis *redis) {
    const struct reply_value *reply;
    struct error error;
    int64_t seconds, micros;
    if (ASK(redis, &reply, &error, "TIME") != OK || reply->kind != REPLY_LIST ||
        reply->count != 2 || !str_to_i64(reply[1].text, &seconds) ||
        !str_to_i64(reply[2].text, &micros))
        return;
    int64_t apart_ms = clock_unix_s() * 1000 - (seconds * 1000 + micros / 1000);
    if (apart_ms < -2 * SKEW_MS || apart_ms > SKEW_MS)
        doctor_find(doctor, DOCTOR_HINT, QUEUE, "run an NTP client on both machines",
                    "its clock and this machine's are %" PRId64 " s apart: deadlines of requests "
                    "are points in time",
                    apart_ms / 1000);
}

static void check_leader(struct doctor *doctor, struct redis *redis,
                         const struct redis_place *place) {
    const struct reply_value *reply;
    struct error error;
    char key[REDIS_NAME_BYTES + 32];
    snprintf(key, sizeof key, "{quern:%s}:server", place->cluster);
    if (ASK(redis, &reply, &error, "GET", key) != OK) return; /* a node may not read it */
    if (reply->kind == REPLY_TEXT)
        doctor_find(doctor, DOCTOR_GOOD, QUEUE, NULL, "the cluster '%s' is led by the server %.*s",
                    place->cluster, (int)(reply->text.bytes < 200 ? reply->text.bytes : 200),
                    reply->text.at);
    else
        doctor_find(doctor, DOCTOR_GOOD, QUEUE, NULL, "no server leads the cluster '%s' now",
                    place->cluster);
}

/* Who may do what, and the commands that make users with less. */
static void check_rights(struct doctor *doctor, const struct redis_options *options, bool is_here) {
    const struct redis_place *place = &options->place;
    if (!options->password && !is_here)
        doctor_find(doctor, DOCTOR_WRONG, QUEUE,
                    "give it users with passwords, as below, and name them in the URL",
                    "%s:%d asks for no password: everyone who reaches it reads prompts and forges "
                    "answers",
                    place->host, place->port);
    if (!place->is_tls && !is_here)
        doctor_find(doctor, DOCTOR_HINT, QUEUE, "use rediss:// and a server with TLS",
                    "requests and answers cross the network unencrypted");
    for (int side = BUS_SERVER; side <= BUS_NODE; side++) {
        struct buf command;
        buf_init(&command, 4096);
        bus_redis_rights(&command, place->cluster, (enum bus_side)side);
        doctor_find(doctor, *place->user ? DOCTOR_GOOD : DOCTOR_HINT, QUEUE, command.at,
                    "a user of its own for %s of the cluster '%s' is made by",
                    side == BUS_SERVER ? "the server" : "nodes", place->cluster);
        buf_release(&command);
    }
}

void doctor_check_queue(struct doctor *doctor) {
    const struct doctor_settings *settings = &doctor->settings;
    struct queue_options queue = {.url = settings->queue,
                                  .password_file = settings->queue_password_file,
                                  .ca_file = settings->queue_ca_file,
                                  .cert_file = settings->queue_cert_file};
    const struct reply_value *reply;
    struct error error;
    if (!queue.url || !*queue.url) return;
    if (queue_options_read(&queue, &error) != OK) {
        doctor_find(doctor, DOCTOR_WRONG, QUEUE, "correct the option or the file", "%s",
                    error.text);
        return;
    }
    const struct redis_place *place = &queue.redis.place;
    struct redis *redis = redis_open(&queue.redis);
    enum err err = ASK(redis, &reply, &error, "PING");
    if (err == ERR_DENIED)
        doctor_find(doctor, DOCTOR_WRONG, QUEUE,
                    "correct the user in the URL, and the password in --queue-password-file",
                    "%s:%d refuses: %s", place->host, place->port, error.text);
    else if (err != OK)
        doctor_find(doctor, DOCTOR_WRONG, QUEUE, "start that server, or correct the URL",
                    "%s:%d: %s", place->host, place->port, error.text);
    if (err == OK) {
        check_info(doctor, redis, place);
        check_clock(doctor, redis);
        check_leader(doctor, redis, place);
        check_rights(doctor, &queue.redis, queue_is_here(&queue));
    }
    redis_close(redis);
    queue_options_release(&queue);
}
