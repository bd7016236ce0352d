/* SPDX-License-Identifier: Apache-2.0 */

/* The dispatch thread: requests of single clients first, then lines, as long as a worker has room.
 */

#include "base/clock.h"
#include "base/log.h"
#include "batch/line.h"
#include "json/span.h"
#include "runner/active_end.h"
#include "runner/adopt.h"
#include "runner/line_reader.h"
#include "runner/models.h"
#include "runner/results.h"
#include "runner/runner_internal.h"
#include "runner/tail.h"
#include "runner/translated.h"
#include "runner/watch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TEND_NS 50000000                      /* between looks at clocks and blocked batches */
#define TURN_LINES 256                        /* lines of a batch before another is chosen */
#define BACKLOG_BYTES_MAX ((uint64_t)4 << 20) /* results not yet durable; above it lines wait */
#define SICK_LOAD 1e9                         /* more than any load */
#define AVOIDED_LOAD 1e8
#define READ_AGAIN_NS 1000000000 /* pause after a line that could not be read */
#define INPUT_KEPT_NS 1000000000 /* how long an input stays open that no line is read from */

/* The buffers and files of the thread. */
struct dispatch {
    struct runner *runner;
    struct line_reader reader;
    struct buf scratch;
    struct buf body;       /* the body of a line that names no model, with the model in it */
    struct buf translated; /* a line of another API as one of a chat */
    uint64_t placed;
};

/* Whether any seat may take the line; NULL: any line. A seat that has failed counts, because its
 * lines end with an error. */
static bool anyone_has_room(const struct runner *runner, const struct line_state *line) {
    for (uint32_t i = 0; i < runner->seat_count; i++)
        if (runner->seats[i].has_failed || seat_has_room(runner, &runner->seats[i], line))
            return true;
    return false;
}

/* --- the next line --- */

/* Whether a seat may have the line's last try now, if not any seat may (seat_last_choice). */
static bool last_try_has_room(const struct runner *runner, const struct active_batch *batch,
                              const struct line_state *line) {
    uint64_t choice = seat_last_choice(runner, line, active_attempts_max(runner, batch));
    for (uint32_t i = 0; i < runner->seat_count && choice != 0; i++)
        if ((choice >> i & 1) && seat_has_room(runner, &runner->seats[i], line)) return true;
    return choice == 0;
}

static bool take_pending(struct runner *runner, struct active_batch *batch, int64_t now_ns,
                         bool only_suspects, struct line_state *ret_line) {
    for (size_t i = 0; i < batch->pending_count; i++) {
        struct line_state *line = &batch->pending[i];
        if (line->due_ns > now_ns || (only_suspects && !line->is_suspect)) continue;
        if (!last_try_has_room(runner, batch, line)) continue;
        if (line->model &&
            waiting_for_model_is_blocked(batch->waiting, line->model - 1u, runner->progress))
            continue;
        if (line->is_suspect) {
            const struct seat *home = &runner->seats[line->home];
            if (!seat_may_be_left(runner, line, now_ns) && !seat_has_room(runner, home, line))
                continue;
        }
        *ret_line = *line;
        batch->pending[i] = batch->pending[--batch->pending_count];
        return true;
    }
    return false;
}

/* Takes a line that waits for a model which may have room now. */
static bool take_waiting(struct runner *runner, struct active_batch *batch,
                         struct line_state *ret_line) {
    uint32_t line;
    if (!waiting_for_model_take(batch->waiting, runner->progress, &line)) return false;
    *ret_line = (struct line_state){.number = line, .was_waiting = true};
    return true;
}

static bool take_leased(struct runner *runner, struct active_batch *batch,
                        struct line_state *ret_line) {
    return !waiting_for_model_is_full(batch->waiting) && leases_take(runner, batch, ret_line);
}

static bool gives_lines(void *context, const struct order_entry *entry) {
    const struct runner *runner = context;
    const struct active_batch *batch = entry->owner;
    return batch->phase == PHASE_RUN && batch->blocked_at != runner->progress &&
           !active_is_paused(batch) && !(runner->is_holding && batch->is_taken_up);
}

/* The batch whose turn it is. */
static struct active_batch *choose_batch(struct runner *runner) {
    struct order_entry *entry = order_choose(&runner->order, gives_lines, runner);
    runner->current = entry ? entry->owner : NULL;
    runner->current_left = TURN_LINES;
    runner->is_reordered = false;
    return runner->current;
}

/* The next line of the batch whose turn it is. */
static struct active_batch *take_line(struct runner *runner, struct line_state *ret_line) {
    const struct line_state plain = {0};
    int64_t now_ns = clock_monotonic_ns();
    bool only_suspects = !anyone_has_room(runner, &plain);
    for (;;) {
        struct active_batch *batch = runner->current;
        if (!batch || runner->is_reordered || runner->current_left == 0 ||
            !gives_lines(runner, &batch->order))
            batch = choose_batch(runner);
        if (!batch) return NULL;
        if (take_pending(runner, batch, now_ns, only_suspects, ret_line) ||
            (!only_suspects &&
             (take_waiting(runner, batch, ret_line) || take_leased(runner, batch, ret_line)))) {
            runner->current_left--;
            return batch;
        }
        batch->blocked_at = runner->progress; /* it has no line to give */
    }
}

/* --- giving it to a worker --- */

/* The fate of a line that was taken. */
enum next {
    NEXT_GONE,           /* it is with a worker or has ended: the slot belongs to others */
    NEXT_ANOTHER_SEAT,   /* its seat has no room: its place waits for any */
    NEXT_NOT_SERVED,     /* its seat's worker does not serve the model: likewise */
    NEXT_FOLLOWS,        /* it waits for the answer to an equal request (reuse.h) */
    NEXT_WAIT_FOR_ROOM,  /* it waits, and its batch with it */
    NEXT_WAIT_FOR_MODEL, /* it waits, and its batch goes on with lines for other models */
    NEXT_READ_AGAIN,     /* the disk did not give it */
    NEXT_DAMAGED,        /* the input has changed since validation */
};

/* Whether the line, a suspect that may leave its home, may run here. */
static bool may_move(const struct runner *runner, const struct seat *seat,
                     const struct line_state *line) {
    return line->is_suspect && line->home != seat->index && seat->worker && !seat->is_full &&
           seat_may_be_left(runner, line, clock_monotonic_ns());
}

static double load_of(const struct seat *seat, const struct line_state *line) {
    double load = (double)seat->lines / seat->weight;
    if (seat_is_slow(seat)) load = (seat->lines + 1.0) / seat->weight * seat->slowness;
    if (line->avoids == seat->index + 1) load += AVOIDED_LOAD;
    return seat_is_sick(seat) ? load + SICK_LOAD : load;
}

/* The seats that may take the line now, the one with the fewest lines for its weight first, and
 * sick ones last. Its home is none of them for a suspect that must go down elsewhere, too. */
static size_t list_seats(struct runner *runner, const struct slot *slot,
                         struct seat *ret_seats[RUNNER_WORKERS_MAX]) {
    const struct line_state *line = &slot->line;
    double loads[RUNNER_WORKERS_MAX];
    size_t count = 0;
    pthread_mutex_lock(&runner->lock);
    uint64_t choice = seat_last_choice(runner, line, active_attempts_max(runner, slot->batch));
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct seat *seat = &runner->seats[i];
        if (choice != 0 && !(choice >> i & 1)) continue;
        if (line->home == i && seat_is_last_word(runner, line)) continue;
        if (!seat_has_room(runner, seat, line) && !may_move(runner, seat, line)) continue;
        size_t at = count++;
        double load = load_of(seat, line);
        for (; at > 0 && loads[at - 1] > load; at--) {
            ret_seats[at] = ret_seats[at - 1];
            loads[at] = loads[at - 1];
        }
        ret_seats[at] = seat;
        loads[at] = load;
    }
    pthread_mutex_unlock(&runner->lock);
    return count;
}

static bool expects_other(struct runner *runner, const struct line_state *line) {
    pthread_mutex_lock(&runner->lock);
    bool expects = seat_expects_other(runner, line, clock_monotonic_ns());
    pthread_mutex_unlock(&runner->lock);
    return expects;
}

/* The first of these that serves the model, and its worker's name for it; NULL if none has room. */
static struct seat *choose_seat(struct runner *runner, struct slot *slot, struct str model,
                                char ret_served[MODEL_NAME_BYTES]) {
    struct seat *seats[RUNNER_WORKERS_MAX];
    struct line_state *line = &slot->line;
    size_t count = list_seats(runner, slot, seats), at = 0;
    while (at < count && !runner_finds(runner, seats[at]->worker, model, ret_served)) at++;
    if (at == count && (!seat_is_last_word(runner, line) || expects_other(runner, line)))
        return NULL;
    if (at == count) {
        line->has_no_other = true;
        return choose_seat(runner, slot, model, ret_served);
    }
    struct seat *seat = seats[at];
    if (!line->is_suspect || line->home == seat->index) return seat;
    pthread_mutex_lock(&runner->lock);
    seat_move_suspect(runner, seat, line);
    bool has_room = seat_has_room(runner, seat, line);
    pthread_mutex_unlock(&runner->lock);
    return has_room ? seat : NULL;
}

static bool submit(struct runner *runner, struct slot *slot, struct seat *seat,
                   const struct batch_line *line, const char *served) {
    struct active_batch *batch = slot->batch;
    char name[WORKER_LINE_BYTES];
    adopt_write_name(name, batch, slot->line.number);
    struct worker_job job = {.id = slot->id,
                             .endpoint = line->endpoint,
                             .tier = (enum tier)batch->order.tier,
                             .priority = batch->row.priority,
                             .is_line = true,
                             .model = str_from(served),
                             .body = line->body,
                             .line = str_from(name),
                             .deadline_unix_s = batch->row.expires_unix_s};
    memcpy(job.owner, batch->row.owner, sizeof job.owner);
    slot->bytes = line->body.bytes;
    return seat_submit(runner, seat, slot, &job);
}

/* The model of a line that names none: the only model of the batch, else the default one. */
static enum serving default_model(struct runner *runner, const struct active_batch *batch,
                                  char ret_model[MODEL_NAME_BYTES]) {
    _Static_assert(sizeof batch->row.model == MODEL_NAME_BYTES, "a name fits in the row");
    if (!*batch->row.model) return runner_default_model(runner, ret_model);
    memcpy(ret_model, batch->row.model, MODEL_NAME_BYTES);
    return SERVED;
}

/* Notes which of the batch's models the line is for. False if that one was found full just now. */
static bool model_may_have_room(struct runner *runner, struct slot *slot, struct str model) {
    struct active_batch *batch = slot->batch;
    uint32_t number;
    if (*batch->row.model || slot->line.is_suspect) return true;
    pthread_mutex_lock(&runner->lock);
    if (!batch->waiting) batch->waiting = waiting_for_model_open();
    bool is_known = waiting_for_model_number(batch->waiting, model, &number);
    slot->line.model = is_known ? (uint8_t)(number + 1) : 0;
    bool is_blocked =
        is_known && waiting_for_model_is_blocked(batch->waiting, number, runner->progress);
    pthread_mutex_unlock(&runner->lock);
    return !is_blocked;
}

/* True if the line has ended because no worker can load its model any more. */
static bool refuse_failed(struct runner *runner, struct slot *slot, struct str model) {
    struct error error;
    bool has_any = false;
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++) has_any |= runner->seats[i].has_failed;
    pthread_mutex_unlock(&runner->lock);
    if (!has_any || runner_check_model(runner, model, &error) == OK) return false;
    line_refuse(runner, slot, 503, "model_unavailable", error.text);
    return true;
}

/* No worker serves the model any more: the line ends, as a request would. */
static enum next end_without_model(struct runner *runner, struct slot *slot) {
    slot->state = SLOT_COMMITTING; /* no other thread knows the slot yet */
    commit_error(runner, slot, 404, "model_not_found", "The model of this request is not served.");
    return NEXT_GONE;
}

/* Makes a line of another API one of a chat. False if that API refuses it: then it has ended. */
static bool translate(struct dispatch *dispatch, struct slot *slot, struct batch_line *line) {
    struct refusal refusal;
    dialect_call_free(slot->call);
    slot->call = translated_read(line, &dispatch->translated, &refusal);
    if (slot->call) return true;
    slot->state = SLOT_COMMITTING; /* no other thread knows the slot yet */
    commit_refusal(dispatch->runner, slot, &refusal);
    return false;
}

/* Gives the line to the seat that its place was leased to. */
static enum next give_to_own_seat(struct runner *runner, struct slot *slot,
                                  const struct batch_line *line, struct str model) {
    char served[MODEL_NAME_BYTES];
    struct seat *seat = &runner->seats[slot->line.goes_to - 1];
    pthread_mutex_lock(&runner->lock);
    bool has_room = seat_has_room(runner, seat, &slot->line);
    pthread_mutex_unlock(&runner->lock);
    if (!has_room) return NEXT_ANOTHER_SEAT;
    if (!runner_finds(runner, seat->worker, model, served)) return NEXT_NOT_SERVED;
    return submit(runner, slot, seat, line, served) ? NEXT_GONE : NEXT_ANOTHER_SEAT;
}

static enum next give_to_worker(struct runner *runner, struct slot *slot,
                                const struct batch_line *line, struct str model) {
    char served[MODEL_NAME_BYTES];
    enum next full = slot->line.model ? NEXT_WAIT_FOR_MODEL : NEXT_WAIT_FOR_ROOM;
    struct seat *seat = choose_seat(runner, slot, model, served);
    if (seat) return submit(runner, slot, seat, line, served) ? NEXT_GONE : full;
    if (refuse_failed(runner, slot, model)) return NEXT_GONE;
    runner_want(runner, model, TIER_BATCH, slot->batch->row.expires_unix_s);
    return runner_serving(runner, model) == NOT_SERVED ? end_without_model(runner, slot) : full;
}

static enum next give_line(struct dispatch *dispatch, struct slot *slot) {
    struct runner *runner = dispatch->runner;
    struct batch_line line;
    struct error error;
    enum err err =
        line_reader_read(&dispatch->reader, slot->batch, slot->line.number, &line, &error);
    if (err != OK) return err == ERR_CORRUPT ? NEXT_DAMAGED : NEXT_READ_AGAIN;
    slot_set_custom_id(slot, line.custom_id);
    slot->endpoint = line.endpoint;
    char own_model[MODEL_NAME_BYTES];
    struct str model;
    bool has_model = line.model.at && *line.model.at == '"';
    if (!has_model && line.endpoint == ENDPOINT_MESSAGES) {
        bool is_good = translate(dispatch, slot, &line);
        return is_good ? end_without_model(runner, slot) : NEXT_GONE;
    }
    if (has_model) {
        model = json_span_text(line.model, &dispatch->scratch);
    } else {
        enum serving serving = default_model(runner, slot->batch, own_model);
        if (serving == NOT_SERVED) return end_without_model(runner, slot);
        if (serving == SERVING_UNKNOWN) return NEXT_WAIT_FOR_ROOM;
        model = str_from(own_model);
        line.body = batch_line_with_model(&line, model, &dispatch->body);
    }
    if (!model_may_have_room(runner, slot, model)) return NEXT_WAIT_FOR_MODEL;
    if (endpoint_is_translated(line.endpoint) && !translate(dispatch, slot, &line))
        return NEXT_GONE;
    slot->asks_shape = batch_line_asks_shape(&line);
    switch (reuse_line(runner, slot, &line, model)) {
    case REUSE_RUN: break;
    case REUSE_COMMITTED: return NEXT_GONE;
    case REUSE_FOLLOWS: return NEXT_FOLLOWS;
    case REUSE_FULL: return NEXT_WAIT_FOR_ROOM;
    }
    slot->line.peers = peers_find(runner, model);
    if (slot->line.goes_to) return give_to_own_seat(runner, slot, &line, model);
    return give_to_worker(runner, slot, &line, model);
}

/* --- the lock is held --- */

/* A line that was never tried waits as its number alone, in 4 bytes; any other keeps its state. */
static void wait_for_model(struct runner *runner, struct active_batch *batch,
                           const struct line_state *line) {
    uint32_t model = line->model - 1u;
    bool is_new = line->attempts == 0 && line->downs == 0 && line->refusals == 0;
    waiting_for_model_block(batch->waiting, model, runner->progress);
    if (is_new && !waiting_for_model_is_full(batch->waiting))
        waiting_for_model_put(batch->waiting, model, line->number, line->was_waiting);
    else
        active_put_back(batch, line);
}

/* Keeps the line if its batch still runs. */
static void keep_line(struct runner *runner, struct slot *slot, enum next next) {
    struct active_batch *batch = slot->batch;
    bool is_as_leased = next == NEXT_WAIT_FOR_ROOM || next == NEXT_ANOTHER_SEAT;
    if (batch->phase != PHASE_RUN)
        seat_clear_suspect(runner, &slot->line);
    else if (next == NEXT_WAIT_FOR_MODEL)
        wait_for_model(runner, batch, &slot->line);
    else if (!(next == NEXT_NOT_SERVED && leases_refuse(runner, batch, &slot->line)) &&
             !(is_as_leased && leases_put_back(batch, &slot->line)))
        active_put_back(batch, &slot->line);
    slot_free(runner, slot);
}

static void end_damaged(struct runner *runner, struct slot *slot, struct cancel_list *cancel) {
    struct active_batch *batch = slot->batch;
    seat_clear_suspect(runner, &slot->line);
    slot_free(runner, slot);
    if (batch->phase == PHASE_RUN)
        active_fault(runner, batch, "The input file can no longer be read.", cancel);
}

static void settle(struct runner *runner, struct slot *slot, enum next next,
                   struct cancel_list *cancel) {
    switch (next) {
    case NEXT_GONE: return;
    case NEXT_FOLLOWS: slot_free(runner, slot); return;
    case NEXT_DAMAGED: end_damaged(runner, slot, cancel); return;
    case NEXT_READ_AGAIN: slot->line.due_ns = clock_monotonic_ns() + READ_AGAIN_NS; break;
    case NEXT_WAIT_FOR_ROOM: slot->batch->blocked_at = runner->progress; break;
    case NEXT_WAIT_FOR_MODEL:
    case NEXT_ANOTHER_SEAT:
    case NEXT_NOT_SERVED: break;
    }
    keep_line(runner, slot, next);
}

/* Gives one line to a worker; the lock is let go in between. False if no batch has a line that may
 * run, or no worker has room. */
static bool dispatch_line(struct dispatch *dispatch) {
    struct runner *runner = dispatch->runner;
    struct cancel_list cancel = {0};
    struct line_state line;
    if (!anyone_has_room(runner, NULL)) return false;
    struct active_batch *batch = take_line(runner, &line);
    if (!batch) return false;
    struct slot *slot = slot_take(runner);
    slot->batch = batch;
    slot->line = line;
    batch->in_flight++;
    pthread_mutex_unlock(&runner->lock);
    enum next next = give_line(dispatch, slot);
    pthread_mutex_lock(&runner->lock);
    settle(runner, slot, next, &cancel);
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
        (uint64_t)runner->options.lookahead_lines * runner->seat_count / 4 * 5 + 16;
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
    line_reader_init(&dispatch.reader, runner);
    buf_init(&dispatch.scratch, (size_t)BATCH_LINE_BYTES_MAX + 1);
    buf_init(&dispatch.body, (size_t)BATCH_LINE_BYTES_MAX + 8 * MODEL_NAME_BYTES);
    buf_init(&dispatch.translated, BUF_UNLIMITED);
    pthread_mutex_lock(&runner->lock);
    bool went_idle = true;
    while (!runner->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= tend_ns || went_idle) {
            pthread_mutex_unlock(&runner->lock);
            batches_tend(runner);
            watch_batches(runner);
            tail_tend(runner);
            pthread_mutex_lock(&runner->lock);
            if (now_ns >= tend_ns) {
                inputs_rest(&dispatch.reader.inputs, now_ns - INPUT_KEPT_NS);
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
    line_reader_release(&dispatch.reader);
    buf_release(&dispatch.scratch);
    buf_release(&dispatch.body);
    buf_release(&dispatch.translated);
    return NULL;
}
