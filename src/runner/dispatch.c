/* SPDX-License-Identifier: Apache-2.0 */

/* The dispatch thread: requests of single clients first, then lines, as long as a worker has room.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "json/span.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TEND_NS 50000000                      /* between looks at clocks and blocked batches */
#define LEASE_PLACES 256                      /* taken from the queue at a time */
#define BACKLOG_BYTES_MAX ((uint64_t)4 << 20) /* of results not durable, to go on */
#define LINE_BYTES_KEPT ((size_t)1 << 20)     /* of the buffer after a long line */
#define HOME_LOST_NS 5000000000 /* a worker down for so long has lost its suspects to others */

/* What the thread has of its own. */
struct dispatch {
    struct runner *runner;
    struct buf line;
    struct buf scratch;
    struct buf body; /* of a line that names no model */
    uint64_t placed;
};

static bool has_room(const struct runner *runner, const struct place *place,
                     const struct retry *line) {
    const struct runner_options *options = &runner->options;
    if (!place->worker || place->is_full) return false;
    if (place->suspects > 0) {
        bool may_go = !line || (line->is_suspect && line->home == place->index);
        bool is_alone = place->suspects_max > 1 || place->requests == 0;
        return may_go && is_alone && place->lines < place->suspects_max;
    }
    return place->lines < place->lines_max &&
           (place->bytes < options->lookahead_bytes || place->lines == 0);
}

/* NULL: for a line of any kind. Lines for a worker that has failed are to be taken too: they end
 * with an error. */
static bool anyone_has_room(const struct runner *runner, const struct retry *line) {
    for (uint32_t i = 0; i < runner->place_count; i++)
        if (runner->places[i].has_failed || has_room(runner, &runner->places[i], line)) return true;
    return false;
}

/* --- the next line --- */

static bool is_home_lost(const struct place *home, int64_t now_ns) {
    return home->is_full && now_ns - home->down_ns > HOME_LOST_NS;
}

static bool take_retry(struct runner *runner, struct live *live, int64_t now_ns, bool only_suspects,
                       struct retry *ret_line) {
    for (size_t i = 0; i < live->retry_count; i++) {
        struct retry *retry = &live->retries[i];
        if (retry->due_ns > now_ns || (only_suspects && !retry->is_suspect)) continue;
        if (retry->model && held_is_blocked(live->held, retry->model - 1u, runner->progress))
            continue;
        if (retry->is_suspect) {
            const struct place *home = &runner->places[retry->home];
            if (!is_home_lost(home, now_ns) && !has_room(runner, home, retry)) continue;
        }
        *ret_line = *retry;
        live->retries[i] = live->retries[--live->retry_count];
        return true;
    }
    return false;
}

/* A line that was read before, and whose model may have room now. */
static bool take_held(struct runner *runner, struct live *live, struct retry *ret_line) {
    uint32_t line;
    if (!held_take(live->held, runner->progress, &line)) return false;
    *ret_line = (struct retry){.line = line, .was_held = true};
    return true;
}

/* Leases places of one run, or of none (runs.h). */
static bool take_lease(struct runner *runner, struct live *live) {
    const struct queue_ops *queue = runner->queue->ops;
    struct queue_lease *lease = &live->lease;
    uint32_t from = runs_next(&live->runs, &runner->warm, lease->first + lease->count);
    live->lease_at = 0;
    if (!queue->take(runner->queue, live->row.sequence, from, LEASE_PLACES, lease)) {
        lease->count = 0;
        return false;
    }
    uint32_t kept = runs_lease(&live->runs, &runner->warm, lease->first, lease->count);
    struct queue_lease rest = *lease;
    rest.first += kept;
    rest.count -= kept;
    queue->give_back(runner->queue, &rest);
    lease->count = kept;
    return true;
}

static bool take_leased(struct runner *runner, struct live *live, struct retry *ret_line) {
    while (!held_is_full(live->held)) {
        while (live->lease_at < live->lease.count) {
            uint32_t line = index_line_at(live->index, live->lease.first + live->lease_at++);
            if (seglog_has(live->log, line)) continue;
            *ret_line = (struct retry){.line = line};
            return true;
        }
        if (!take_lease(runner, live)) return false;
    }
    return false;
}

static bool gives_lines(void *context, const struct order_entry *entry) {
    const struct runner *runner = context;
    const struct live *live = entry->owner;
    return live->phase == PHASE_RUN && live->blocked_at != runner->progress &&
           !live_is_paused(live);
}

/* The batch whose turn it is. */
static struct live *choose_batch(struct runner *runner) {
    struct order_entry *entry = order_choose(&runner->order, gives_lines, runner);
    runner->current = entry ? entry->owner : NULL;
    runner->current_left = LEASE_PLACES;
    runner->is_reordered = false;
    return runner->current;
}

/* The next line of the batch whose turn it is. */
static struct live *take_line(struct runner *runner, struct retry *ret_line) {
    const struct retry plain = {0};
    int64_t now_ns = clock_monotonic_ns();
    bool only_suspects = !anyone_has_room(runner, &plain);
    for (;;) {
        struct live *live = runner->current;
        if (!live || runner->is_reordered || runner->current_left == 0 ||
            !gives_lines(runner, &live->order))
            live = choose_batch(runner);
        if (!live) return NULL;
        if (take_retry(runner, live, now_ns, only_suspects, ret_line) ||
            (!only_suspects &&
             (take_held(runner, live, ret_line) || take_leased(runner, live, ret_line)))) {
            runner->current_left--;
            return live;
        }
        live->blocked_at = runner->progress; /* it has none to give */
    }
}

/* --- placing it --- */

enum placing { PLACED, FOLLOWS, NO_ROOM, MODEL_FULL, MODEL_GONE, REFUSED, UNREADABLE, DAMAGED };

/* Before a line is read again that the disk did not give. */
#define UNREADABLE_NS 1000000000

/* PLACED when the line was read: it is then in *ret_line. */
static enum placing read_line(struct dispatch *dispatch, struct live *live, uint32_t line,
                              struct batch_line *ret_line) {
    struct index_entry entry = index_entry(live->index, line);
    struct error error;
    if (dispatch->line.capacity > LINE_BYTES_KEPT && entry.bytes < LINE_BYTES_KEPT) {
        buf_release(&dispatch->line);
        buf_init(&dispatch->line, (size_t)BATCH_LINE_BYTES_MAX + 1);
    }
    buf_clear(&dispatch->line);
    char *room = buf_reserve(&dispatch->line, entry.bytes);
    if (!room) return DAMAGED;
    enum err err = os_pread_all(live->input_fd, room, entry.bytes, entry.offset, &error);
    if (err != OK) {
        log_warn("batch=%s request=%u error=\"%s\", retrying", live->row.id, line, error.text);
        return err == ERR_CORRUPT ? DAMAGED : UNREADABLE;
    }
    struct str text = {room, entry.bytes};
    bool good = batch_line_read(text, ret_line) == BATCH_LINE_READ && ret_line->custom_id.at &&
                ret_line->body.at && *ret_line->custom_id.at == '"' &&
                (!ret_line->model.at || *ret_line->model.at == '"') &&
                batch_line_endpoint(ret_line, &ret_line->endpoint);
    return good ? PLACED : DAMAGED;
}

/* A suspect whose home is lost looks for another one among the places that take jobs. */
static bool may_move(const struct runner *runner, const struct place *place,
                     const struct retry *line) {
    return line->is_suspect && line->home != place->index && place->worker && !place->is_full &&
           is_home_lost(&runner->places[line->home], clock_monotonic_ns());
}

/* The new home is as careful with it as the old one was. The lock is held. */
static void move_home(struct runner *runner, struct retry *line, struct place *place) {
    uint32_t suspects_max = runner->places[line->home].suspects_max;
    retry_clear_suspect(runner, line);
    line->is_suspect = true;
    line->home = place->index;
    if (place->suspects++ == 0 || suspects_max < place->suspects_max) {
        place->suspects_max = suspects_max;
        place->suspects_good = 0;
    }
}

/* The worker with room and the fewest lines for its weight that serves the model, and what it
 * calls it. */
static struct place *choose_place(struct runner *runner, struct slot *slot, struct str model,
                                  char ret_served[MODEL_NAME_BYTES]) {
    struct place *candidates[RUNNER_WORKERS_MAX];
    double loads[RUNNER_WORKERS_MAX];
    size_t count = 0;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->place_count; i++) {
        struct place *place = &runner->places[i];
        if (!has_room(runner, place, &slot->line) && !may_move(runner, place, &slot->line))
            continue;
        size_t at = count++;
        double load = (double)place->lines / place->weight;
        for (; at > 0 && loads[at - 1] > load; at--) {
            candidates[at] = candidates[at - 1];
            loads[at] = loads[at - 1];
        }
        candidates[at] = place;
        loads[at] = load;
    }
    pthread_mutex_unlock(&runner->lock);
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, candidates[i]->worker, model, ret_served)) continue;
        if (!slot->line.is_suspect || slot->line.home == candidates[i]->index) return candidates[i];
        pthread_mutex_lock(&runner->lock);
        move_home(runner, &slot->line, candidates[i]);
        bool has_place = has_room(runner, candidates[i], &slot->line);
        pthread_mutex_unlock(&runner->lock);
        return has_place ? candidates[i] : NULL;
    }
    return NULL;
}

/* Hands the job over. The result may be there before this returns. */
static enum placing submit(struct runner *runner, struct slot *slot, struct place *place,
                           const struct batch_line *line, const char *served) {
    struct worker_job job = {.endpoint = line->endpoint,
                             .is_line = true,
                             .model = str_from(served),
                             .body = line->body,
                             .deadline_unix_s = slot->live->row.expires_unix_s};
    pthread_mutex_lock(&runner->lock);
    uint64_t rooms = place->rooms;
    job.id = slot->id;
    job.tier = slot->live->order.tier;
    job.priority = slot->live->row.priority;
    job.deadline_unix_s = slot->live->row.expires_unix_s;
    memcpy(job.owner, slot->live->row.owner, sizeof job.owner);
    slot->place = place->index;
    slot->bytes = line->body.bytes;
    slot->state = SLOT_RUNNING;
    place->lines++;
    place->bytes += slot->bytes;
    order_charge(&slot->live->order, slot->live->order.line_cost);
    pthread_mutex_unlock(&runner->lock);
    bool taken = place->worker->ops->submit(place->worker, &job);
    pthread_mutex_lock(&runner->lock);
    if (taken) {
        /* A cancel that came before the worker had the job found nothing to cancel there. */
        bool cancelled = slot_find(runner, job.id) == slot && slot->state == SLOT_RUNNING &&
                         slot->live->phase != PHASE_RUN;
        pthread_mutex_unlock(&runner->lock);
        if (cancelled) place->worker->ops->cancel(place->worker, job.id);
        return PLACED;
    }
    pthread_mutex_unlock(&runner->lock);
    struct worker_status status = {0};
    place->worker->ops->status(place->worker, &status);
    pthread_mutex_lock(&runner->lock);
    place->has_failed = status.is_failed;
    /* The worker may have gone down in between, which took the slot back already. */
    enum placing placing = PLACED;
    if (slot_find(runner, job.id) == slot && slot->state == SLOT_RUNNING) {
        place->is_full = place->rooms == rooms;
        slot_leave_worker(runner, slot);
        slot->state = SLOT_PLACING;
        placing = NO_ROOM;
    }
    pthread_mutex_unlock(&runner->lock);
    return placing;
}

/* The model of a line that names none: what validation found, unless other lines named others. */
static enum serving default_model(struct runner *runner, const struct live *live,
                                  char ret_model[MODEL_NAME_BYTES]) {
    _Static_assert(sizeof live->row.model == MODEL_NAME_BYTES, "a name fits in the row");
    if (!*live->row.model) return runner_default_model(runner, ret_model);
    memcpy(ret_model, live->row.model, MODEL_NAME_BYTES);
    return SERVED;
}

/* Notes which of the batch's models the line is for. False when that one was found full just now: a
 * batch of one model waits with all its lines, one of several holds this line and goes on. */
static bool model_may_have_room(struct runner *runner, struct slot *slot, struct str model) {
    struct live *live = slot->live;
    uint32_t number;
    if (*live->row.model || slot->line.is_suspect) return true;
    pthread_mutex_lock(&runner->lock);
    if (!live->held) live->held = held_open();
    bool is_known = held_model(live->held, model, &number);
    slot->line.model = is_known ? (uint8_t)(number + 1) : 0;
    bool is_blocked = is_known && held_is_blocked(live->held, number, runner->progress);
    pthread_mutex_unlock(&runner->lock);
    return !is_blocked;
}

/* Whether the line ends because nobody can load its model any more; it has then. */
static bool refuse_failed(struct runner *runner, struct slot *slot, struct str model) {
    struct error error;
    bool has_any = false;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->place_count; i++) has_any |= runner->places[i].has_failed;
    pthread_mutex_unlock(&runner->lock);
    if (!has_any || runner_check_model(runner, model, &error) == OK) return false;
    line_refuse(runner, slot, 503, "model_unavailable", error.text);
    return true;
}

/* To the worker that has room for it. */
static enum placing place_at_worker(struct runner *runner, struct slot *slot,
                                    const struct batch_line *line, struct str model) {
    char served[MODEL_NAME_BYTES];
    enum placing full = slot->line.model ? MODEL_FULL : NO_ROOM;
    struct place *place = choose_place(runner, slot, model, served);
    if (place) {
        enum placing placing = submit(runner, slot, place, line, served);
        return placing == NO_ROOM ? full : placing;
    }
    if (refuse_failed(runner, slot, model)) return REFUSED;
    runner_want(runner, model, TIER_BATCH, slot->live->row.expires_unix_s);
    return runner_serving(runner, model) == NOT_SERVED ? MODEL_GONE : full;
}

static enum placing place_line(struct dispatch *dispatch, struct slot *slot) {
    struct runner *runner = dispatch->runner;
    struct batch_line line;
    enum placing read = read_line(dispatch, slot->live, slot->line.line, &line);
    if (read != PLACED) return read;
    slot_set_custom_id(slot, line.custom_id);
    char own_model[MODEL_NAME_BYTES];
    struct str model;
    if (line.model.at) {
        model = json_span_text(line.model, &dispatch->scratch);
    } else {
        enum serving serving = default_model(runner, slot->live, own_model);
        if (serving != SERVED) return serving == NOT_SERVED ? MODEL_GONE : NO_ROOM;
        model = str_from(own_model);
        line.body = batch_line_with_model(&line, model, &dispatch->body);
    }
    if (!model_may_have_room(runner, slot, model)) return MODEL_FULL;
    switch (reuse_line(runner, slot, &line, model)) {
    case REUSE_RUN: break;
    case REUSE_COMMITTED: return PLACED;
    case REUSE_FOLLOWS: return FOLLOWS;
    case REUSE_FULL: return NO_ROOM;
    }
    return place_at_worker(runner, slot, &line, model);
}

/* Its model has no room: the line waits with its like, and the batch goes on. The lock is held. */
static void hold(struct runner *runner, struct live *live, const struct retry *line) {
    uint32_t model = line->model - 1u;
    bool is_new = line->attempts == 0 && line->downs == 0 && line->refusals == 0;
    held_block(live->held, model, runner->progress);
    if (is_new && !held_is_full(live->held))
        held_put(live->held, model, line->line, line->was_held);
    else
        live_push_retry(live, line);
}

/* The line was not given to anybody. The lock is held. */
static void take_back(struct runner *runner, struct slot *slot, enum placing placing,
                      struct cancel_list *cancel) {
    struct live *live = slot->live;
    bool runs = live->phase == PHASE_RUN;
    if (placing == UNREADABLE) slot->line.due_ns = clock_monotonic_ns() + UNREADABLE_NS;
    if (placing == NO_ROOM) live->blocked_at = runner->progress;
    if (runs && placing == MODEL_FULL)
        hold(runner, live, &slot->line);
    else if (runs && placing != DAMAGED)
        live_push_retry(live, &slot->line);
    else
        retry_clear_suspect(runner, &slot->line);
    slot_free(runner, slot);
    if (placing == DAMAGED && runs)
        live_fault(runner, live, "The input file can no longer be read.", cancel);
}

/* Gives one line to a worker. The lock is held, and let go in between. False when there is none to
 * give or nobody to take it. */
static bool dispatch_line(struct dispatch *dispatch) {
    struct runner *runner = dispatch->runner;
    struct cancel_list cancel = {0};
    struct retry line;
    if (!anyone_has_room(runner, NULL)) return false;
    struct live *live = take_line(runner, &line);
    if (!live) return false;
    struct slot *slot = slot_take(runner);
    slot->live = live;
    slot->line = line;
    live->in_flight++;
    pthread_mutex_unlock(&runner->lock);
    enum placing placing = place_line(dispatch, slot);
    if (placing == MODEL_GONE) {
        slot->state = SLOT_COMMITTING; /* nobody else knows the slot yet */
        commit_error(runner, slot, 404, "model_not_found",
                     "The model of this request is no longer served.");
    }
    pthread_mutex_lock(&runner->lock);
    if (placing == FOLLOWS)
        slot_free(runner, slot);
    else if (placing != PLACED && placing != MODEL_GONE && placing != REFUSED)
        take_back(runner, slot, placing, &cancel);
    pthread_mutex_unlock(&runner->lock);
    cancel_list_send(&cancel);
    pthread_mutex_lock(&runner->lock);
    return true;
}

static bool lines_may_go(struct dispatch *dispatch) {
    struct runner *runner = dispatch->runner;
    if (runner->is_draining) return false;
    /* Asked now and then: each answer takes the writer's lock. */
    if (dispatch->placed++ % 16 != 0) return true;
    /* Lines at the workers and lines not yet durable share one bound, so that a disk that is slow
     * for a moment does not double the memory. */
    uint64_t lines_max =
        (uint64_t)runner->options.lookahead_lines * runner->place_count / 4 * 5 + 16;
    if (runner->slots_taken <= lines_max &&
        seglog_writer_backlog_bytes(runner->writer) <= BACKLOG_BYTES_MAX &&
        store_has_room(runner->store, 0))
        return true;
    dispatch->placed = 0;
    return false;
}

void *dispatch_main(void *context) {
    struct dispatch dispatch = {.runner = context};
    struct runner *runner = context;
    int64_t tend_ns = 0;
    buf_init(&dispatch.line, (size_t)BATCH_LINE_BYTES_MAX + 1);
    buf_init(&dispatch.scratch, (size_t)BATCH_LINE_BYTES_MAX + 1);
    buf_init(&dispatch.body, (size_t)BATCH_LINE_BYTES_MAX + 8 * MODEL_NAME_BYTES);
    pthread_mutex_lock(&runner->lock);
    bool went_idle = true;
    while (!runner->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= tend_ns || went_idle) {
            pthread_mutex_unlock(&runner->lock);
            batches_tend(runner);
            watch_batches(runner);
            pthread_mutex_lock(&runner->lock);
            if (now_ns >= tend_ns) {
                runner->progress++;
                tend_ns = now_ns + TEND_NS;
            }
            if (runner->is_stopping) break;
        }
        if (requests_dispatch(runner)) continue;
        went_idle = !lines_may_go(&dispatch) || !dispatch_line(&dispatch);
        if (went_idle && !runner->is_stopping) {
            int64_t soon_ns = now_ns + (dispatch.placed == 0 ? TEND_NS / 25 : TEND_NS);
            runner_wait(runner, &runner->work, soon_ns < tend_ns ? soon_ns : tend_ns);
        }
    }
    pthread_mutex_unlock(&runner->lock);
    buf_release(&dispatch.line);
    buf_release(&dispatch.scratch);
    buf_release(&dispatch.body);
    return NULL;
}
