/* SPDX-License-Identifier: Apache-2.0 */

/* The thread that reads packs of results. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "workers/fleet/fleet_internal.h"

#include <stdlib.h>

#define WAIT_MS 250
#define AGAIN_MS 500

/* The berth of a record; NULL: its worker has no seat. */
static struct berth *berth_of(struct fleet_node *node, const struct pack_record *record) {
    return record->worker < node->berth_count ? node->berths[record->worker] : NULL;
}

/* A result that no job here waits for. The lock is held, and let go. */
static void take_unknown(struct fleet *fleet, struct berth *berth,
                         const struct worker_result *result, struct str line) {
    uint64_t id = fleet_adopt_answer(fleet, berth ? berth : fleet->berths[0], result, line);
    if (id)
        fleet_note_result(fleet, id);
    else
        fleet->status.late++;
}

static void take_result(struct fleet *fleet, struct fleet_node *node,
                        const struct pack_record *record) {
    struct worker_result result;
    struct str line;
    uint64_t id;
    struct berth *berth = berth_of(node, record);
    if (!pack_read_result(record, &result, &line)) return;
    if (job_set_take(&node->adopted, record->id, &id)) result.id = id;
    struct fleet_job *job = berth ? berth_take(berth, result.id) : NULL;
    if (!job) {
        take_unknown(fleet, berth, &result, line);
        return;
    }
    /* Packs are read in order: the node has all up to the one that brought this job. */
    if (job->round == node->round && job->seq > node->read_seq) node->read_seq = job->seq;
    node->results++;
    if (result.outcome == OUTCOME_DONE) berth->downs = 0;
    bool has_room_again = fleet->was_full && fleet->bytes < fleet->options.bytes_max / 8 * 7;
    if (has_room_again) fleet->was_full = false;
    free(job);
    fleet_note_result(fleet, result.id);
    pthread_mutex_unlock(&fleet->lock);
    berth_tell_result(berth, &result);
    for (uint32_t i = 0; has_room_again && i < fleet->berth_count; i++)
        berth_tell_room(fleet->berths[i]);
    pthread_mutex_lock(&fleet->lock);
}

static void take_down(struct fleet *fleet, struct fleet_node *node,
                      const struct pack_record *record) {
    struct str reason;
    struct berth *berth = berth_of(node, record);
    struct endings endings = {0};
    if (!berth || !pack_read_text(record, &reason)) return;
    if (berth->jobs.count > 0) berth->downs++;
    /* The runner takes the jobs back by itself. */
    berth_take_lost(berth, &endings, OUTCOME_RETURNED, NULL);
    berth->is_ready = berth->status.ready = false;
    berth->was_full = berth->is_falling = true;
    pack_bare(&node->out, PACK_CLEAR, berth->index, 0);
    node_added(fleet, node, true);
    if (reason.bytes > ERROR_TEXT_BYTES) reason.bytes = ERROR_TEXT_BYTES;
    char *text = mem_str(reason);
    pthread_mutex_unlock(&fleet->lock);
    free(endings.list);
    berth_tell_down(berth, text);
    free(text);
    pthread_mutex_lock(&fleet->lock);
    berth->is_falling = false;
}

static void take_delta(struct fleet *fleet, struct fleet_node *node,
                       const struct pack_record *record) {
    struct worker_delta delta = {.id = record->id};
    struct berth *berth = berth_of(node, record);
    if (!berth || !job_set_find(&berth->jobs, record->id) || !pack_read_text(record, &delta.chunk))
        return;
    pthread_mutex_unlock(&fleet->lock);
    berth_tell_delta(berth, &delta);
    pthread_mutex_lock(&fleet->lock);
}

/* Jobs of former rounds that the node does not have. */
static bool is_missing(const struct berth *berth, uint64_t id, const struct fleet_job *job) {
    (void)id;
    return job->round < berth->node->round && !job_set_find(&berth->node->held, job->wire_id);
}

static void take_held(struct fleet *fleet, struct fleet_node *node,
                      const struct pack_record *record) {
    struct str ids;
    size_t count;
    bool is_last;
    struct endings endings = {0};
    if (!pack_read_held(record, &ids, &count, &is_last)) return;
    for (size_t i = 0; i < count; i++) {
        uint64_t id = pack_held_id(ids, i);
        if (id != 0 && !job_set_find(&node->held, id)) job_set_put(&node->held, id, 0);
    }
    if (!is_last) return;
    for (size_t i = 0; i < node->berth_count; i++)
        if (node->berths[i])
            berth_take_lost(node->berths[i], &endings, OUTCOME_RETURNED, is_missing);
    log_info("event=node_synced node=%s held=%zu returned=%zu", node->node, node->held.count,
             endings.count);
    job_set_release(&node->held);
    node->is_synced = true;
    fleet->look_due_ns = 0; /* its seats become ready */
    pthread_cond_signal(&fleet->send);
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
}

static void take_bye(struct fleet *fleet, struct fleet_node *node) {
    struct endings endings = {0};
    log_info("event=node_left node=%s", node->node);
    node_release(fleet, node, &endings);
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
}

/* Counts the pack. False if it came before. The lock is held, and let go. */
static bool count_pack(struct fleet *fleet, struct fleet_node *node, const struct pack_head *head) {
    struct endings endings = {0};
    if (head->round != node->round) return head->round < node->round;
    if (head->seq <= node->result_seq) return false;
    bool has_gap = head->seq != node->result_seq + 1;
    node->result_seq = head->seq;
    if (!has_gap) return true;
    node_must_sync(fleet, node, &endings, "results did not come");
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
    return true;
}

static void take_record(struct fleet *fleet, struct fleet_node *node, const struct pack_head *head,
                        const struct pack_record *record) {
    bool is_current = head->round == node->round && !node->must_sync;
    if (record->kind == PACK_RESULT)
        take_result(fleet, node, record);
    else if (record->kind == PACK_DELTA && is_current)
        take_delta(fleet, node, record);
    else if (record->kind == PACK_DOWN)
        take_down(fleet, node, record);
    else if (record->kind == PACK_HELD && is_current)
        take_held(fleet, node, record);
    else if (record->kind == PACK_KEPT && is_current)
        fleet_take_kept(fleet, node, berth_of(node, record), record);
    else if (record->kind == PACK_BYE)
        take_bye(fleet, node);
}

/* A pack that a node put for a server before: of it count answers alone, whoever put it. The lock
 * is held, and let go. */
static void take_former(struct fleet *fleet, struct pack_reader *reader) {
    struct pack_record record;
    struct worker_result result;
    struct str line;
    while (fleet->is_adopting && pack_next(reader, &record))
        if (record.kind == PACK_RESULT && pack_read_result(&record, &result, &line))
            take_unknown(fleet, fleet->berths[0], &result, line);
}

static void take_current(struct fleet *fleet, struct str name, struct pack_reader *reader,
                         const struct pack_head *head) {
    struct pack_record record;
    struct endings endings = {0};
    struct fleet_node *node = node_find(fleet, name);
    /* Only this thread and the beats of fleet-send end a node, and a node that has ended stays in
     * the list until this thread has no pack of it. */
    if (!node || node->is_gone || !count_pack(fleet, node, head)) return;
    histogram_add(&fleet->status.result_waits, &nodes_wait_bounds,
                  (double)fleet->read_bus->waited_ms / 1e3);
    node->is_read = true;
    while (!node->is_gone && pack_next(reader, &record)) take_record(fleet, node, head, &record);
    node->is_read = false;
    if (!reader->is_bad) return;
    node_must_sync(fleet, node, &endings, "a pack of results is damaged");
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
}

static void take_pack(void *context, struct str name, struct str bytes) {
    struct fleet *fleet = context;
    struct pack_reader reader;
    struct pack_head head;
    fleet->has_read_any = true;
    if (pack_open(&reader, &head, bytes)) {
        pthread_mutex_lock(&fleet->lock);
        if (head.round >> 24 == fleet->epoch)
            take_current(fleet, name, &reader, &head);
        else
            take_former(fleet, &reader);
        pthread_mutex_unlock(&fleet->lock);
    }
    fleet_note_told(fleet);
}

/* Reads what has come. Packs whose results are durable leave the bus. */
static enum err read_some(struct fleet *fleet, uint64_t epoch, bool from_start,
                          struct error *error) {
    struct bus *bus = fleet->read_bus;
    size_t settled = fleet_count_settled(fleet);
    if (settled > 0) bus->ops->settle(bus, epoch, settled);
    /* Packs are told again; results that are not durable yet count for the first of them. */
    if (from_start) fleet->told.pack_count = 0;
    fleet->has_read_any = false;
    return bus->ops->results(bus, epoch, from_start, WAIT_MS, take_pack, fleet, error);
}

void *fleet_read_main(void *context) {
    struct fleet *fleet = context;
    struct error error;
    pthread_mutex_lock(&fleet->lock);
    while (!fleet->is_stopping) {
        uint64_t epoch = fleet->started_ns > 0 ? fleet->epoch : 0;
        bool from_start = fleet->from_start;
        fleet->from_start = false;
        pthread_mutex_unlock(&fleet->lock);
        enum err err = epoch ? read_some(fleet, epoch, from_start, &error) : OK;
        if (err != OK || !epoch) clock_sleep_ms(epoch ? AGAIN_MS : 20);
        pthread_mutex_lock(&fleet->lock);
        if (err != OK || (!epoch && from_start)) fleet->from_start = true;
        if (err == OK && epoch && !fleet->has_read_any) fleet->has_read_all = true;
    }
    uint64_t epoch = fleet->started_ns > 0 ? fleet->epoch : 0;
    pthread_mutex_unlock(&fleet->lock);
    size_t settled = fleet_count_settled(fleet);
    if (epoch && settled > 0) fleet->read_bus->ops->settle(fleet->read_bus, epoch, settled);
    (void)!fleet->read_bus->ops->flush(fleet->read_bus, &error);
    return NULL;
}
