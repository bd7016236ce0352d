/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/bus_memory.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pack_kept {
    struct pack_kept *next;
    char node[BUS_NODE_BYTES];
    uint64_t round, seq, epoch; /* epoch of a result */
    bool is_told;
    int64_t put_ns;
    size_t bytes;
    char at[];
};

struct node_kept {
    struct node_kept *next;
    char name[BUS_NODE_BYTES];
    char *beat; /* NULL: none */
    size_t beat_bytes;
    int64_t beat_ns;
};

struct bus_memory {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool is_away;
    bool loses_trim; /* the next one */
    uint64_t life;   /* raised when it is emptied */
    struct pack_kept *work, *results;
    struct node_kept *nodes;
    char leader[256], last[256];
    uint64_t leader_epoch, last_epoch;
    int64_t leader_ns;
};

struct memory_bus {
    struct bus bus;
    struct bus_memory *memory;
    uint64_t life;  /* that of the last look or beat; 0: none */
    uint64_t epoch; /* what `lead` gave it */
    char id[256];
    uint64_t round, seq; /* the last pack of work that was told */
    bool failed;         /* a put, trim or forget of the next flush */
    bool was_away;       /* a settle did not come: the next look at the results fails */
};

static struct memory_bus *of(struct bus *bus) {
    return (struct memory_bus *)bus;
}

/* Locks; ERR_UNAVAILABLE, without the lock, while the memory is away. */
static enum err enter(struct bus_memory *memory, struct error *error) {
    pthread_mutex_lock(&memory->lock);
    if (!memory->is_away) return OK;
    pthread_mutex_unlock(&memory->lock);
    return err_set(error, ERR_UNAVAILABLE, "the bus is away");
}

static enum err leave(struct bus_memory *memory, enum err err) {
    pthread_mutex_unlock(&memory->lock);
    return err;
}

static bool is_of(const struct pack_kept *pack, const char *node) {
    return strcmp(pack->node, node) == 0;
}

static void drop_packs(struct pack_kept **list) {
    while (*list) {
        struct pack_kept *pack = *list;
        *list = pack->next;
        free(pack);
    }
}

static void append(struct pack_kept **list, const char *node, struct str bytes,
                   const struct pack_kept *from) {
    struct pack_kept *pack = mem_alloc(sizeof *pack + bytes.bytes);
    *pack = *from;
    pack->next = NULL;
    pack->put_ns = clock_monotonic_ns();
    pack->bytes = bytes.bytes;
    snprintf(pack->node, sizeof pack->node, "%s", node);
    if (bytes.bytes > 0) memcpy(pack->at, bytes.at, bytes.bytes);
    while (*list) list = &(*list)->next;
    *list = pack;
}

/* --- the server's side --- */

static bool is_led_by_another(const struct bus_memory *memory, const char *id) {
    return *memory->leader && strcmp(memory->leader, id) != 0 &&
           clock_monotonic_ns() - memory->leader_ns < BUS_LEAD_TTL_MS * INT64_C(1000000);
}

static enum err memory_lead(struct bus *bus, const char *id, uint64_t *ret_epoch, bool *ret_follows,
                            struct error *error) {
    struct bus_memory *memory = of(bus)->memory;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    if (is_led_by_another(memory, id))
        return leave(memory, err_set(error, ERR_CONFLICT, "another server leads"));
    snprintf(memory->leader, sizeof memory->leader, "%s", id);
    snprintf(of(bus)->id, sizeof of(bus)->id, "%s", id);
    memory->leader_ns = clock_monotonic_ns();
    of(bus)->epoch = memory->leader_epoch = ++memory->last_epoch;
    *ret_follows = strcmp(memory->last, id) == 0;
    snprintf(memory->last, sizeof memory->last, "%s", id);
    if (!*ret_follows) drop_packs(&memory->results);
    for (struct pack_kept *pack = memory->results; pack; pack = pack->next) {
        pack->epoch = memory->leader_epoch;
        pack->is_told = false;
    }
    *ret_epoch = memory->leader_epoch;
    return leave(memory, OK);
}

struct beat_told {
    char node[BUS_NODE_BYTES];
    char *bytes;
    size_t count;
};

/* The beats that count, for the caller to free. */
static struct beat_told *copy_beats(const struct bus_memory *memory, size_t *ret_count) {
    struct beat_told *told = NULL;
    size_t count = 0, capacity = 0;
    for (const struct node_kept *node = memory->nodes; node; node = node->next) {
        if (!node->beat || memory->leader_ns - node->beat_ns >= BUS_BEAT_TTL_MS * INT64_C(1000000))
            continue;
        told = vec_grow(told, count, &capacity, sizeof *told);
        struct beat_told *one = &told[count++];
        memcpy(one->node, node->name, sizeof one->node);
        one->bytes = mem_str((struct str){node->beat, node->beat_bytes});
        one->count = node->beat_bytes;
    }
    *ret_count = count;
    return told;
}

static enum err memory_look(struct bus *bus, bus_fn beat, void *context, bool *ret_was_emptied,
                            struct error *error) {
    struct memory_bus *own = of(bus);
    struct bus_memory *memory = own->memory;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    if (is_led_by_another(memory, own->id) ||
        (*memory->leader && memory->leader_epoch != own->epoch))
        return leave(memory, err_set(error, ERR_CONFLICT, "another server leads"));
    snprintf(memory->leader, sizeof memory->leader, "%s", own->id);
    memory->leader_epoch = own->epoch;
    memory->leader_ns = clock_monotonic_ns();
    *ret_was_emptied = own->life != 0 && own->life != memory->life;
    own->life = memory->life;
    bus->bytes = 0;
    for (struct pack_kept *pack = memory->work; pack; pack = pack->next) bus->bytes += pack->bytes;
    for (struct pack_kept *pack = memory->results; pack; pack = pack->next)
        bus->bytes += pack->bytes;
    size_t count;
    struct beat_told *told = copy_beats(memory, &count);
    pthread_mutex_unlock(&memory->lock);
    for (size_t i = 0; i < count; i++) {
        beat(context, str_from(told[i].node), (struct str){told[i].bytes, told[i].count});
        free(told[i].bytes);
    }
    free(told);
    return OK;
}

static enum err memory_resign(struct bus *bus, struct error *error) {
    struct bus_memory *memory = of(bus)->memory;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    if (memory->leader_epoch == of(bus)->epoch) *memory->leader = '\0';
    return leave(memory, OK);
}

static void memory_put(struct bus *bus, const char *node, uint64_t round, uint64_t seq,
                       struct str bytes) {
    struct bus_memory *memory = of(bus)->memory;
    struct error error;
    if (enter(memory, &error) != OK) {
        of(bus)->failed = true;
        return;
    }
    for (const struct pack_kept *pack = memory->work; pack; pack = pack->next)
        if (is_of(pack, node) &&
            (pack->round > round || (pack->round == round && pack->seq >= seq)))
            of(bus)->failed = true;
    if (!of(bus)->failed)
        append(&memory->work, node, bytes, &(struct pack_kept){.round = round, .seq = seq});
    pthread_mutex_unlock(&memory->lock);
    pthread_cond_broadcast(&memory->change);
}

static void memory_trim(struct bus *bus, const char *node, uint64_t round, uint64_t seq) {
    struct bus_memory *memory = of(bus)->memory;
    struct error error;
    if (enter(memory, &error) != OK) {
        of(bus)->failed = true;
        return;
    }
    bool is_lost = memory->loses_trim;
    memory->loses_trim = false;
    if (is_lost) of(bus)->failed = true;
    for (struct pack_kept **at = &memory->work; *at && !is_lost;) {
        struct pack_kept *pack = *at;
        if (is_of(pack, node) &&
            (pack->round < round || (pack->round == round && pack->seq <= seq))) {
            *at = pack->next;
            free(pack);
        } else {
            at = &pack->next;
        }
    }
    pthread_mutex_unlock(&memory->lock);
}

static void memory_forget(struct bus *bus, const char *node) {
    memory_trim(bus, node, UINT64_MAX, UINT64_MAX);
}

static enum err memory_flush(struct bus *bus, struct error *error) {
    bool failed = of(bus)->failed;
    of(bus)->failed = false;
    return failed ? err_set(error, ERR_UNAVAILABLE, "the bus did not take a pack") : OK;
}

/* The first pack of results of the epoch that was not told; NULL if there is none. */
static struct pack_kept *next_result(struct bus_memory *memory, uint64_t epoch) {
    struct pack_kept *pack = memory->results;
    while (pack && (pack->is_told || pack->epoch != epoch)) pack = pack->next;
    return pack;
}

static enum err memory_results(struct bus *bus, uint64_t epoch, bool from_start, int64_t wait_ms,
                               bus_fn tell, void *context, struct error *error) {
    struct bus_memory *memory = of(bus)->memory;
    int64_t due_ns = sync_deadline_ns(wait_ms);
    struct pack_kept *pack;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    if (of(bus)->was_away) {
        of(bus)->was_away = false;
        return leave(memory, err_set(error, ERR_UNAVAILABLE, "the bus was away"));
    }
    for (pack = memory->results; pack && from_start; pack = pack->next) pack->is_told = false;
    while (!(pack = next_result(memory, epoch)) &&
           sync_wait_until(&memory->change, &memory->lock, due_ns))
        continue;
    for (; pack; pack = next_result(memory, epoch)) {
        char node[BUS_NODE_BYTES];
        char *copy = mem_str((struct str){pack->at, pack->bytes});
        size_t bytes = pack->bytes;
        snprintf(node, sizeof node, "%s", pack->node);
        pack->is_told = true;
        bus->waited_ms = (clock_monotonic_ns() - pack->put_ns) / 1000000;
        pthread_mutex_unlock(&memory->lock);
        tell(context, str_from(node), (struct str){copy, bytes});
        free(copy);
        pthread_mutex_lock(&memory->lock);
    }
    return leave(memory, OK);
}

static void memory_settle(struct bus *bus, uint64_t epoch, size_t count) {
    struct bus_memory *memory = of(bus)->memory;
    struct error error;
    if (enter(memory, &error) != OK) {
        of(bus)->was_away = true; /* as a connection that was lost with what it was to send */
        return;
    }
    for (struct pack_kept **at = &memory->results; *at && count > 0;) {
        struct pack_kept *pack = *at;
        if (pack->is_told && pack->epoch == epoch) {
            *at = pack->next;
            free(pack);
            count--;
        } else {
            at = &pack->next;
        }
    }
    pthread_mutex_unlock(&memory->lock);
}

/* --- a node's side --- */

static struct node_kept *node_of(struct bus_memory *memory, const char *name) {
    for (struct node_kept *node = memory->nodes; node; node = node->next)
        if (strcmp(node->name, name) == 0) return node;
    struct node_kept *node = mem_new(1, sizeof *node);
    snprintf(node->name, sizeof node->name, "%s", name);
    node->next = memory->nodes;
    memory->nodes = node;
    return node;
}

static enum err memory_beat(struct bus *bus, const char *name, struct str beat,
                            bool *ret_was_emptied, struct error *error) {
    struct memory_bus *own = of(bus);
    enum err err = enter(own->memory, error);
    if (err != OK) return err;
    struct node_kept *node = node_of(own->memory, name);
    free(node->beat);
    node->beat = mem_str(beat);
    node->beat_bytes = beat.bytes;
    node->beat_ns = clock_monotonic_ns();
    *ret_was_emptied = own->life != 0 && own->life != own->memory->life;
    own->life = own->memory->life;
    return leave(own->memory, OK);
}

/* The first pack for the node behind the last one that was told; NULL if none is there. */
static const struct pack_kept *next_work(const struct memory_bus *own, const char *node) {
    for (const struct pack_kept *pack = own->memory->work; pack; pack = pack->next)
        if (is_of(pack, node) &&
            (pack->round > own->round || (pack->round == own->round && pack->seq > own->seq)))
            return pack;
    return NULL;
}

static enum err memory_work(struct bus *bus, const char *node, bool from_start, int64_t wait_ms,
                            bus_fn tell, void *context, struct error *error) {
    struct memory_bus *own = of(bus);
    struct bus_memory *memory = own->memory;
    int64_t due_ns = sync_deadline_ns(wait_ms);
    const struct pack_kept *pack;
    if (from_start) own->round = own->seq = 0;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    while (!(pack = next_work(own, node)) &&
           sync_wait_until(&memory->change, &memory->lock, due_ns))
        continue;
    for (; pack; pack = next_work(own, node)) {
        char *copy = mem_str((struct str){pack->at, pack->bytes});
        size_t bytes = pack->bytes;
        own->round = pack->round;
        own->seq = pack->seq;
        pthread_mutex_unlock(&memory->lock);
        tell(context, str_from(node), (struct str){copy, bytes});
        free(copy);
        pthread_mutex_lock(&memory->lock);
    }
    return leave(memory, OK);
}

static enum err memory_answer(struct bus *bus, const char *node, uint64_t epoch, struct str bytes,
                              struct error *error) {
    struct bus_memory *memory = of(bus)->memory;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    if (!*memory->leader || memory->leader_epoch != epoch)
        return leave(memory, err_set(error, ERR_NOT_FOUND, "no server reads the results"));
    append(&memory->results, node, bytes, &(struct pack_kept){.epoch = epoch});
    pthread_mutex_unlock(&memory->lock);
    pthread_cond_broadcast(&memory->change);
    return OK;
}

static enum err memory_leave(struct bus *bus, const char *name, struct error *error) {
    struct bus_memory *memory = of(bus)->memory;
    enum err err = enter(memory, error);
    if (err != OK) return err;
    struct node_kept *node = node_of(memory, name);
    free(node->beat);
    node->beat = NULL;
    return leave(memory, OK);
}

static void memory_close(struct bus *bus) {
    free(of(bus));
}

static const struct bus_ops memory_ops = {.lead = memory_lead,
                                          .look = memory_look,
                                          .resign = memory_resign,
                                          .put = memory_put,
                                          .trim = memory_trim,
                                          .forget = memory_forget,
                                          .flush = memory_flush,
                                          .results = memory_results,
                                          .settle = memory_settle,
                                          .beat = memory_beat,
                                          .work = memory_work,
                                          .answer = memory_answer,
                                          .leave = memory_leave,
                                          .close = memory_close};

/* --- the memory --- */

static struct bus *open_bus(void *context) {
    struct memory_bus *own = mem_new(1, sizeof *own);
    own->bus.ops = &memory_ops;
    own->memory = context;
    return &own->bus;
}

struct bus_memory *bus_memory_open(void) {
    struct bus_memory *memory = mem_new(1, sizeof *memory);
    pthread_mutex_init(&memory->lock, NULL);
    sync_cond_init(&memory->change);
    memory->life = 1;
    return memory;
}

struct bus_place bus_memory_place(struct bus_memory *memory) {
    return (struct bus_place){memory, open_bus};
}

static void forget_all(struct bus_memory *memory) {
    drop_packs(&memory->work);
    drop_packs(&memory->results);
    while (memory->nodes) {
        struct node_kept *node = memory->nodes;
        memory->nodes = node->next;
        free(node->beat);
        free(node);
    }
    *memory->leader = *memory->last = '\0';
}

void bus_memory_close(struct bus_memory *memory) {
    if (!memory) return;
    forget_all(memory);
    pthread_cond_destroy(&memory->change);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

void bus_memory_set_away(struct bus_memory *memory, bool is_away) {
    pthread_mutex_lock(&memory->lock);
    memory->is_away = is_away;
    pthread_mutex_unlock(&memory->lock);
}

void bus_memory_empty(struct bus_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    forget_all(memory);
    memory->life++;
    pthread_mutex_unlock(&memory->lock);
}

void bus_memory_lose_work(struct bus_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    drop_packs(&memory->work);
    pthread_mutex_unlock(&memory->lock);
}

void bus_memory_lose_trim(struct bus_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    memory->loses_trim = true;
    pthread_mutex_unlock(&memory->lock);
}

void bus_memory_lose_results(struct bus_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    drop_packs(&memory->results);
    pthread_mutex_unlock(&memory->lock);
}

size_t bus_memory_packs(struct bus_memory *memory) {
    size_t count = 0;
    pthread_mutex_lock(&memory->lock);
    for (const struct pack_kept *pack = memory->work; pack; pack = pack->next) count++;
    for (const struct pack_kept *pack = memory->results; pack; pack = pack->next) count++;
    pthread_mutex_unlock(&memory->lock);
    return count;
}
