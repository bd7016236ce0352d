/* SPDX-License-Identifier: Apache-2.0 */

/* What follows from beats: nodes come, are ready, fall silent. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"
#include "workers/fleet/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define BEHIND_MS 8000 /* for packs that a node should have read, or whose results should be here */
#define SYNC_MS 8000   /* for the answer to a new round */

/* --- models and seats --- */

/* A lasting copy of the name; NULL if there are too many. The lock is held. */
static const char *keep_name(struct fleet *fleet, struct str name) {
    for (size_t i = 0; i < fleet->name_count; i++)
        if (str_is(name, fleet->names[i])) return fleet->names[i];
    if (fleet->name_count == FLEET_NAMES_MAX) return NULL;
    return fleet->names[fleet->name_count++] = mem_str(name);
}

/* A node that serves the name with other weights; NULL if there is none. The lock is held. */
static const struct fleet_node *find_other_weights(const struct fleet *fleet,
                                                   const struct berth *own,
                                                   const struct beat_model *model) {
    for (uint32_t i = 0; i < fleet->berth_count && model->has_weights; i++) {
        const struct berth *berth = fleet->berths[i];
        if (berth == own || !berth->node) continue;
        for (size_t at = 0; at < berth->model_count; at++) {
            const struct fleet_model *other = &berth->models[at];
            if (other->has_weights && str_equals(other->served.name, model->name) &&
                memcmp(other->weights, model->weights, sizeof other->weights) != 0)
                return berth->node;
        }
    }
    return NULL;
}

/* True if the model has other weights than at the nodes that serve its name already: one batch is
 * never answered by two models. The lock is held. */
static bool has_other_weights(const struct fleet *fleet, struct berth *berth,
                              const struct beat_model *model) {
    const struct fleet_node *other = find_other_weights(fleet, berth, model);
    if (!other) return false;
    snprintf(berth->conflict, sizeof berth->conflict,
             "its weights of '%.*s' differ from those of the node %.64s",
             (int)(model->name.bytes < 64 ? model->name.bytes : 64), model->name.at, other->node);
    return true;
}

static void take_models(struct fleet *fleet, struct berth *berth, const struct beat_worker *from) {
    bool had_conflict = *berth->conflict != '\0';
    if (from->model_count == 0 && !from->knows_names) return; /* it loads: the old names stay */
    berth->model_count = 0;
    *berth->conflict = '\0';
    for (size_t i = 0; i < from->model_count; i++) {
        const struct beat_model *model = &from->models[i];
        const char *name = keep_name(fleet, model->name);
        if (!name || has_other_weights(fleet, berth, model)) continue;
        struct fleet_model *own = &berth->models[berth->model_count++];
        own->served = (struct worker_model){.name = str_from(name),
                                            .created_unix_s = model->created_unix_s,
                                            .context_tokens_max = model->context_tokens_max,
                                            .generates = model->generates,
                                            .embeds = model->embeds,
                                            .decides = model->decides};
        own->has_identity = model->has_identity;
        memcpy(own->identity, model->identity, sizeof own->identity);
        own->has_weights = model->has_weights;
        memcpy(own->weights, model->weights, sizeof own->weights);
    }
    if (*berth->conflict && !had_conflict)
        log_warn("event=weights_differ node=%s error=\"%s\"", berth->node->node, berth->conflict);
}

static void take_status(struct berth *berth, const struct beat_worker *from) {
    struct worker_status *status = &berth->status;
    size_t bytes =
        from->text.bytes < sizeof status->text ? from->text.bytes : sizeof status->text - 1;
    memcpy(status->text, from->text.bytes ? from->text.at : "", bytes);
    status->text[bytes] = '\0';
    status->ready = from->ready;
    status->is_parked = from->is_parked;
    status->is_failed = from->is_failed;
    status->knows_names = from->knows_names;
    status->running = from->running;
    status->waiting = from->waiting;
    status->restarts = from->restarts;
    status->steps = from->steps;
    status->step_age_ms = from->step_age_ms;
    status->prompt_tokens = from->prompt_tokens;
    status->cached_tokens = from->cached_tokens;
    status->completion_tokens = from->completion_tokens;
    status->memory_bytes = from->memory_bytes;
    status->kv_used = from->kv_permille / 1000.0;
    status->is_reached = true;
    if (!*berth->conflict) return;
    snprintf(status->text, sizeof status->text, "%s", berth->conflict);
    if (berth->model_count == 0) status->ready = false;
}

/* How well a free seat suits the worker; 0: not at all. The lock is held. */
static int suits(const struct berth *berth, const struct beat_worker *worker) {
    if (berth->node || berth->is_closed || berth->worker.ops->shapes != worker->shapes) return 0;
    if (berth->model_count == 0) return 2;
    return worker->model_count > 0 &&
                   str_equals(berth->models[0].served.name, worker->models[0].name)
               ? 3
               : 1;
}

/* A seat for the worker: a free one of its model, one that never had any, a new one, or any free
 * one. NULL if there is none. The lock is held, and let go. */
static struct berth *find_seat(struct fleet *fleet, const struct beat_worker *worker) {
    struct berth *best = NULL;
    for (uint32_t i = 0; i < fleet->berth_count; i++)
        if (suits(fleet->berths[i], worker) > (best ? suits(best, worker) : 0))
            best = fleet->berths[i];
    if (best && suits(best, worker) > 1) return best;
    pthread_mutex_unlock(&fleet->lock);
    struct berth *opened = berth_open(fleet, (enum shape_handling)worker->shapes);
    pthread_mutex_lock(&fleet->lock);
    return opened ? opened : best;
}

/* --- beats --- */

/* Letters, digits, ".", "_" and "-". */
static bool is_node_name(struct str name) {
    if (name.bytes == 0 || name.bytes >= BUS_NODE_BYTES) return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
        if (!is_good) return false;
    }
    return true;
}

static void copy_text(char *ret_text, size_t text_bytes, struct str from) {
    size_t count = 0;
    for (size_t i = 0; i < from.bytes && count + 1 < text_bytes; i++) {
        char c = from.at[i];
        ret_text[count++] = c > ' ' && c < 127 && c != '"' && c != '\\' ? c : '_';
    }
    ret_text[count] = '\0';
}

static size_t count_seats(const struct fleet_node *node) {
    size_t seats = 0;
    for (size_t i = 0; i < node->berth_count; i++) seats += node->berths[i] != NULL;
    return seats;
}

/* Seats for the node's workers that have none: all, or those for which none was free before. The
 * lock is held, and let go. */
static void give_seats(struct fleet *fleet, struct fleet_node *node, const struct beat *beat) {
    for (size_t i = 0; i < node->berth_count && i < beat->worker_count; i++) {
        struct berth *berth = node->berths[i] ? NULL : find_seat(fleet, &beat->workers[i]);
        if (!berth || node->is_gone) continue; /* it has said goodbye meanwhile */
        node->berths[i] = berth;
        berth->node = node;
        berth->index = (uint8_t)i;
        berth->was_full = true;
    }
}

/* A worker without a seat gets the next one that is free. The lock is held, and let go. */
static void seat_rest(struct fleet *fleet, struct fleet_node *node, const struct beat *beat) {
    size_t before = count_seats(node);
    if (before == node->berth_count) return;
    give_seats(fleet, node, beat);
    size_t seats = count_seats(node);
    if (seats > before)
        log_info("event=node_seated node=%s workers=%zu seats=%zu", node->node, node->berth_count,
                 seats);
}

/* A node that was not known. The lock is held, and let go. */
static struct fleet_node *adopt(struct fleet *fleet, struct str name, const struct beat *beat) {
    struct fleet_node *node = mem_new(1, sizeof *node);
    memcpy(node->node, name.at, name.bytes);
    copy_text(node->name, sizeof node->name, beat->name);
    copy_text(node->version, sizeof node->version, beat->version);
    buf_init(&node->out, PACK_BYTES_MAX);
    pack_begin(&node->out);
    node->out_due_ns = SYNC_NEVER;
    node->must_sync = true;
    node->berth_count = beat->worker_count;
    give_seats(fleet, node, beat);
    size_t seats = count_seats(node);
    node->next = fleet->nodes;
    fleet->nodes = node;
    log_info("event=node_joined node=%s version=%s workers=%zu seats=%zu", node->node,
             node->version, beat->worker_count, seats);
    if (seats < node->berth_count)
        log_warn("event=no_seat node=%s error=\"%zu of its workers get no work: all %d seats for "
                 "workers of nodes are taken\"",
                 node->node, node->berth_count - seats, FLEET_SEATS_MAX);
    return node;
}

struct tuning {
    uint32_t seat, weight, lines_max;
};

/* The lock is held. */
static size_t take_workers(struct fleet *fleet, struct fleet_node *node, const struct beat *beat,
                           struct tuning *tunings) {
    size_t count = 0;
    for (size_t i = 0; i < node->berth_count && i < beat->worker_count; i++) {
        const struct beat_worker *worker = &beat->workers[i];
        struct berth *berth = node->berths[i];
        if (!berth) continue;
        take_models(fleet, berth, worker);
        take_status(berth, worker);
        uint32_t lines_max = worker->lines_max > 0 && worker->lines_max < fleet->options.lines_max
                                 ? worker->lines_max
                                 : fleet->options.lines_max;
        if (berth->lines_max == lines_max && berth->weight == worker->weight) continue;
        berth->lines_max = lines_max;
        berth->weight = worker->weight;
        tunings[count++] = (struct tuning){berth->seat, worker->weight, lines_max};
    }
    return count;
}

/* The lock is held. */
static void take_counts(struct fleet *fleet, struct fleet_node *node, const struct beat *beat,
                        struct endings *endings) {
    int64_t now_ns = clock_monotonic_ns();
    if (beat->count != node->beat_count || node->beat_ns == 0) node->beat_ns = now_ns;
    node->beat_count = beat->count;
    node->is_draining = beat->state == BEAT_DRAINING;
    node_note_rate(node);
    bool is_current = beat->round == node->round;
    if (is_current && beat->work_seq > node->read_seq && beat->work_seq <= node->work_seq)
        node->read_seq = beat->work_seq;
    if (is_current && beat->has_gap)
        node_must_sync(fleet, node, endings, "a pack of work did not come");
    bool has_all = is_current && beat->work_seq >= node->behind_work_seq &&
                   node->result_seq >= node->behind_result_seq;
    if (node->behind_ns == 0 || has_all) {
        node->behind_ns = now_ns;
        node->behind_work_seq = node->work_seq;
        node->behind_result_seq = is_current ? beat->result_seq : 0;
    }
}

/* A layout is changed only where fields at its end do not do. */
static void refuse_release(struct fleet *fleet, struct str name, unsigned layout) {
    if (str_is(name, fleet->refused)) return;
    snprintf(fleet->refused, sizeof fleet->refused, "%.*s", STR_ARGS(name));
    log_warn("event=node_refused node=%s error=\"its beats have the layout %u and this server "
             "reads layout %u: install releases that differ less\"",
             fleet->refused, layout, BEAT_VERSION);
}

void fleet_take_beat(void *context, struct str name, struct str bytes) {
    struct fleet *fleet = context;
    struct endings endings = {0};
    struct tuning tunings[BEAT_WORKERS_MAX];
    size_t count = 0;
    struct beat *beat = mem_new(1, sizeof *beat);
    if (is_node_name(name) && bytes.bytes > 0 && (uint8_t)bytes.at[0] != BEAT_VERSION) {
        refuse_release(fleet, name, (uint8_t)bytes.at[0]);
    } else if (is_node_name(name) && beat_read(bytes, beat)) {
        pthread_mutex_lock(&fleet->lock);
        struct fleet_node *node = node_find(fleet, name);
        if (!node && beat->state == BEAT_SERVING && beat->worker_count > 0)
            node = adopt(fleet, name, beat);
        /* A node that was lost and beats again is new at the next look. */
        if (node) node->is_seen = !node->is_gone || beat->count == node->beat_count;
        if (node && !node->is_gone) seat_rest(fleet, node, beat);
        if (node && !node->is_gone) {
            count = take_workers(fleet, node, beat, tunings);
            take_counts(fleet, node, beat, &endings);
        }
        pthread_mutex_unlock(&fleet->lock);
    }
    free(beat);
    endings_tell(fleet, &endings);
    for (size_t i = 0; i < count; i++)
        fleet->options.tune(fleet->options.context, tunings[i].seat, tunings[i].weight,
                            tunings[i].lines_max);
}

/* --- silence --- */

static bool was_lost_before(const struct fleet *fleet, uint64_t key) {
    for (size_t i = 0; i < LOST_KEYS && i < fleet->lost_count; i++)
        if (fleet->lost_keys[i] == key) return true;
    return false;
}

/* Notes the bodies at the berth as lost. True if one of them was lost before. The lock is held. */
static bool note_lost(struct fleet *fleet, const struct berth *berth) {
    bool was_lost = false;
    for (size_t i = 0; i < berth->jobs.capacity && !was_lost; i++) {
        const struct job_entry *entry = &berth->jobs.entries[i];
        if (!entry->id) continue;
        was_lost = was_lost_before(fleet, ((struct fleet_job *)(uintptr_t)entry->value)->body_key);
    }
    for (size_t i = 0; i < berth->jobs.capacity; i++) {
        const struct job_entry *entry = &berth->jobs.entries[i];
        if (entry->id)
            fleet->lost_keys[fleet->lost_count++ % LOST_KEYS] =
                ((struct fleet_job *)(uintptr_t)entry->value)->body_key;
    }
    return was_lost;
}

/* The node is lost without a word. The lock is held, and let go. */
static void lose(struct fleet *fleet, struct fleet_node *node) {
    struct endings endings = {0}, ignored = {0};
    struct berth *down[BEAT_WORKERS_MAX];
    size_t count = 0;
    log_warn("event=node_lost node=%s", node->node);
    fleet->status.lost++;
    for (size_t i = 0; i < node->berth_count; i++) {
        struct berth *berth = node->berths[i];
        if (!berth || !note_lost(fleet, berth)) continue;
        berth_take_lost(berth, &ignored, OUTCOME_RETURNED, NULL);
        down[count++] = berth;
    }
    node_release(fleet, node, &endings);
    pthread_mutex_unlock(&fleet->lock);
    free(ignored.list);
    for (size_t i = 0; i < count; i++)
        berth_tell_down(down[i], "its node was lost, as another one with the same requests before");
    endings_tell(fleet, &endings);
    pthread_mutex_lock(&fleet->lock);
}

/* Time in which the bus is away does not count. */
static bool is_silent_for(const struct fleet *fleet, const struct fleet_node *node, int64_t ms) {
    int64_t since_ns = node->beat_ns > fleet->reached_ns ? node->beat_ns : fleet->reached_ns;
    return fleet->reached_ns > 0 && clock_monotonic_ns() - since_ns > ms * NS_PER_MS;
}

/* The node whose beat was not at the last look, nor a new one for too long; NULL if there is none.
 * An old beat that stays is of a node that keeps it alive, because the bus is full and takes no new
 * one. */
static struct fleet_node *find_lost(struct fleet *fleet) {
    for (struct fleet_node *node = fleet->nodes; node; node = node->next)
        if (!node->is_gone && !node->is_seen && is_silent_for(fleet, node, FLEET_LOST_MS))
            return node;
    return NULL;
}

/* Rounds for nodes that packs do not reach, or whose packs do not arrive. The lock is held. */
static void check_rounds(struct fleet *fleet, struct fleet_node *node, bool was_emptied,
                         struct endings *endings) {
    int64_t now_ns = clock_monotonic_ns();
    if (node->is_gone || node->must_sync) return;
    if (was_emptied) {
        node_must_sync(fleet, node, endings, "the queue was emptied");
    } else if (!node->is_synced) {
        if (fleet->started_ns == 0) return;
        bool keeps = node->keeps_jobs;
        if (now_ns - node->synced_ns < SYNC_MS * NS_PER_MS) return;
        node_must_sync(fleet, node, endings, "the node has not told its jobs");
        node->keeps_jobs = keeps;
    } else if (now_ns - node->behind_ns > BEHIND_MS * NS_PER_MS &&
               now_ns - node->beat_ns < BEHIND_MS / 2 * NS_PER_MS) {
        node->behind_ns = 0;
        node_must_sync(fleet, node, endings, "packs do not arrive");
    }
}

/* Seats whose nodes take jobs now, in `ret_ready`. The lock is held. */
static size_t find_ready(struct fleet *fleet, struct berth *ret_ready[FLEET_SEATS_MAX]) {
    size_t count = 0;
    for (uint32_t i = 0; i < fleet->berth_count; i++) {
        struct berth *berth = fleet->berths[i];
        const struct fleet_node *node = berth->node;
        bool was_ready = berth->is_ready;
        berth->is_ready = node && !berth->is_falling && node->is_synced && !node->must_sync &&
                          !node->is_draining && !node->is_silent && berth->status.ready;
        bool tells = berth->is_ready && (!was_ready || berth->was_full);
        if (!tells) continue;
        berth->was_full = false;
        ret_ready[count++] = berth;
    }
    if (count > 0) pthread_cond_broadcast(&fleet->change);
    return count;
}

void fleet_check_nodes(struct fleet *fleet, bool was_emptied) {
    struct endings endings = {0};
    struct berth *ready[FLEET_SEATS_MAX];
    struct fleet_node *lost;
    pthread_mutex_lock(&fleet->lock);
    while ((lost = find_lost(fleet))) lose(fleet, lost);
    for (struct fleet_node *node = fleet->nodes; node; node = node->next) {
        node->is_silent = is_silent_for(fleet, node, FLEET_SILENT_MS);
        check_rounds(fleet, node, was_emptied, &endings);
    }
    size_t count = find_ready(fleet, ready);
    pthread_mutex_unlock(&fleet->lock);
    endings_tell(fleet, &endings);
    for (size_t i = 0; i < count; i++) berth_tell_room(ready[i]);
}
