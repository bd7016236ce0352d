/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include "../rig/shrink.h"
#include "../rig/threads.h"

#include "base/log.h"
#include "copy/restore.h"
#include "events.h"
#include "ledger.h"
#include "storage.h"
#include "unit/tree.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_S 60 /* a run of more seconds hangs */
#define SAID_BYTES 4096

struct sim *sim;
static int said_fd;

void sim_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim->wrong, sizeof sim->wrong, format, arguments);
    va_end(arguments);
    _exit(1);
}

struct rng sim_rng(uint64_t purpose) {
    return (struct rng){rng_at(sim->plan.seed, purpose)};
}

void sim_note(const char *format, ...) {
    char *line = sim->trace[sim->trace_count++ % SIM_TRACE];
    int at = snprintf(line, sizeof *sim->trace, "%8lld ms  ", (long long)(sim->now_ns / 1000000));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + at, sizeof *sim->trace - (size_t)at, format, arguments);
    va_end(arguments);
    if (sim->is_verbose) dprintf(STDOUT_FILENO, "# %s\n", line);
}

static void *map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

void sim_begin(bool is_verbose) {
    sim = map(sizeof *sim);
    sim->is_verbose = is_verbose;
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(sim->root, sizeof sim->root, "%s/quern-sim-copy-XXXXXX", root);
    said_fd = memfd_create("sim_copy", 0);
    if (!mkdtemp(sim->root) || said_fd < 0) abort();
}

void sim_end(void) {
    tree_remove(sim->root);
}

/* All that clients were told is in the copy, and what is there is whole. */
static void check_end(const char *name) {
    static const volatile bool never = false;
    struct copy_restored restored;
    struct error error;
    struct state state;
    char dir[100];
    snprintf(dir, sizeof dir, "%.60s/%s", sim->root, name);
    if (copy_restore_from("/sim", dir, &never, &restored, &error) != OK)
        sim_fail("the copy cannot be restored: %s (restore)", error.text);
    ledger_check(dir, INT64_MAX, &state);
}

/* In a copy of this process, which alone ends the servers. */
void sim_check_copy(void) {
    static unsigned times;
    const struct sim before = *sim;
    char name[32];
    int status;
    snprintf(name, sizeof name, "restored%u", ++times);
    pid_t child = fork();
    if (child == 0) {
        alarm(RUN_S);
        events_end();
        check_end(name);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) _exit(1);
    *sim = before;
}

static void run(void) {
    log_set_level(LOG_ERROR);
    static const int64_t no_ms = 0;
    const struct threads_world world = {.now_ns = &sim->now_ns,
                                        .wall_ms = &no_ms,
                                        .preempt = sim->plan.preempt,
                                        .draws = sim_rng('t'),
                                        .bytes = sim_rng('b'),
                                        .fail = sim_fail};
    threads_begin(&world);
    events_run();
    sim_check_copy();
    events_quiet();
    events_end();
    storage_check_needed();
    check_end("quiet");
    _exit(0);
}

static void read_said(int status) {
    char said[SAID_BYTES] = {0};
    if (pread(said_fd, said, sizeof said - 1, 0) < 0) abort();
    const char *line = strstr(said, "Assertion");
    snprintf(sim->wrong, sizeof sim->wrong, "the process ended with status %x: %.300s", status,
             line ? line : said);
}

bool sim_run(const struct plan *plan) {
    const struct sim fresh = {.plan = *plan, .is_verbose = sim->is_verbose};
    char root[sizeof sim->root];
    int status;
    memcpy(root, sim->root, sizeof root);
    *sim = fresh;
    memcpy(sim->root, root, sizeof root);
    tree_remove(root);
    if (mkdir(root, 0700) != 0 || ftruncate(said_fd, 0) != 0) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        lseek(said_fd, 0, SEEK_SET);
        dup2(said_fd, STDERR_FILENO);
        alarm(RUN_S);
        run();
    }
    if (child < 0 || waitpid(child, &status, 0) != child) abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (!*sim->wrong) read_said(status);
    return false;
}

/* --- shrinking --- */

static bool runs_well(const void *plan) {
    return sim_run(plan);
}

static bool take_out(struct plan *plan, struct shrink *shrink) {
    bool has_taken = false;
    for (uint32_t i = plan->event_count; i-- > 0;) {
        struct plan smaller = *plan;
        memmove(&smaller.events[i], &smaller.events[i + 1],
                (--smaller.event_count - i) * sizeof *smaller.events);
        if (!shrink_fails(shrink, &smaller)) continue;
        *plan = smaller;
        has_taken = true;
    }
    return has_taken;
}

static void make_plainer(struct plan *plan, struct shrink *shrink) {
    struct plan smaller = *plan;
    smaller.trouble = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.preempt = 0;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.has_large = false;
    shrink_try(shrink, plan, &smaller);
    smaller = *plan;
    smaller.servers = 2;
    shrink_try(shrink, plan, &smaller);
}

void sim_explain(struct plan *plan) {
    struct shrink shrink;
    char text[128];
    uint32_t before = plan->event_count;
    printf("# seed %llu: %s\n", (unsigned long long)plan->seed, sim->wrong);
    shrink_begin(&shrink, runs_well, sim->wrong, sizeof *plan);
    make_plainer(plan, &shrink);
    while (take_out(plan, &shrink)) continue;
    make_plainer(plan, &shrink);
    if (sim_run(plan)) abort(); /* it does not repeat: a bug of the simulator */
    printf(
        "# %u servers, preempt %u, trouble %u, ways of up to %lld ms; %u events of %u are left\n",
        plan->servers, plan->preempt, plan->trouble, (long long)plan->slow_ms, plan->event_count,
        before);
    for (uint32_t i = 0; i < plan->event_count; i++) {
        plan_write_event(&plan->events[i], text, sizeof text);
        printf("#   event   %s\n", text);
    }
    uint64_t end = sim->trace_count, from = end > SIM_TRACE ? end - SIM_TRACE : 0;
    for (; from < end; from++) printf("#   %s\n", sim->trace[from % SIM_TRACE]);
    printf("#   VIOLATED: %s\n", sim->wrong);
}
