/* SPDX-License-Identifier: Apache-2.0 */

/* The thread that puts packs of work and reads beats. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"
#include "workers/fleet/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 500
#define AGAIN_MS 1000
#define ROUND_BITS 24

/* Begins the round that the node waits for. The lock is held. */
static void begin_round(struct fleet *fleet, struct fleet_node *node) {
    struct buf pack;
    node->round = fleet->epoch << ROUND_BITS | ++fleet->round_count;
    node->work_seq = 1;
    node->result_seq = node->read_seq = node->trimmed_seq = 0;
    node->synced_ns = clock_monotonic_ns();
    node->behind_ns = 0;
    node->must_sync = false;
    job_set_release(&node->held);
    fleet->status.rounds++;
    /* Jobs that were not put yet are not among those that the node will tell. */
    pack_begin(&node->out);
    node->out_due_ns = SYNC_NEVER;
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    pack_sync(&pack, node->round, node->keeps_jobs, fleet->is_adopting);
    pack_seal(&pack, node->round, node->work_seq);
    fleet->send_bus->ops->put(fleet->send_bus, node->node, node->round, 1, buf_str(&pack));
    buf_release(&pack);
}

/* Queues what is due for the node at the bus, which this thread owns. The lock is held. */
static void put_due(struct fleet *fleet, struct fleet_node *node, int64_t now_ns) {
    struct bus *bus = fleet->send_bus;
    if (node->must_sync) begin_round(fleet, node);
    if (!pack_is_empty(&node->out) && node->out_due_ns <= now_ns) {
        pack_seal(&node->out, node->round, ++node->work_seq);
        bus->ops->put(bus, node->node, node->round, node->work_seq, buf_str(&node->out));
        pack_begin(&node->out);
        node->out_due_ns = SYNC_NEVER;
    }
    if (node->read_seq > node->trimmed_seq) {
        bus->ops->trim(bus, node->node, node->round, node->read_seq);
        node->trimmed_seq = node->read_seq;
    }
}

/* Puts what is due, and what was queued before (`has_any`). False: the bus did not take all. The
 * lock is held, and let go for the bus. */
static bool send_due(struct fleet *fleet, bool has_any) {
    int64_t now_ns = clock_monotonic_ns();
    struct error error;
    struct endings endings = {0};
    for (struct fleet_node *node = fleet->nodes; node; node = node->next) {
        if (node->is_gone) continue;
        has_any = has_any || node->must_sync || node->out_due_ns <= now_ns ||
                  node->read_seq > node->trimmed_seq;
        put_due(fleet, node, now_ns);
    }
    if (!has_any) return true;
    pthread_mutex_unlock(&fleet->lock);
    enum err err = fleet->send_bus->ops->flush(fleet->send_bus, &error);
    pthread_mutex_lock(&fleet->lock);
    if (err == OK) return true;
    fleet_note(fleet, err, &error);
    for (struct fleet_node *node = fleet->nodes; node; node = node->next)
        node_must_sync(fleet, node, &endings, "the queue did not take a pack");
    fleet->look_due_ns = sync_deadline_ns(AGAIN_MS);
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
    return false;
}

/* Queues that the bus forgets the nodes that are gone, once their beats are, too: else they would
 * seem to be new ones. True if there are any. The lock is held. */
static bool forget_gone(struct fleet *fleet) {
    bool has_any = false;
    for (struct fleet_node *node = fleet->nodes; node; node = node->next) {
        node->is_forgotten = node->is_gone && !node->is_read && !node->is_seen;
        if (node->is_forgotten) fleet->send_bus->ops->forget(fleet->send_bus, node->node);
        has_any = has_any || node->is_forgotten;
    }
    return has_any;
}

/* The bus has forgotten them. The lock is held. */
static void drop_forgotten(struct fleet *fleet) {
    for (struct fleet_node **at = &fleet->nodes; *at;) {
        struct fleet_node *node = *at;
        if (!node->is_forgotten) {
            at = &node->next;
            continue;
        }
        *at = node->next;
        node_free(node);
    }
}

static enum err lead(struct fleet *fleet, uint64_t *ret_epoch, bool *ret_follows,
                     struct error *error) {
    const struct fleet_options *options = &fleet->options;
    if (options->may_lead && !options->may_lead(options->copy))
        return err_set(
            error, ERR_UNAVAILABLE,
            "the copy of this server is not stored now: another one may have taken over");
    return fleet->send_bus->ops->lead(fleet->send_bus, fleet->id, ret_epoch, ret_follows, error);
}

/* Leads, looks at the beats and at what follows from them. The lock is held, and let go. */
static void look(struct fleet *fleet) {
    struct error error;
    struct endings endings = {0};
    struct bus *bus = fleet->send_bus;
    uint64_t epoch = fleet->epoch;
    bool was_emptied = false;
    for (struct fleet_node *node = fleet->nodes; node; node = node->next) node->is_seen = false;
    pthread_mutex_unlock(&fleet->lock);
    bool follows = fleet->follows;
    enum err err = epoch ? OK : lead(fleet, &epoch, &follows, &error);
    if (err == OK) {
        pthread_mutex_lock(&fleet->lock);
        fleet->epoch = epoch;
        fleet->follows = follows;
        pthread_mutex_unlock(&fleet->lock);
        err = bus->ops->look(bus, fleet_take_beat, fleet, &was_emptied, &error);
    }
    pthread_mutex_lock(&fleet->lock);
    fleet_note(fleet, err, &error);
    fleet->status.queue_bytes = err == OK ? bus->bytes : 0;
    fleet->status.queue_bytes_max = err == OK ? bus->bytes_max : 0;
    /* Nodes obey no epoch before that of the other server: it leads anew, or not at all. */
    if (err == ERR_CONFLICT) fleet->epoch = 0;
    for (struct fleet_node *node = fleet->nodes; node && err != OK; node = node->next) {
        node->trimmed_seq = 0; /* an older copy of the queue has packs again that had gone */
        if (err == ERR_CONFLICT) node_must_sync(fleet, node, &endings, "another server led");
    }
    fleet->look_due_ns = sync_deadline_ns(err == OK ? LOOK_MS : AGAIN_MS);
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    if (err == OK) fleet_check_nodes(fleet, was_emptied);
    fleet_check_adoption(fleet);
    pthread_mutex_lock(&fleet->lock);
    if (err != OK) return;
    bool has_gone = forget_gone(fleet);
    if (send_due(fleet, has_gone) && has_gone) drop_forgotten(fleet);
}

static int64_t next_due(const struct fleet *fleet) {
    int64_t due_ns = fleet->look_due_ns;
    for (const struct fleet_node *node = fleet->nodes; node; node = node->next) {
        if (node->is_gone) continue;
        if (node->must_sync) return 0;
        if (node->out_due_ns < due_ns) due_ns = node->out_due_ns;
    }
    return due_ns;
}

void fleet_end(struct fleet *fleet) {
    struct error error;
    struct bus *bus = fleet->send_bus;
    if (!fleet->epoch) return;
    for (struct fleet_node *node = fleet->nodes; node; node = node->next)
        bus->ops->forget(bus, node->node);
    if (bus->ops->flush(bus, &error) == OK) (void)!bus->ops->resign(bus, &error);
}

void *fleet_send_main(void *context) {
    struct fleet *fleet = context;
    pthread_mutex_lock(&fleet->lock);
    while (!fleet->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        if (fleet->look_due_ns <= now_ns)
            look(fleet);
        else if (fleet->status.is_reached && next_due(fleet) <= now_ns)
            (void)send_due(fleet, false);
        else
            (void)sync_wait_until(&fleet->send, &fleet->lock,
                                  fleet->status.is_reached ? next_due(fleet) : fleet->look_due_ns);
    }
    pthread_mutex_unlock(&fleet->lock);
    return NULL;
}
