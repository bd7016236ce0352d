/* SPDX-License-Identifier: Apache-2.0 */

/* Simulates a fleet: sim_cluster [--nodes N] [--lines N] [--seeds N] [--seed N] [--rate R]
 * [--no-faults]. Prints what each run did, and fails unless each line counted once and the makespan
 * is within 1.05 of the time in which the machines that were there could have done the work. */

#include "base/mem.h"
#include "tap.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_LINES 1000000
#define HOUR_S 3600.0
#define LOSS_PER_HOUR 0.05
#define SLOW_SHARE 0.01
#define SLOW_SPEED 0.01
#define BROKEN_SHARE 0.005
#define SEEN_MAX 4096
#define MAKESPAN_MAX 1.05

static void open_batches(struct world *world) {
    struct error error;
    uint64_t lines = world->settings.lines;
    world->batch_count = (uint32_t)((lines + BATCH_LINES - 1) / BATCH_LINES);
    world->batches = mem_new(world->batch_count, sizeof *world->batches);
    if (queue_open(&world->queue, "local", &error) != OK) abort();
    for (uint32_t i = 0; i < world->batch_count; i++) {
        struct batch *batch = &world->batches[i];
        uint64_t left = lines - (uint64_t)i * BATCH_LINES;
        batch->lines = left < BATCH_LINES ? (uint32_t)left : BATCH_LINES;
        batch->bits = mem_new(batch->lines / 64 + 1, sizeof *batch->bits);
        batch->order = (struct order_entry){.owner = batch,
                                            .age = i,
                                            .tier = 3,
                                            .pool = 1,
                                            .deadline_unix_s = 30 * 86400,
                                            .lines_total = batch->lines,
                                            .line_cost = 1};
        order_add(&world->order, &batch->order);
        world->queue->ops->add(world->queue,
                               &(struct queue_work){.batch = i, .count = batch->lines});
    }
}

static struct world *world_open(const struct settings *settings) {
    struct world *world = mem_new(1, sizeof *world);
    uint32_t nodes = settings->nodes, slices = nodes * SLICES_MAX;
    world->settings = *settings;
    world->rng = (struct rng){settings->seed};
    world->now_s = 1;
    world->fars = mem_new(nodes, sizeof *world->fars);
    world->seats = mem_new(nodes, sizeof *world->seats);
    world->workers = mem_new(nodes, sizeof *world->workers);
    world->heap = mem_new(nodes, sizeof *world->heap);
    world->heap_at = mem_new(nodes, sizeof *world->heap_at);
    world->slices = mem_new(slices, sizeof *world->slices);
    world->free_slices = mem_new(slices, sizeof *world->free_slices);
    for (uint32_t i = slices; i-- > 0;) world->free_slices[world->free_count++] = i;
    open_batches(world);
    for (uint32_t i = 0; i < nodes; i++) {
        struct far *far = &world->fars[i];
        double draw = rng_unit(&world->rng);
        far->rate = settings->rate * (0.5 + 0.5 * (double)rng_below(&world->rng, 3));
        far->is_broken = settings->has_faults && draw < BROKEN_SHARE;
        if (settings->has_faults && draw >= BROKEN_SHARE && draw < BROKEN_SHARE + SLOW_SHARE)
            far->rate *= SLOW_SPEED;
        far_start(world, i);
    }
    return world;
}

static void world_close(struct world *world) {
    world->queue->ops->close(world->queue);
    for (uint32_t i = 0; i < world->batch_count; i++) free(world->batches[i].bits);
    for (uint32_t i = 0; i < world->settings.nodes; i++) {
        job_set_release(&world->fars[i].held);
        job_set_release(&world->seats[i].jobs);
    }
    void *parts[] = {world->fars,    world->seats,      world->workers, world->heap,
                     world->heap_at, world->slices,     world->batches, world->free_slices,
                     world->pending, world->results.at, world->work.at, world->seen.at};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    free(world);
}

/* --- faults --- */

static void lose_machines(struct world *world) {
    double deaths = world->settings.nodes * LOSS_PER_HOUR / HOUR_S;
    for (; rng_unit(&world->rng) < deaths; deaths -= 1) {
        uint32_t node = (uint32_t)rng_below(&world->rng, world->settings.nodes);
        struct far *far = &world->fars[node];
        if (!far->is_alive) continue;
        far_kill(world, node);
        far->back_s = world->now_s + 120 + 600 * rng_unit(&world->rng);
        world->seats[node].lost_s = world->now_s + LOST_S;
    }
    for (uint32_t i = 0; i < world->settings.nodes; i++)
        if (!world->fars[i].is_alive && world->now_s >= world->fars[i].back_s) far_start(world, i);
}

/* The queue is emptied; a failover shows results again that were read before it. */
static void lose_queue(struct world *world, bool is_failover) {
    struct message message;
    world->work.count = world->results.count = 0;
    if (is_failover)
        while (message_take(&world->seen, 1e18, &message)) message_put(&world->results, &message);
    world->seen.count = 0;
    server_sync(world);
}

static void have_faults(struct world *world, uint64_t tick) {
    if (!world->settings.has_faults) return;
    lose_machines(world);
    if (tick % 3600 == 1800) lose_queue(world, false);
    if (tick % 3600 == 600) lose_queue(world, true);
}

/* --- a run --- */

static void check_lines(struct world *world, uint64_t taken) {
    uint64_t lines = world->leased + world->done + world->errors;
    for (size_t i = 0; i < world->pending_count; i++) lines += world->pending[i].count;
    for (uint32_t i = 0; i < world->settings.nodes; i++) {
        const struct job_set *jobs = &world->seats[i].jobs;
        uint64_t own = 0;
        for (size_t k = 0; k < jobs->capacity; k++)
            if (jobs->entries[k].id) own += world->slices[jobs->entries[k].value].count;
        if (own != world->seats[i].lines) wrong(world, "a node has other lines than were counted");
        lines += own;
    }
    if (lines != taken) wrong(world, "a line is nowhere, or in two places");
}

/* Places that the queue has given out and not got back. */
static uint64_t count_taken(struct world *world) {
    uint64_t lines = world->settings.lines;
    struct queue_lease lease;
    for (uint32_t i = 0; i < world->batch_count; i++) {
        struct queue_lease list[256];
        size_t count = 0;
        while (count < 256 && world->queue->ops->take(world->queue, i, 0, BATCH_LINES, &lease)) {
            list[count++] = lease;
            lines -= lease.count;
        }
        for (size_t k = 0; k < count; k++) world->queue->ops->give_back(world->queue, &list[k]);
    }
    return lines;
}

static void look(struct world *world, uint64_t tick) {
    have_faults(world, tick);
    server_look(world);
    if (tick % 128 == 0) check_lines(world, count_taken(world));
    world->offered += world->capacity;
    if (world->ideal_s == 0 && world->offered >= (double)world->settings.lines)
        world->ideal_s = world->now_s - 1;
    if (world->ideal_s > 0 && world->now_s > world->ideal_s * 2 + 1000)
        wrong(world, "the work does not end");
}

static void note_seen(struct world *world, const struct message *message) {
    struct message oldest;
    if (!world->settings.has_faults) return;
    if (world->seen.count == SEEN_MAX) (void)message_take(&world->seen, 1e18, &oldest);
    message_put(&world->seen, message);
}

static void run(struct world *world) {
    struct message message;
    double tick_s = world->now_s;
    for (uint64_t tick = 0; world->done < world->settings.lines && !world->wrong;) {
        double next_s = far_next_s(world) < tick_s ? far_next_s(world) : tick_s;
        if (message_take(&world->work, next_s, &message)) {
            world->now_s = message.due_s > world->now_s ? message.due_s : world->now_s;
            far_take(world, &message);
        } else if (message_take(&world->results, next_s, &message)) {
            world->now_s = message.due_s > world->now_s ? message.due_s : world->now_s;
            server_take(world, &message);
            note_seen(world, &message);
        } else if (next_s < tick_s) {
            far_answer(world);
        } else {
            world->now_s = tick_s;
            look(world, tick++);
            tick_s += 1;
        }
    }
}

/* Nodes that are slow or broken. */
static uint64_t count_odd(const struct world *world) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < world->settings.nodes; i++)
        count += world->fars[i].is_broken || world->fars[i].rate < world->settings.rate / 4;
    return count;
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void run_one(const struct settings *settings) {
    double begin_s = cpu_s();
    struct world *world = world_open(settings);
    run(world);
    double makespan_s = world->now_s - 1;
    if (world->ideal_s == 0) /* answers were a little shorter than the mean */
        world->ideal_s = makespan_s * (double)settings->lines / world->offered;
    if (!world->wrong) check_lines(world, count_taken(world));
    /* What a node has begun stays there, unless it is slow. */
    if (!world->wrong && world->wasted > 2 * ROOM_LINES * (count_odd(world) + world->lost_nodes))
        wrong(world, "too many lines ran twice at the end");
    if (!world->wrong && makespan_s > world->ideal_s * MAKESPAN_MAX)
        wrong(world, "the makespan is over 1.05 of the ideal");
    note("makespan %.0f s, ideal %.0f s, ratio %.4f; nodes lost %llu, sick %llu; lines given again "
         "%llu, asked back %llu, begun ones %llu, late %llu; %.1f s of processor time",
         makespan_s, world->ideal_s, makespan_s / world->ideal_s,
         (unsigned long long)world->lost_nodes, (unsigned long long)world->sick,
         (unsigned long long)world->returned, (unsigned long long)world->recalled,
         (unsigned long long)world->wasted, (unsigned long long)world->late, cpu_s() - begin_s);
    report(!world->wrong, "seed %llu: %llu lines on %u nodes%s%s",
           (unsigned long long)settings->seed, (unsigned long long)settings->lines, settings->nodes,
           world->wrong ? ": " : " count once, in time", world->wrong ? world->wrong : "");
    world_close(world);
}

int main(int argc, char **argv) {
    struct settings settings = {.nodes = 1000, .lines = 100000000, .rate = 10, .has_faults = true};
    uint64_t seeds = 1, first = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-faults") == 0) {
            settings.has_faults = false;
            continue;
        }
        if (strcmp(argv[i], "--nodes") == 0) settings.nodes = (uint32_t)strtoul(value, NULL, 10);
        if (strcmp(argv[i], "--lines") == 0) settings.lines = strtoull(value, NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0) seeds = strtoull(value, NULL, 10);
        if (strcmp(argv[i], "--seed") == 0) first = strtoull(value, NULL, 10);
        if (strcmp(argv[i], "--rate") == 0) settings.rate = strtod(value, NULL);
        i++;
    }
    if (settings.nodes == 0 || settings.lines == 0 || settings.rate <= 0) return 2;
    for (settings.seed = first; settings.seed < first + seeds; settings.seed++) run_one(&settings);
    return report_end();
}
