/* SPDX-License-Identifier: Apache-2.0 */

/* The server: leases, slices and their ends, by the deciders of service/queue. What surrounds them
 * is what leases.c, rates.c and tail.c of the runner do with a seat per worker. */

#include "base/mem.h"
#include "world.h"

#include <stdlib.h>

#define AHEAD_S 8.0
#define SETTLED_S 120.0 /* then a node's rate is known */

void wrong(struct world *world, const char *what) {
    if (!world->wrong) world->wrong = what;
}

static int64_t now_ns(const struct world *world) {
    return (int64_t)(world->now_s * 1e9);
}

static bool is_slow(const struct seat *seat) {
    return seat->slowness > 1;
}

static uint32_t running_of(const struct seat *seat) {
    return seat->lines < ROOM_LINES ? seat->lines : ROOM_LINES;
}

static struct pace_worker worker_of(const struct seat *seat) {
    return (struct pace_worker){.rate = pace_rate(&seat->pace),
                                .weight = 1,
                                .lines = seat->lines,
                                .running = running_of(seat),
                                .room = seat->lines < seat->bound ? seat->bound - seat->lines : 0};
}

/* --- lines that wait --- */

static void put_back(struct world *world, const struct slice *slice, uint32_t first,
                     uint32_t count) {
    if (count == 0) return;
    world->pending = vec_grow(world->pending, world->pending_count, &world->pending_capacity,
                              sizeof *world->pending);
    struct slice *at = &world->pending[world->pending_count++];
    *at = *slice;
    at->first = first;
    at->count = count;
}

static bool take_pending(struct world *world, uint32_t node, uint32_t most,
                         struct slice *ret_slice) {
    if (is_slow(&world->seats[node])) return false; /* others go first */
    for (size_t i = world->pending_count, looked = 0; i-- > 0 && looked < 64; looked++) {
        struct slice *at = &world->pending[i];
        if (at->avoids == node + 1) continue;
        *ret_slice = *at;
        if (at->count > most) {
            ret_slice->count = most;
            at->first += most;
            at->count -= most;
        } else {
            *at = world->pending[--world->pending_count];
        }
        return true;
    }
    return false;
}

/* --- leases --- */

static bool has_places(void *context, const struct order_entry *entry) {
    (void)context;
    return entry->pool == 1; /* see take_range */
}

/* Gives the end of the lease back, as the runner does behind a beginning that lines share. */
static void cut(struct world *world, struct queue_lease *lease) {
    struct queue_lease rest = *lease;
    rest.count = (uint32_t)rng_below(&world->rng, lease->count);
    rest.first += lease->count - rest.count;
    lease->count -= rest.count;
    world->queue->ops->give_back(world->queue, &rest);
}

static bool take_range(struct world *world, struct seat *seat) {
    while (!world->is_dry) {
        struct order_entry *entry = order_choose(&world->order, has_places, NULL);
        if (!entry) {
            world->is_dry = true;
            break;
        }
        uint32_t from = seat->lease.first + seat->lease.count;
        if (world->queue->ops->take(world->queue, entry->age, from, LEASE_LINES, &seat->lease)) {
            cut(world, &seat->lease);
            world->leased += seat->lease.count;
            order_charge(entry, seat->lease.count);
            return true;
        }
        entry->pool = 2; /* it has no place left until one is given back */
    }
    return false;
}

static bool take_share(struct world *world, struct seat *own) {
    struct seat *best = NULL;
    uint32_t count = 0;
    const struct pace_worker worker = worker_of(own);
    for (uint32_t i = 0; i < world->settings.nodes && world->leased > 0; i++) {
        struct seat *other = &world->seats[i];
        if (other == own || other->lease.count == 0) continue;
        const struct pace_worker their = worker_of(other);
        uint32_t share = faults_are_many(&other->faults)
                             ? other->lease.count
                             : pace_share(&worker, &their, other->lease.count);
        if (share <= count) continue;
        count = share;
        best = other;
    }
    if (!best) return false;
    best->lease.count -= count;
    own->lease = best->lease;
    own->lease.first += best->lease.count;
    own->lease.count = count;
    return true;
}

static bool take_leased(struct world *world, struct seat *seat, uint32_t most,
                        struct slice *ret_slice) {
    if (seat->lease.count == 0 && !take_range(world, seat) && !take_share(world, seat))
        return false;
    uint32_t count = seat->lease.count < most ? seat->lease.count : most;
    *ret_slice = (struct slice){
        .batch = (uint32_t)seat->lease.batch, .first = seat->lease.first, .count = count};
    seat->lease.first += count;
    seat->lease.count -= count;
    world->leased -= count;
    return true;
}

/* --- giving --- */

static bool has_room(const struct world *world, const struct seat *seat) {
    if (!seat->is_known) return false;
    if (faults_are_many(&seat->faults))
        return seat->lines == 0 && now_ns(world) >= seat->faults.due_ns;
    /* As the runner is woken: with less room slices would become ever smaller. */
    uint32_t room = seat->lines < seat->bound ? seat->bound - seat->lines : 0;
    return room >= SLICE_LINES || room > seat->bound / 2;
}

static void give(struct world *world, uint32_t node, struct slice *slice) {
    struct seat *seat = &world->seats[node];
    uint32_t place = world->free_slices[--world->free_count];
    slice->id = ++world->job_count;
    slice->given_s = world->now_s;
    world->slices[place] = *slice;
    job_set_put(&seat->jobs, slice->id, place);
    seat->lines += slice->count;
    const struct far *far = &world->fars[node];
    double most = ROOM_LINES + SLICE_LINES + 2 * AHEAD_S * far->rate;
    if (far->is_alive && world->now_s - far->begun_s > SETTLED_S && seat->lines > most)
        wrong(world, "a node is given more lines than those of its next seconds");
    message_send(world, &world->work, node, WORD_SLICE, slice, 0);
}

void server_fill(struct world *world, uint32_t node) {
    struct seat *seat = &world->seats[node];
    struct slice slice;
    while (has_room(world, seat) && world->free_count > 0) {
        uint32_t most = faults_are_many(&seat->faults) ? 1 : seat->bound - seat->lines;
        if (most > SLICE_LINES) most = SLICE_LINES;
        if (!take_pending(world, node, most, &slice) && !take_leased(world, seat, most, &slice))
            return;
        give(world, node, &slice);
    }
    if (seat->lines > LINES_MAX) wrong(world, "a node got more lines than it may have");
}

/* --- ends --- */

static void count_lines(struct world *world, const struct slice *slice, uint32_t count) {
    struct batch *batch = &world->batches[slice->batch];
    for (uint32_t line = slice->first; line < slice->first + count; line++) {
        uint64_t bit = UINT64_C(1) << (line & 63);
        if (batch->bits[line >> 6] & bit) wrong(world, "a line counted twice");
        batch->bits[line >> 6] |= bit;
    }
    batch->done += count;
    world->done += count;
}

static void end_job(struct world *world, struct seat *seat, uint64_t id, struct slice *ret_slice,
                    bool *ret_found) {
    uint64_t place;
    *ret_found = job_set_take(&seat->jobs, id, &place);
    if (!*ret_found) return;
    *ret_slice = world->slices[place];
    world->free_slices[world->free_count++] = (uint32_t)place;
    seat->lines -= ret_slice->count;
}

static void take_back(struct world *world, struct seat *seat, const struct message *message) {
    uint64_t *place = job_set_find(&seat->jobs, message->slice.id);
    if (!place) return;
    struct slice *slice = &world->slices[*place], ended;
    bool found;
    uint32_t count = message->count < slice->count ? message->count : slice->count;
    slice->count -= count;
    seat->lines -= count;
    slice->avoids = message->node + 1;
    put_back(world, slice, slice->first + slice->count, count);
    if (slice->count == 0) end_job(world, seat, message->slice.id, &ended, &found);
}

static void take_error(struct world *world, uint32_t node, struct slice *slice) {
    struct seat *seat = &world->seats[node];
    for (uint32_t i = 0; i < slice->count; i++)
        world->sick += faults_note(&seat->faults, now_ns(world));
    slice->avoids = node + 1;
    if (++slice->tries < TRIES_MAX) {
        put_back(world, slice, slice->first, slice->count);
        return;
    }
    world->errors += slice->count;
    wrong(world, "a line got an error record");
}

void server_take(struct world *world, const struct message *message) {
    struct seat *seat = &world->seats[message->node];
    struct slice slice;
    bool found;
    if (message->word == WORD_BACK) {
        take_back(world, seat, message);
        return;
    }
    end_job(world, seat, message->slice.id, &slice, &found);
    if (!found) {
        world->late += message->count;
        return;
    }
    seat->answers += message->count;
    if (message->word == WORD_ERROR) {
        take_error(world, message->node, &slice);
    } else {
        struct batch *batch = &world->batches[slice.batch];
        double took_s = world->now_s - slice.given_s;
        faults_end(&seat->faults);
        if (!is_slow(seat)) pace_took(&batch->longest, world->now_s, took_s);
        count_lines(world, &slice, message->count);
        put_back(world, &slice, slice.first + message->count, slice.count - message->count);
    }
    server_fill(world, message->node);
}

/* --- what is lost --- */

/* Places that are free again. The runner does so with what is left of leases, and here lost slices
 * are, too, so that ranges meet in all ways. */
static void free_places(struct world *world, uint64_t batch, uint32_t first, uint32_t count) {
    if (count == 0) return;
    world->queue->ops->give_back(
        world->queue, &(struct queue_lease){.batch = batch, .first = first, .count = count});
    world->batches[batch].order.pool = 1;
    world->is_dry = false;
}

static void take_all(struct world *world, uint32_t node, bool only_missing) {
    struct seat *seat = &world->seats[node];
    size_t count = 0;
    uint64_t *ids = mem_new(seat->jobs.count + 1, sizeof *ids);
    for (size_t i = 0; i < seat->jobs.capacity; i++)
        if (seat->jobs.entries[i].id) ids[count++] = seat->jobs.entries[i].id;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *held = only_missing ? job_set_find(&world->fars[node].held, ids[i]) : NULL;
        struct slice *slice = &world->slices[*job_set_find(&seat->jobs, ids[i])], ended;
        uint32_t kept = held ? (uint32_t)*held : 0, lines = slice->count - kept;
        bool found;
        if (only_missing)
            put_back(world, slice, slice->first + kept, lines);
        else
            free_places(world, slice->batch, slice->first, lines);
        world->returned += lines;
        slice->count = kept;
        seat->lines -= lines;
        if (kept == 0) end_job(world, seat, ids[i], &ended, &found);
    }
    free(ids);
}

static void lose(struct world *world, uint32_t node) {
    struct seat *seat = &world->seats[node];
    take_all(world, node, false);
    free_places(world, seat->lease.batch, seat->lease.first, seat->lease.count);
    world->leased -= seat->lease.count;
    if (seat->lines != 0) wrong(world, "a node that was lost has lines");
    job_set_release(&seat->jobs);
    *seat = (struct seat){.is_known = false};
    world->lost_nodes++;
}

void server_sync(struct world *world) {
    struct message message;
    while (message_take(&world->results, 1e18, &message)) server_take(world, &message);
    world->work.count = 0; /* its round is over */
    for (uint32_t i = 0; i < world->settings.nodes; i++)
        if (world->seats[i].is_known && world->fars[i].is_alive) take_all(world, i, true);
}

/* --- once per second --- */

static void measure(struct world *world) {
    double best = 0;
    for (uint32_t i = 0; i < world->settings.nodes; i++) {
        struct seat *seat = &world->seats[i];
        bool busy = seat->lines > running_of(seat);
        if (busy && seat->measured_s > 0)
            pace_note(&seat->pace, (double)(seat->answers - seat->answers_seen),
                      world->now_s - seat->measured_s);
        seat->answers_seen = seat->answers;
        seat->measured_s = busy ? world->now_s : 0;
        if (pace_rate(&seat->pace) > best && !faults_are_many(&seat->faults))
            best = pace_rate(&seat->pace);
    }
    for (uint32_t i = 0; i < world->settings.nodes; i++) {
        struct seat *seat = &world->seats[i];
        double rate = pace_rate(&seat->pace);
        seat->slowness = rate > 0 ? pace_slowness(rate, best) : 0;
        seat->bound = pace_bound(rate, running_of(seat), LINES_MAX);
    }
}

static void ask(struct world *world, uint32_t node, enum word word, const struct slice *slice,
                uint32_t count) {
    message_send(world, &world->work, node, word, slice, count);
    world->recalled += count;
}

static void ask_overdue(struct world *world, uint32_t node) {
    struct seat *seat = &world->seats[node];
    for (size_t i = 0; i < seat->jobs.capacity; i++) {
        if (seat->jobs.entries[i].id == 0) continue;
        struct slice *slice = &world->slices[seat->jobs.entries[i].value];
        double longest_s = pace_longest_s(&world->batches[slice->batch].longest);
        if (slice->was_overdue || !pace_is_overdue(world->now_s - slice->given_s, longest_s))
            continue;
        slice->was_overdue = true;
        ask(world, node, WORD_CANCEL, slice, slice->count);
    }
}

static void tail(struct world *world) {
    uint32_t nodes = world->settings.nodes, room = 0;
    const struct slice none = {0};
    if (!world->is_dry || world->leased > 0) return;
    for (uint32_t i = 0; i < nodes; i++) {
        struct seat *seat = &world->seats[i];
        bool takes = has_room(world, seat) && !is_slow(seat) && !faults_are_many(&seat->faults);
        world->workers[i] = worker_of(seat);
        if (!takes) world->workers[i].room = 0;
        room += world->workers[i].room;
    }
    double even_s = pace_even_s(world->workers, nodes);
    for (uint32_t i = 0; i < nodes && even_s > 0; i++) {
        uint32_t lines = pace_recall(&world->workers[i], even_s);
        if (lines > room) lines = room;
        room -= lines;
        if (lines > 0 && world->seats[i].is_known) ask(world, i, WORD_RECALL, &none, lines);
    }
    for (uint32_t i = 0; i < nodes && room > 0; i++) ask_overdue(world, i);
}

void server_look(struct world *world) {
    for (uint32_t i = 0; i < world->settings.nodes; i++)
        if (world->seats[i].lost_s > 0 && world->now_s >= world->seats[i].lost_s) lose(world, i);
    measure(world);
    for (uint32_t i = 0; i < world->batch_count; i++)
        world->batches[i].order.lines_done = world->batches[i].done;
    (void)order_tend(&world->order, now_ns(world), (int64_t)world->now_s);
    for (uint32_t i = 0; i < world->settings.nodes; i++) server_fill(world, i);
    tail(world);
}
