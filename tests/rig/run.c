/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "base/log.h"
#include "calls.h"
#include "life.h"
#include "nodes.h"
#include "shrink.h"
#include "vfs.h"

#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFE_S 60            /* a life of more seconds hangs */
#define CAPACITY_BLOCKS 8192 /* 32 MiB */
#define SAID_BYTES 8192
#define NO_LIFE 1000u  /* no fault of a plan is in it */
#define NEAR_CALLS 12u /* calls at which a death is tried when an event is taken out */

struct world *world;

static struct disk *formatted;
static struct world *aside; /* while a backup is restored */
static int said_fd;
static char said[SAID_BYTES];

void world_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->wrong, sizeof world->wrong, format, arguments);
    va_end(arguments);
    _exit(LIFE_WRONG);
}

struct rng world_rng(uint64_t purpose) {
    return (struct rng){rng_at(world->plan.seed, purpose * 64 + world->life)};
}

const char *run_said(void) {
    return said;
}

/* Runs `life` in a child; returns how it ended, as waitpid says. */
static int run_child(void (*life)(void)) {
    int status;
    if (ftruncate(said_fd, 0) != 0) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        lseek(said_fd, 0, SEEK_SET);
        dup2(said_fd, STDERR_FILENO);
        alarm(LIFE_S);
        life();
        _exit(LIFE_DONE);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    return status;
}

static void read_said(void) {
    ssize_t bytes = pread(said_fd, said, sizeof said - 1, 0);
    said[bytes > 0 ? bytes : 0] = '\0';
}

static void make_root(void) {
    disk_format(&world->disk, CAPACITY_BLOCKS);
    if (disk_make(&world->disk, RIG_ROOT, DISK_FOLDER, 0700) < 0) abort();
    disk_sync(&world->disk, DISK_ROOT, true);
}

static void *map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

void run_begin(void) {
    vfs_prepare();
    world = map(sizeof *world);
    formatted = map(sizeof *formatted);
    aside = map(sizeof *aside);
    said_fd = memfd_create("rig", 0);
    if (said_fd < 0) abort();
    make_root();
    world->capacity = CAPACITY_BLOCKS;
    world->plan = (struct plan){.seed = 1, .workers = 1};
    int status = run_child(life_format);
    read_said();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != LIFE_DONE) {
        fprintf(stderr, "the disk cannot be formatted: %s %s\n", world->wrong, said);
        abort();
    }
    struct rng unused = {0};
    disk_cut(&world->disk, &unused, DISK_EVERYTHING);
    disk_collect(&world->disk);
    disk_copy(formatted, &world->disk);
}

static const struct event *death_of(uint32_t life) {
    for (uint32_t i = 0; i < world->plan.event_count; i++) {
        const struct event *event = &world->plan.events[i];
        if (event->kind == EVENT_CUT && event->life == life) return event;
    }
    return NULL;
}

static void begin_run(const struct plan *plan) {
    size_t head = offsetof(struct world, disk);
    memset(world, 0, head);
    world->plan = *plan;
    world->capacity = CAPACITY_BLOCKS;
    if (plan->is_fresh)
        make_root();
    else
        disk_copy(&world->disk, formatted);
    world->was_open = !plan->is_fresh;
}

void run_bury(bool is_cut) {
    struct rng rng = world_rng('d');
    const struct event *cut = death_of(world->life);
    world->cuts += is_cut;
    if (is_cut && cut) disk_cut(&world->disk, &rng, (enum disk_luck)cut->value);
    disk_collect(&world->disk);
    world->full_until_ns = 0;
    world->disk.capacity = world->capacity;
    world->life++;
    world->call = 0;
    world->has_error = false;
}

static bool wrong(const char *what, int number) {
    if (!*world->wrong) {
        const char *line = strstr(said, "Assertion");
        snprintf(world->wrong, sizeof world->wrong, "%s %d: %.300s", what, number,
                 line ? line : said);
    }
    return false;
}

/* Restores the newest backup on a copy of the disk. Nothing fails meanwhile. */
static bool restores(void) {
    size_t head = offsetof(struct world, disk);
    if (world->backup_generation == 0) return true;
    memcpy(aside, world, head);
    disk_copy(&aside->disk, &world->disk);
    world->life = NO_LIFE;
    world->disk.capacity = DISK_BLOCKS;
    int status = run_child(life_restore);
    bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == LIFE_DONE;
    if (!is_done) read_said();
    if (!is_done && !*world->wrong) (void)wrong("the restore ended with", status);
    memcpy(aside->wrong, world->wrong, sizeof aside->wrong);
    memcpy(world, aside, head);
    disk_copy(&world->disk, &aside->disk);
    return is_done;
}

bool run_plan(const struct plan *plan) {
    begin_run(plan);
    for (;;) {
        int status = run_child(plan->nodes ? nodes_run : life_run);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (code == LIFE_DONE) return restores();
        if (code != LIFE_CUT && code != LIFE_KILLED) read_said();
        bool gave_up = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && world->has_error &&
                       !strstr(said, "Assertion");
        if (code != LIFE_CUT && code != LIFE_KILLED && !gave_up)
            return wrong(code < 0 ? "the process ended by signal" : "the process ended with",
                         code < 0 ? WTERMSIG(status) : code);
        if (world->life > 4 * PLAN_LIVES_MAX) return wrong("too many lives", (int)world->life);
        run_bury(code == LIFE_CUT);
        if (!restores()) return false;
    }
}

/* --- shrinking --- */

static bool runs_well(const void *plan) {
    return run_plan(plan);
}

static void drop(struct plan *plan, uint32_t at) {
    memmove(&plan->events[at], &plan->events[at + 1],
            (--plan->event_count - at) * sizeof *plan->events);
}

/* Without a death all later ones come a life earlier. */
static void drop_death(struct plan *plan, uint32_t at) {
    struct event event = plan->events[at];
    drop(plan, at);
    if (event.kind != EVENT_CUT && event.kind != EVENT_KILL) return;
    for (uint32_t i = 0; i < plan->event_count; i++)
        if (event_is_fault(plan->events[i].kind) && plan->events[i].life > event.life)
            plan->events[i].life--;
}

static struct event *last_death(struct plan *plan) {
    struct event *last = NULL;
    for (uint32_t i = 0; i < plan->event_count; i++) {
        struct event *event = &plan->events[i];
        if (event->kind != EVENT_CUT && event->kind != EVENT_KILL) continue;
        if (!last || event->life > last->life) last = event;
    }
    return last;
}

/* Without an event the others come earlier. So the last death is tried at other calls, too. */
static bool fails_near(struct plan *plan, struct shrink *shrink) {
    if (shrink_fails(shrink, plan)) return true;
    struct event *death = last_death(plan);
    if (!death) return false;
    uint32_t most = death->call;
    if (world->life == death->life && world->call < most) most = world->call;
    for (uint32_t back = 0; back < NEAR_CALLS && back < most; back++) {
        death->call = most - back;
        if (shrink_fails(shrink, plan)) return true;
    }
    return false;
}

static bool drop_events(struct plan *plan, struct shrink *shrink) {
    bool has_dropped = false;
    for (uint32_t i = plan->event_count; i-- > 0;) {
        struct plan smaller = *plan;
        drop_death(&smaller, i);
        if (!fails_near(&smaller, shrink)) continue;
        *plan = smaller;
        has_dropped = true;
    }
    return has_dropped;
}

static void make_plainer(struct plan *plan, struct shrink *shrink) {
    struct plan smaller = *plan;
    smaller.trouble = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.failing = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.delay_ms = 40;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.preempt = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.line_padding = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.http = plan->http > 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.http = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.nodes = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.workers = plan->nodes > 1 ? plan->nodes : 1;
    shrink_try(shrink, plan, &smaller);
    for (uint32_t i = 0; i < plan->event_count; i++) {
        smaller = *plan;
        if (plan->events[i].kind == EVENT_CUT) smaller.events[i].value = DISK_NOTHING;
        if (plan->events[i].kind == EVENT_UPLOAD) smaller.events[i].value = 1;
        shrink_try(shrink, plan, &smaller);
    }
}

unsigned run_shrink(struct plan *plan) {
    struct shrink shrink;
    shrink_begin(&shrink, runs_well, world->wrong, sizeof *plan);
    make_plainer(plan, &shrink);
    while (drop_events(plan, &shrink)) continue;
    make_plainer(plan, &shrink);
    while (drop_events(plan, &shrink)) continue;
    if (run_plan(plan)) abort(); /* it does not repeat: a bug of the rig */
    return shrink.runs;
}
