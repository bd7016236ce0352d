/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/mem.h"
#include "cluster/bus_redis_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE_MAX 64 /* packs per read */
_Static_assert(BUS_BEAT_TTL_MS == 15000 && BUS_LEAD_TTL_MS == 15000, "SIGN_TTL_MS is both");
#define WORDS_MAX 12

static struct redis_bus *of(struct bus *bus) {
    return (struct redis_bus *)bus;
}

/* --- commands --- */

struct key bus_redis_key(const struct redis_bus *own, const char *kind, const char *name) {
    struct key key;
    snprintf(key.text, sizeof key.text, "{quern:%s}:%s%s", own->cluster, kind, name);
    return key;
}

void bus_redis_add(struct redis_bus *own, const char *const *words) {
    struct str list[WORDS_MAX];
    size_t count = 0;
    for (; words[count] && count < WORDS_MAX; count++) list[count] = str_from(words[count]);
    redis_add(own->redis, list, count);
}

/* Takes the results of `count` commands. The first error counts. */
static enum err take_results(struct redis_bus *own, size_t count, struct error *error) {
    enum err first = OK;
    for (size_t i = 0; i < count; i++) {
        const struct reply_value *reply;
        struct error other;
        enum err err = redis_result(own->redis, 0, &reply, &other);
        if (err != OK && first == OK) {
            first = err;
            *error = other;
        }
        if (err == ERR_CORRUPT || err == ERR_UNAVAILABLE) break; /* the connection is gone */
    }
    return first;
}

enum err bus_redis_run(struct redis_bus *own, size_t count, struct error *error) {
    enum err err = redis_send(own->redis, error);
    return err == OK ? take_results(own, count, error) : err;
}

static enum err redis_flush(struct bus *bus, struct error *error) {
    struct redis_bus *own = of(bus);
    size_t queued = own->queued;
    own->queued = 0;
    return queued == 0 ? OK : bus_redis_run(own, queued, error);
}

enum err bus_redis_ask(struct redis_bus *own, const char *const *words,
                       const struct reply_value **ret_reply, struct error *error) {
    enum err err = redis_flush(&own->bus, error);
    if (err != OK) return err;
    bus_redis_add(own, words);
    err = redis_send(own->redis, error);
    return err == OK ? redis_result(own->redis, 0, ret_reply, error) : err;
}

struct key bus_redis_results_key(const struct redis_bus *own, uint64_t epoch) {
    char name[24];
    snprintf(name, sizeof name, "%" PRIu64, epoch);
    return bus_redis_key(own, "r:", name);
}

static enum err redis_lead(struct bus *bus, const char *id, uint64_t *ret_epoch, bool *ret_follows,
                           struct error *error) {
    return bus_redis_lead(of(bus), id, ret_epoch, ret_follows, error);
}

/* Compares `gen` with what it was; the server makes a new one. */
static enum err look_at_gen(struct redis_bus *own, bool makes_one, bool *ret_was_emptied,
                            struct error *error) {
    struct key key = bus_redis_key(own, "gen", "");
    const struct reply_value *reply;
    *ret_was_emptied = false;
    enum err err = bus_redis_ask(own, COMMAND("GET", key.text), &reply, error);
    if (err != OK) return err;
    bool has_one = reply->kind == REPLY_TEXT && reply->text.bytes < GEN_BYTES;
    if (has_one && str_is(reply->text, own->gen)) return OK;
    *ret_was_emptied = *own->gen != '\0';
    if (has_one) {
        memcpy(own->gen, reply->text.at, reply->text.bytes);
        own->gen[reply->text.bytes] = '\0';
        return OK;
    }
    if (!makes_one) return OK;
    id_hex(own->gen, sizeof own->gen, "", GEN_BYTES - 1);
    return bus_redis_ask(own, COMMAND("SET", key.text, own->gen), &reply, error);
}

/* The beats of the nodes that are named in the set. */
static enum err tell_beats(struct redis_bus *own, bus_fn beat, void *context, struct error *error) {
    struct key nodes = bus_redis_key(own, "nodes", "");
    const struct reply_value *reply;
    enum err err = bus_redis_ask(own, COMMAND("SMEMBERS", nodes.text), &reply, error);
    if (err != OK || reply->kind != REPLY_LIST) return err;
    char(*names)[BUS_NODE_BYTES] = mem_new(BUS_NODES_MAX, sizeof *names);
    size_t count = 0;
    for (uint32_t i = 0; i < reply->count && count < BUS_NODES_MAX; i++) {
        struct str name = reply[1 + i].text;
        if (reply[1 + i].kind != REPLY_TEXT || name.bytes >= BUS_NODE_BYTES || name.bytes == 0 ||
            memchr(name.at, '\0', name.bytes))
            continue;
        memcpy(names[count++], name.at, name.bytes);
    }
    for (size_t i = 0; i < count; i++) {
        struct key key = bus_redis_key(own, "node:", names[i]);
        bus_redis_add(own, COMMAND("GET", key.text));
    }
    err = count > 0 ? redis_send(own->redis, error) : OK;
    for (size_t i = 0; i < count && err == OK; i++) {
        err = redis_result(own->redis, 0, &reply, error);
        if (err == OK && reply->kind == REPLY_TEXT) beat(context, str_from(names[i]), reply->text);
        if (err == OK && reply->kind == REPLY_TEXT) *names[i] = '\0';
    }
    size_t silent = 0;
    for (size_t i = 0; i < count && err == OK; i++) {
        if (!*names[i]) continue;
        bus_redis_add(own, COMMAND("SREM", nodes.text, names[i]));
        silent++;
    }
    if (err == OK && silent > 0) err = redis_send(own->redis, error);
    if (err == OK) err = take_results(own, silent, error);
    free(names);
    return err;
}

/* The number of a line "name:number" of INFO; 0 if there is none. */
static uint64_t fact_of(struct str info, const char *name) {
    size_t bytes = strlen(name);
    uint64_t number = 0;
    for (struct str rest = info; rest.bytes > bytes;) {
        const char *end = memchr(rest.at, '\n', rest.bytes);
        struct str line = {rest.at, end ? (size_t)(end - rest.at) : rest.bytes};
        rest = str_skip(rest, end ? line.bytes + 1 : line.bytes);
        if (line.bytes > 0 && line.at[line.bytes - 1] == '\r') line.bytes--;
        bool is_it = line.bytes > bytes && memcmp(line.at, name, bytes) == 0 &&
                     line.at[bytes] == ':' && str_to_u64(str_skip(line, bytes + 1), &number);
        if (is_it) return number;
    }
    return 0;
}

/* A user without the right to ask learns nothing, and leads nevertheless. */
static void look_at_memory(struct redis_bus *own) {
    const struct reply_value *reply;
    struct error error;
    own->bus.bytes = own->bus.bytes_max = 0;
    enum err err = bus_redis_ask(own, COMMAND("INFO", "memory"), &reply, &error);
    if (err != OK || reply->kind != REPLY_TEXT) return;
    own->bus.bytes = fact_of(reply->text, "used_memory");
    own->bus.bytes_max = fact_of(reply->text, "maxmemory");
}

static enum err redis_look(struct bus *bus, bus_fn beat, void *context, bool *ret_was_emptied,
                           struct error *error) {
    struct redis_bus *own = of(bus);
    enum err err = bus_redis_keep_leading(own, error);
    if (err == OK) err = bus_redis_keep_results(own, error);
    if (err == OK) err = look_at_gen(own, true, ret_was_emptied, error);
    if (err == OK) look_at_memory(own);
    return err == OK ? tell_beats(own, beat, context, error) : err;
}

/* Its own stream goes unless the next start will want it. The key `server` may be gone, as after a
 * restart of Redis. */
static enum err redis_resign(struct bus *bus, struct error *error) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "server", ""),
               results = bus_redis_results_key(own, own->epoch);
    const struct reply_value *reply;
    enum err err = bus_redis_ask(
        own, COMMAND("XREAD", "COUNT", "1", "STREAMS", results.text, "0-0"), &reply, error);
    if (err == OK && reply->kind == REPLY_NONE)
        err = bus_redis_ask(own, COMMAND("DEL", results.text), &reply, error);
    if (err == OK) err = bus_redis_ask(own, COMMAND("GET", key.text), &reply, error);
    if (err != OK || reply->kind != REPLY_TEXT || !str_is(reply->text, own->leader)) return err;
    return bus_redis_ask(own, COMMAND("DEL", key.text), &reply, error);
}

/* --- work --- */

static void redis_put(struct bus *bus, const char *node, uint64_t round, uint64_t seq,
                      struct str pack) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "w:", node);
    char id[48];
    snprintf(id, sizeof id, "%" PRIu64 "-%" PRIu64, round, seq);
    const struct str words[] = {STR("XADD"), str_from(key.text), str_from(id), STR("p"), pack};
    redis_add(own->redis, words, 5);
    /* It makes the stream if that has expired, and then one that would stay for good. */
    bus_redis_add(own, COMMAND("PEXPIRE", key.text, STREAM_TTL_MS));
    own->queued += 2;
}

static void redis_trim(struct bus *bus, const char *node, uint64_t round, uint64_t seq) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "w:", node);
    char id[48];
    snprintf(id, sizeof id, "%" PRIu64 "-%" PRIu64, round, seq + 1);
    bus_redis_add(own, COMMAND("XTRIM", key.text, "MINID", id));
    bus_redis_add(own, COMMAND("PEXPIRE", key.text, STREAM_TTL_MS));
    own->queued += 2;
}

static void redis_forget(struct bus *bus, const char *node) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "w:", node);
    bus_redis_add(own, COMMAND("DEL", key.text));
    own->queued++;
}

/* A pack in a stream, and the name of the node that put it. */
struct entry {
    struct str id, node, pack;
};

/* One entry: [id, [name, value, …]] with "p" and maybe "n"; what it has not is empty. */
static void read_entry(const struct reply_value *at, struct entry *ret_entry) {
    *ret_entry = (struct entry){0};
    if (at->kind != REPLY_LIST || at->count != 2 || at[1].kind != REPLY_TEXT) return;
    ret_entry->id = at[1].text;
    if (at[2].kind != REPLY_LIST) return;
    const struct reply_value *field = at + 3;
    for (uint32_t i = 0; i + 1 < at[2].count; i += 2) {
        const struct reply_value *value = reply_behind(field);
        if (field->kind == REPLY_TEXT && value->kind == REPLY_TEXT) {
            if (str_is(field->text, "p")) ret_entry->pack = value->text;
            if (str_is(field->text, "n")) ret_entry->node = value->text;
        }
        field = reply_behind(value);
    }
}

typedef void (*entry_fn)(struct redis_bus *own, const struct entry *entry, bus_fn tell,
                         void *context, const char *node);

/* The reply is a list of [key, list of entries], of one stream. */
static void each_entry(struct redis_bus *own, const struct reply_value *reply, entry_fn each,
                       bus_fn tell, void *context, const char *node) {
    if (reply->kind != REPLY_LIST || reply->count == 0) return; /* none came in time */
    const struct reply_value *stream = reply + 1;
    if (stream->kind != REPLY_LIST || stream->count != 2) return;
    const struct reply_value *list = reply_behind(stream + 1);
    if (list->kind != REPLY_LIST) return;
    const struct reply_value *at = list + 1;
    for (uint32_t i = 0; i < list->count; i++, at = reply_behind(at)) {
        struct entry entry;
        read_entry(at, &entry);
        bool has_id = entry.id.bytes > 0 && entry.id.bytes < sizeof own->work_id;
        if (has_id) each(own, &entry, tell, context, node);
    }
}

static void add_read(struct redis_bus *own, const char *key, const char *from, int64_t wait_ms) {
    char wait[24], count[12];
    snprintf(wait, sizeof wait, "%" PRId64, wait_ms > 0 ? wait_ms : 1);
    snprintf(count, sizeof count, "%" PRIu32, own->at_once);
    bus_redis_add(own, COMMAND("XREAD", "COUNT", count, "BLOCK", wait, "STREAMS", key, from));
}

/* Takes the result of the read. Packs of many MiB may together be more than a reply may have, or
 * than comes in time, and one alone is not: after a failure fewer are asked for. */
static enum err take_read(struct redis_bus *own, int64_t wait_ms,
                          const struct reply_value **ret_reply, struct error *error) {
    enum err err = redis_result(own->redis, wait_ms, ret_reply, error);
    if (err == OK && own->at_once < AT_ONCE_MAX) own->at_once *= 2;
    if (err != OK) own->at_once = own->at_once > 4 ? own->at_once / 4 : 1;
    return err;
}

/* --- results --- */

static void take_result(struct redis_bus *own, const struct entry *entry, bus_fn tell,
                        void *context, const char *node) {
    (void)node;
    struct told *told = &own->told;
    told->ids = vec_grow(told->ids, told->count, &told->capacity, sizeof *told->ids);
    snprintf(told->ids[told->count++], sizeof *told->ids, "%.*s", STR_ARGS(entry->id));
    snprintf(own->result_id, sizeof own->result_id, "%.*s", STR_ARGS(entry->id));
    uint64_t put_ms = 0;
    size_t digits = 0;
    while (digits < entry->id.bytes && entry->id.at[digits] != '-') digits++;
    (void)!str_to_u64((struct str){entry->id.at, digits}, &put_ms);
    own->bus.waited_ms = own->now_ms > put_ms ? (int64_t)(own->now_ms - put_ms) : 0;
    tell(context, entry->node, entry->pack);
}

/* The time of Redis, before a read that may wait: a pack that comes meanwhile has not waited. */
static enum err take_time(struct redis_bus *own, struct error *error) {
    const struct reply_value *reply;
    uint64_t seconds = 0, microseconds = 0;
    enum err err = redis_result(own->redis, 0, &reply, error);
    bool has_both = err == OK && reply->kind == REPLY_LIST && reply->count == 2 &&
                    reply[1].kind == REPLY_TEXT && reply[2].kind == REPLY_TEXT &&
                    str_to_u64(reply[1].text, &seconds) && str_to_u64(reply[2].text, &microseconds);
    own->now_ms =
        has_both && seconds < UINT64_MAX / 2000 ? seconds * 1000 + microseconds / 1000 : 0;
    return err == ERR_DENIED ? OK : err;
}

static void redis_settle(struct bus *bus, uint64_t epoch, size_t count) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_results_key(own, epoch);
    if (count > own->told.count) count = own->told.count;
    if (count == 0) return;
    struct str *words = mem_new(count + 2, sizeof *words);
    words[0] = STR("XDEL");
    words[1] = str_from(key.text);
    for (size_t i = 0; i < count; i++) words[2 + i] = str_from(own->told.ids[i]);
    redis_add(own->redis, words, count + 2);
    own->queued++;
    free(words);
    own->told.count -= count;
    memmove(own->told.ids, own->told.ids + count, own->told.count * sizeof *own->told.ids);
}

static enum err redis_results(struct bus *bus, uint64_t epoch, bool from_start, int64_t wait_ms,
                              bus_fn pack, void *context, struct error *error) {
    struct redis_bus *own = of(bus);
    const struct reply_value *reply;
    struct key key = bus_redis_results_key(own, epoch);
    size_t deletes = own->queued;
    own->queued = 0;
    if (from_start) own->told.count = 0;
    if (from_start || !*own->result_id) snprintf(own->result_id, sizeof own->result_id, "0-0");
    bus_redis_add(own, COMMAND("TIME"));
    add_read(own, key.text, own->result_id, wait_ms);
    enum err err = redis_send(own->redis, error);
    if (err == OK) err = take_results(own, deletes, error);
    if (err == OK) err = take_time(own, error);
    if (err == OK) err = take_read(own, wait_ms, &reply, error);
    if (err == OK) each_entry(own, reply, take_result, pack, context, NULL);
    return err;
}

/* --- a node's side --- */

static enum err redis_beat(struct bus *bus, const char *node, struct str beat,
                           bool *ret_was_emptied, struct error *error) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "node:", node), nodes = bus_redis_key(own, "nodes", "");
    const struct str words[] = {STR("SET"), str_from(key.text), beat, STR("PX"), STR(SIGN_TTL_MS)};
    redis_add(own->redis, words, 5);
    /* A full queue takes no beat, but keeps the one before alive. */
    bus_redis_add(own, COMMAND("PEXPIRE", key.text, SIGN_TTL_MS));
    bus_redis_add(own, COMMAND("SADD", nodes.text, node));
    enum err err = redis_send(own->redis, error);
    if (err == OK) err = take_results(own, 3, error);
    return err == OK ? look_at_gen(own, false, ret_was_emptied, error) : err;
}

static void take_work(struct redis_bus *own, const struct entry *entry, bus_fn tell, void *context,
                      const char *node) {
    snprintf(own->work_id, sizeof own->work_id, "%.*s", STR_ARGS(entry->id));
    tell(context, str_from(node), entry->pack);
}

static enum err redis_work(struct bus *bus, const char *node, bool from_start, int64_t wait_ms,
                           bus_fn pack, void *context, struct error *error) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "w:", node);
    const struct reply_value *reply;
    char from[sizeof own->work_id];
    if (from_start || !*own->work_id) snprintf(own->work_id, sizeof own->work_id, "0-0");
    memcpy(from, own->work_id, sizeof from);
    add_read(own, key.text, from, wait_ms);
    enum err err = redis_send(own->redis, error);
    if (err == OK) err = take_read(own, wait_ms, &reply, error);
    if (err == OK) each_entry(own, reply, take_work, pack, context, node);
    return err;
}

static enum err redis_answer(struct bus *bus, const char *node, uint64_t epoch, struct str pack,
                             struct error *error) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_results_key(own, epoch);
    const struct reply_value *reply;
    const struct str words[] = {STR("XADD"), str_from(key.text), STR("NOMKSTREAM"), STR("*"),
                                STR("n"),    str_from(node),     STR("p"),          pack};
    redis_add(own->redis, words, 8);
    enum err err = redis_send(own->redis, error);
    if (err == OK) err = redis_result(own->redis, 0, &reply, error);
    if (err == OK && reply->kind == REPLY_NONE)
        err = err_set(error, ERR_NOT_FOUND, "no server reads the results of epoch %" PRIu64, epoch);
    return err;
}

static enum err redis_leave(struct bus *bus, const char *node, struct error *error) {
    struct redis_bus *own = of(bus);
    struct key key = bus_redis_key(own, "node:", node), nodes = bus_redis_key(own, "nodes", "");
    bus_redis_add(own, COMMAND("DEL", key.text));
    bus_redis_add(own, COMMAND("SREM", nodes.text, node));
    enum err err = redis_send(own->redis, error);
    return err == OK ? take_results(own, 2, error) : err;
}

static void redis_bus_close(struct bus *bus) {
    struct redis_bus *own = of(bus);
    redis_close(own->redis);
    free(own->told.ids);
    free(own);
}

static const struct bus_ops redis_ops = {.lead = redis_lead,
                                         .look = redis_look,
                                         .resign = redis_resign,
                                         .put = redis_put,
                                         .trim = redis_trim,
                                         .forget = redis_forget,
                                         .flush = redis_flush,
                                         .results = redis_results,
                                         .settle = redis_settle,
                                         .beat = redis_beat,
                                         .work = redis_work,
                                         .answer = redis_answer,
                                         .leave = redis_leave,
                                         .close = redis_bus_close};

static struct bus *open_bus(void *context) {
    const struct redis_options *options = context;
    struct redis_bus *own = mem_new(1, sizeof *own);
    own->bus.ops = &redis_ops;
    own->redis = redis_open(options);
    own->cluster = options->place.cluster;
    own->at_once = AT_ONCE_MAX;
    return &own->bus;
}

struct bus_place bus_redis_place(struct redis_options *options) {
    return (struct bus_place){options, open_bus};
}
