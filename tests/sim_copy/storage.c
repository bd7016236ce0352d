/* SPDX-License-Identifier: Apache-2.0 */
#include "storage.h"

#include "../rig/threads.h"

#include "base/map.h"
#include "base/mem.h"
#include "copy/bucket_internal.h"
#include "copy/entry.h"
#include "events.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define GIVE_UP_NS (10000 * NS_PER_MS) /* as bucket_s3.c does */
#define UNDER_WAY_MAX 64u
#define ENTRIES_MAX 20000u
#define PAGE_NAMES 5u

enum operation { READ, WRITE, WRITE_NEW, REMOVE, LIST };

/* A request that was sent. */
struct request {
    bool is_sent, is_done;
    enum operation operation;
    int64_t arrives_ns;
    uint64_t order;
    char name[BUCKET_NAME_BYTES]; /* the folder of a LIST */
    struct str bytes;             /* what is written, or was read */
    size_t from;                  /* index of a LIST's first object; then that of the next page */
    enum err result;
};

struct object {
    char name[BUCKET_NAME_BYTES];
    struct str bytes;
    bool exists;
};

struct connection {
    struct bucket bucket;
    uint32_t server;
    const volatile bool *stop;
};

/* The chain as it was written, including what was removed. */
struct written {
    uint64_t leader;
    char nonce[ENTRY_NONCE_BYTES];
    struct str bytes;
    int64_t at_ns;
};

static struct request *under_way[UNDER_WAY_MAX];
static uint64_t order;
static struct object *objects;
static size_t object_count, object_capacity;
static struct map object_at;
static struct written *chain; /* from 1 on */
static uint64_t chain_end;
static int64_t cut_until_ns[PLAN_SERVERS_MAX];
static bool is_healed;
static struct rng draws;

/* --- the chain --- */

/* A name whose object was removed is written again. That may be another attempt of the entry's
 * writer, whose first answer was lost; or the begin of a server that does not know of a newer end,
 * which must not lead then. */
static void check_again(const char *name, uint64_t number, bool leads, struct str bytes) {
    const struct str *first = &chain[number].bytes;
    bool is_same = first->bytes == bytes.bytes && memcmp(first->at, bytes.at, bytes.bytes) == 0;
    if (!leads && !is_same) sim_fail("entry %s is written twice (chain)", name);
}

static void check_entry(const char *name, struct str bytes) {
    struct entry_header header;
    struct error error;
    uint64_t number = strtoull(name + 4, NULL, 10);
    if (entry_open(bytes, &header, &error) != OK || header.number != number)
        sim_fail("%s is no entry: %s (chain)", name, error.text);
    bool leads = header.leader == number;
    if (number <= chain_end) {
        check_again(name, number, leads, bytes);
        return;
    }
    if (number > chain_end + 1)
        sim_fail("%s comes after entry %llu (chain)", name, (unsigned long long)chain_end);
    const struct written *last = &chain[chain_end];
    if (!leads && (last->leader != header.leader || strcmp(last->nonce, header.nonce) != 0))
        sim_fail("%s is of another server than the entry before it (chain)", name);
    if (number + 1 >= ENTRIES_MAX) sim_fail("too many entries");
    chain_end = number;
    chain[number] = (struct written){.leader = header.leader, .bytes = bytes, .at_ns = sim->now_ns};
    memcpy(chain[number].nonce, header.nonce, sizeof header.nonce);
    sim->entries++;
    if (leads) sim->takeovers++;
    if (leads) sim_note("storage: a server leads from entry %llu", (unsigned long long)number);
}

int64_t storage_lead_ns(uint64_t number) {
    return number <= chain_end ? chain[number].at_ns : 0;
}

int64_t storage_silence_ns(uint64_t number) {
    return number > 1 && number <= chain_end ? chain[number].at_ns - chain[number - 1].at_ns : 0;
}

/* --- objects --- */

static struct object *object_of(const char *name) {
    uint64_t at;
    if (map_get(&object_at, str_from(name), &at)) return &objects[at];
    objects = vec_grow(objects, object_count, &object_capacity, sizeof *objects);
    objects[object_count] = (struct object){0};
    snprintf(objects[object_count].name, BUCKET_NAME_BYTES, "%s", name);
    map_put(&object_at, str_from(name), object_count);
    return &objects[object_count++];
}

/* Gives the names of a page, each with a NUL. */
static void list(struct request *request) {
    size_t count = 0, bytes = 0, at = request->from, prefix = strlen(request->name);
    char *names = mem_alloc(PAGE_NAMES * BUCKET_NAME_BYTES);
    for (; at < object_count && count < PAGE_NAMES; at++) {
        const struct object *object = &objects[at];
        if (!object->exists || strncmp(object->name, request->name, prefix) != 0) continue;
        memcpy(names + bytes, object->name, strlen(object->name) + 1);
        bytes += strlen(object->name) + 1;
        count++;
    }
    request->bytes = (struct str){names, bytes};
    request->from = at;
    request->is_done = true;
}

static void take_effect(struct request *request) {
    if (request->operation == LIST) {
        list(request);
        return;
    }
    struct object *object = object_of(request->name);
    bool is_log = strncmp(request->name, "log/", 4) == 0;
    request->is_done = true;
    request->result = OK;
    switch (request->operation) {
    case READ:
        if (object->exists)
            request->bytes = object->bytes;
        else
            request->result = ERR_NOT_FOUND;
        return;
    case WRITE:
    case WRITE_NEW:
        if (is_log && request->operation == WRITE) sim_fail("a write over the log (chain)");
        if (request->operation == WRITE_NEW && object->exists) {
            request->result = ERR_CONFLICT;
            return;
        }
        if (is_log) check_entry(request->name, request->bytes);
        object->bytes = request->bytes;
        object->exists = true;
        return;
    case REMOVE: object->exists = false; return;
    case LIST: break;
    }
}

/* Lets all requests take effect that have arrived, in their order. */
static void arrive(void) {
    for (;;) {
        struct request *first = NULL;
        uint32_t place = 0;
        for (uint32_t i = 0; i < UNDER_WAY_MAX; i++) {
            struct request *request = under_way[i];
            if (!request || request->arrives_ns > sim->now_ns) continue;
            if (first &&
                (request->arrives_ns > first->arrives_ns ||
                 (request->arrives_ns == first->arrives_ns && request->order > first->order)))
                continue;
            first = request;
            place = i;
        }
        if (!first) return;
        under_way[place] = NULL;
        take_effect(first);
    }
}

/* --- what is needed --- */

static void name_object(struct map *named, const struct entry_object *object) {
    char name[ENTRY_NAME_BYTES];
    entry_piece_name(object, 0, name);
    *strchr(name, '.') = '\0';
    map_put(named, str_from(name), 1);
}

/* Names the objects of an entry or a piece; returns the first entry of its base, or 0. */
static uint64_t name_objects(struct map *named, struct str bytes, struct entry_object *ret_base) {
    struct entry_record record;
    uint64_t first = 0;
    for (size_t at = 0; entry_next(bytes, &at, &record);) {
        const struct entry_object object = entry_object_of(&record);
        if (record.kind == ENTRY_BASE) {
            first = record.value;
            *ret_base = object;
        }
        if (record.kind == ENTRY_BASE || record.kind == ENTRY_OBJECT) name_object(named, &object);
    }
    return first;
}

/* Names what the newest base and the log after it need; returns the first entry. */
static uint64_t name_needed(struct map *named) {
    struct entry_object base;
    uint64_t first = 0;
    char name[ENTRY_NAME_BYTES];
    for (uint64_t number = chain_end; number > 0 && first == 0; number--) {
        struct map only;
        map_init(&only);
        first = name_objects(&only, chain[number].bytes, &base);
        map_release(&only);
    }
    if (first == 0) sim_fail("there is no base (leftover)");
    name_object(named, &base);
    for (uint64_t i = 1; i <= base.piece_bytes; i++) {
        entry_piece_name(&base, i, name);
        name_objects(named, object_of(name)->bytes, &(struct entry_object){0});
    }
    for (uint64_t number = first; number <= chain_end; number++)
        name_objects(named, chain[number].bytes, &(struct entry_object){0});
    return first;
}

void storage_check_needed(void) {
    struct entry_header header;
    struct error error;
    struct map named;
    map_init(&named);
    uint64_t first = name_needed(&named);
    for (size_t i = 0; i < object_count; i++) {
        const struct object *object = &objects[i];
        const char *name = object->name, *dot = strchr(name, '.');
        if (!object->exists || strncmp(name, "base/", 5) == 0) continue;
        bool is_needed = dot && map_get(&named, (struct str){name, (size_t)(dot - name)}, NULL);
        if (strncmp(name, "log/", 4) == 0) {
            uint64_t number = strtoull(name + 4, NULL, 10);
            is_needed = entry_open(object->bytes, &header, &error) == OK &&
                        (number >= first || header.leader == number);
        }
        if (!is_needed) sim_fail("nothing names %s any more, and it is there (leftover)", name);
    }
}

/* --- the network --- */

void storage_cut(uint32_t server, int64_t ns) {
    if (cut_until_ns[server] < sim->now_ns + ns) cut_until_ns[server] = sim->now_ns + ns;
}

void storage_heal(void) {
    is_healed = true;
    memset(cut_until_ns, 0, sizeof cut_until_ns);
}

static int64_t draw_way_ns(void) {
    int64_t most_ns = is_healed ? NS_PER_MS : sim->plan.slow_ms * NS_PER_MS;
    /* Most are quick. */
    if (rng_below(&draws, 4) != 0) most_ns = most_ns / 8 + 1;
    return 1 + (int64_t)rng_below(&draws, (uint64_t)most_ns);
}

static bool is_cut(uint32_t server) {
    return server != STORAGE_CLEAR && cut_until_ns[server] > sim->now_ns;
}

static void send(struct request *request, int64_t way_ns) {
    uint32_t place = 0;
    while (place < UNDER_WAY_MAX && under_way[place]) place++;
    if (place == UNDER_WAY_MAX) sim_fail("too many requests are under way");
    request->arrives_ns = sim->now_ns + way_ns;
    request->order = order++;
    under_way[place] = request;
}

/* How a request and its answer fare. */
struct fate {
    bool arrives, is_answered;
    int64_t way_ns, back_ns;
};

static struct fate draw_fate(uint32_t server) {
    struct fate fate = {true, true, draw_way_ns(), draw_way_ns()};
    if (server == STORAGE_CLEAR) return (struct fate){true, true, 1, 1};
    if (is_cut(server)) {
        fate.is_answered = false;
        fate.arrives = rng_below(&draws, 8) == 0;
        return fate;
    }
    if (is_healed || sim->plan.trouble == 0 || rng_below(&draws, sim->plan.trouble) != 0)
        return fate;
    fate.is_answered = false;
    fate.arrives = rng_below(&draws, 3) != 0; /* or an error 503 */
    if (rng_below(&draws, 4) == 0)            /* it arrives after its sender has given up */
        fate.way_ns += (int64_t)rng_below(&draws, 60000) * NS_PER_MS;
    return fate;
}

static bool is_of_sweep(const struct request *request) {
    return request->operation == LIST && strcmp(request->name, "data") == 0;
}

static bool is_of_log(const struct request *request) {
    return request->operation == WRITE_NEW && strncmp(request->name, "log/", 4) == 0;
}

/* Sends the request and waits for its answer. */
static enum err ask(struct connection *connection, struct request *request, struct error *error) {
    struct fate fate = draw_fate(connection->server);
    int64_t end_ns = sim->now_ns + GIVE_UP_NS;
    sim->requests++;
    threads_may_switch();
    if (is_of_log(request)) events_at(connection->server, AT_WRITE);
    if (is_of_sweep(request)) events_at(connection->server, AT_LIST);
    if (fate.arrives) send(request, fate.way_ns);
    if (is_of_log(request)) events_at(connection->server, AT_SEND);
    int64_t due_ns = sim->now_ns + fate.way_ns;
    if (due_ns > end_ns) due_ns = end_ns;
    threads_sleep_ns(due_ns - sim->now_ns);
    arrive();
    if (is_of_log(request) && request->is_done) events_at(connection->server, AT_ANSWER);
    if (!fate.is_answered && rng_below(&draws, 2)) fate.back_ns = end_ns - sim->now_ns;
    if (fate.back_ns > 0) threads_sleep_ns(fate.back_ns);
    arrive();
    if (*connection->stop) return err_set(error, ERR_CANCELLED, "stopped");
    if (!fate.is_answered || !request->is_done || is_cut(connection->server))
        return err_set(error, ERR_UNAVAILABLE, "the storage does not answer");
    if (request->result == OK) return OK;
    return err_set(error, request->result, "%s %s", request->name,
                   request->result == ERR_CONFLICT ? "exists" : "does not exist");
}

/* The request outlives its sender, and so does what it carries. */
static struct request *new_request(enum operation operation, const char *name, struct str bytes) {
    struct request *request = mem_new(1, sizeof *request);
    char *copied = mem_alloc(bytes.bytes + 1);
    if (bytes.bytes) memcpy(copied, bytes.at, bytes.bytes);
    request->operation = operation;
    snprintf(request->name, sizeof request->name, "%s", name);
    request->bytes = (struct str){copied, bytes.bytes};
    return request;
}

static enum err sim_read(struct bucket *bucket, const char *name, struct buf *ret_bytes,
                         struct error *error) {
    struct request *request = new_request(READ, name, (struct str){"", 0});
    enum err err = ask((struct connection *)bucket, request, error);
    if (err == OK) buf_add_str(ret_bytes, request->bytes);
    return err;
}

static enum err sim_write(struct bucket *bucket, const char *name, struct str bytes, bool only_new,
                          struct error *error) {
    struct request *request = new_request(only_new ? WRITE_NEW : WRITE, name, bytes);
    return ask((struct connection *)bucket, request, error);
}

static enum err sim_remove(struct bucket *bucket, const char *name, struct error *error) {
    struct request *request = new_request(REMOVE, name, (struct str){"", 0});
    return ask((struct connection *)bucket, request, error);
}

static enum err sim_list(struct bucket *bucket, const char *folder, bucket_name_fn each,
                         void *context, char *token, struct error *error) {
    struct request *request = new_request(LIST, folder, (struct str){"", 0});
    request->from = strtoull(token, NULL, 10);
    enum err err = ask((struct connection *)bucket, request, error);
    if (err != OK) return err;
    for (size_t at = 0; at < request->bytes.bytes; at += strlen(request->bytes.at + at) + 1)
        each(context, request->bytes.at + at);
    token[0] = '\0';
    if (request->from < object_count) snprintf(token, BUCKET_TOKEN_BYTES, "%zu", request->from);
    return OK;
}

static void sim_close(struct bucket *bucket) {
    free(bucket);
}

void storage_connect(struct bucket **ret_bucket, uint32_t server, const volatile bool *stop) {
    struct connection *connection = mem_new(1, sizeof *connection);
    if (!chain) {
        draws = sim_rng('s');
        map_init(&object_at);
        chain = mem_new(ENTRIES_MAX, sizeof *chain);
    }
    connection->bucket = (struct bucket){sim_read, sim_write, sim_remove, sim_list, sim_close};
    connection->server = server;
    connection->stop = stop;
    *ret_bucket = &connection->bucket;
}
