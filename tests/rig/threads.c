/* SPDX-License-Identifier: Apache-2.0 */
#include "threads.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define THREADS_MAX 96
#define GROUPS_MAX 8
#define STACK_BYTES ((size_t)512 << 10)
#define NEVER INT64_MAX
#define SWITCHES_MAX 3000000u                 /* a life with more is taken to go round in circles */
#define LIFE_NS (INT64_C(86400) * 1000000000) /* likewise one of a day */
#define SPURIOUS 256u                         /* one of so many waits ends without a cause */

enum state { NONE, READY, WAITS, DONE };

struct thread {
    enum state state;
    void *stack; /* where it stopped */
    void *(*main)(void *);
    void *argument, *result;
    const void *awaited; /* the mutex, condition or thread that it waits for */
    int64_t due_ns;
    bool timed_out;
    int errno_value;
    uint32_t group;
};

/* Threads that live and die together, as those of a process. */
struct group {
    int64_t held_until_ns; /* none of them goes on before */
    int64_t asleep_ns;     /* how long its machine slept: its clock lags by that */
    int64_t wall_ms;       /* what its wall clock is ahead of the world's */
};

/* The wrapped objects lie in the memory of those of the C library; all zero is a new one. */
struct mutex {
    uint32_t owner; /* number of the thread and 1; 0: free */
    uint32_t waiters;
};

struct rwlock {
    uint32_t writer, readers;
};

static struct thread threads[THREADS_MAX];
static struct group groups[GROUPS_MAX];
static uint32_t count, current;
static struct threads_world world;
static uint64_t switches;
static char *stacks;

/* Saves the registers that a call keeps, and goes on at another stack. */
void rig_switch(void **ret_stack, void *stack);
__asm__(".text\n"
        ".globl rig_switch\n"
        ".type rig_switch,@function\n"
        "rig_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size rig_switch, . - rig_switch\n");

void threads_begin(const struct threads_world *given) {
    world = *given;
    memset(threads, 0, sizeof threads);
    memset(groups, 0, sizeof groups);
    if (!stacks)
        stacks = mmap(NULL, THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(stacks != MAP_FAILED);
    threads[0].state = READY;
    count = 1;
    current = 0;
    switches = 0;
}

uint64_t threads_switches(void) {
    return switches;
}

void threads_pass_ns(int64_t ns) {
    *world.now_ns += ns;
}

/* --- groups --- */

void threads_enter(uint32_t group) {
    assert(group < GROUPS_MAX);
    threads[current].group = group;
}

uint32_t threads_group(void) {
    return threads[current].group;
}

void threads_end(uint32_t group) {
    assert(group != threads[current].group);
    for (uint32_t i = 0; i < count; i++)
        if (threads[i].group == group) threads[i] = (struct thread){0};
    groups[group].held_until_ns = 0;
}

void threads_hold(uint32_t group, int64_t ns, bool also_clock) {
    int64_t until_ns = *world.now_ns + ns;
    if (groups[group].held_until_ns < until_ns) groups[group].held_until_ns = until_ns;
    if (!also_clock) return;
    groups[group].asleep_ns += ns;
    for (uint32_t i = 0; i < count; i++)
        if (threads[i].group == group && threads[i].state == WAITS && threads[i].due_ns != NEVER)
            threads[i].due_ns += ns;
}

void threads_set_wall(uint32_t group, int64_t wall_ms) {
    groups[group].wall_ms = wall_ms;
}

static const struct group *own_group(void) {
    return &groups[threads[current].group];
}

/* When the thread can go on. */
static int64_t ready_ns(const struct thread *thread) {
    if (thread->state != READY && thread->state != WAITS) return NEVER;
    int64_t due_ns = thread->state == READY ? 0 : thread->due_ns;
    int64_t held_ns = groups[thread->group].held_until_ns;
    return due_ns > held_ns ? due_ns : held_ns;
}

/* --- choosing --- */

static void go_to(uint32_t next) {
    if (next == current) return;
    struct thread *from = &threads[current], *to = &threads[next];
    if (++switches > SWITCHES_MAX) world.fail("the life goes round in circles (liveness)");
    from->errno_value = errno;
    current = next;
    rig_switch(&from->stack, to->stack);
    errno = threads[current].errno_value;
}

/* Lets the clock move on to the next moment at which a thread can go on. */
static void pass_time(void) {
    int64_t due_ns = NEVER;
    for (uint32_t i = 0; i < count; i++)
        if (ready_ns(&threads[i]) < due_ns) due_ns = ready_ns(&threads[i]);
    if (due_ns == NEVER) world.fail("all threads wait for ever (liveness)");
    if (*world.now_ns < due_ns) *world.now_ns = due_ns;
    if (*world.now_ns > LIFE_NS * 30) world.fail("a month has passed (liveness)");
    for (uint32_t i = 0; i < count; i++) {
        struct thread *thread = &threads[i];
        if (thread->state != WAITS || ready_ns(thread) > *world.now_ns) continue;
        thread->state = READY;
        thread->timed_out = true;
    }
}

/* Goes on with a drawn thread, maybe the current one. */
static void choose(void) {
    for (;;) {
        uint32_t ready[THREADS_MAX], ready_count = 0;
        for (uint32_t i = 0; i < count; i++)
            if (ready_ns(&threads[i]) <= *world.now_ns) ready[ready_count++] = i;
        if (ready_count > 0) {
            uint32_t next = ready[ready_count > 1 ? rng_below(&world.draws, ready_count) : 0];
            if (threads[next].state == WAITS) threads[next].timed_out = true;
            threads[next].state = READY;
            go_to(next);
            return;
        }
        pass_time();
    }
}

void threads_may_switch(void) {
    *world.now_ns += 200;
    if (count < 2 || world.preempt == 0) return;
    if (world.preempt == 1 || rng_below(&world.draws, world.preempt) == 0) choose();
}

/* Waits for `awaited` or the deadline. False if the deadline came first. */
static bool wait_for(const void *awaited, int64_t due_ns) {
    struct thread *thread = &threads[current];
    thread->state = WAITS;
    thread->awaited = awaited;
    thread->due_ns = due_ns;
    thread->timed_out = false;
    choose();
    thread->awaited = NULL;
    return !thread->timed_out;
}

static void wake(const void *awaited, bool all) {
    uint32_t found[THREADS_MAX], found_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (threads[i].state == WAITS && threads[i].awaited == awaited) found[found_count++] = i;
    if (found_count == 0) return;
    uint32_t only = all || found_count == 1 ? 0 : (uint32_t)rng_below(&world.draws, found_count);
    for (uint32_t i = 0; i < found_count; i++)
        if (all || i == only) threads[found[i]].state = READY;
}

void threads_sleep_ns(int64_t ns) {
    wait_for(NULL, *world.now_ns + ns);
}

bool threads_wait_until(const void *what, int64_t due_ns) {
    return wait_for(what, due_ns);
}

void threads_wake(const void *what) {
    wake(what, true);
}

/* --- threads --- */

static void first(void) {
    struct thread *thread = &threads[current];
    thread->result = thread->main(thread->argument);
    thread->state = DONE;
    wake(thread, true);
    choose();
    abort();
}

int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument);
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          void *(*main)(void *), void *argument) {
    (void)attributes;
    uint32_t place = 0; /* that of a thread whose group has ended is free */
    while (place < count && threads[place].state != NONE) place++;
    assert(place < THREADS_MAX);
    struct thread *thread = &threads[place];
    *thread = (struct thread){
        .state = READY, .main = main, .argument = argument, .group = threads[current].group};
    void **top = (void **)(void *)(stacks + (place + 1) * STACK_BYTES);
    top[-1] = NULL;                     /* no caller; keeps the stack aligned */
    top[-2] = (void *)(uintptr_t)first; /* where rig_switch returns to */
    thread->stack = &top[-8];           /* behind six registers */
    *ret_thread = (pthread_t)place;
    if (place == count) count++;
    threads_may_switch();
    return 0;
}

int __wrap_pthread_join(pthread_t number, void **ret_result);
int __wrap_pthread_join(pthread_t number, void **ret_result) {
    struct thread *thread = &threads[number];
    while (thread->state != DONE) wait_for(thread, NEVER);
    if (ret_result) *ret_result = thread->result;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t number, const char *name);
int __wrap_pthread_setname_np(pthread_t number, const char *name) {
    (void)number, (void)name;
    return 0;
}

/* --- mutexes --- */

static struct mutex *mutex_of(pthread_mutex_t *mutex) {
    return (struct mutex *)(void *)mutex;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    (void)attributes;
    *mutex_of(mutex) = (struct mutex){0};
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    if (mutex_of(mutex)->owner) world.fail("a mutex is destroyed while it is held");
    return 0;
}

static void lock(struct mutex *mutex) {
    if (mutex->owner == current + 1) world.fail("a thread takes a lock that it has");
    while (mutex->owner) {
        mutex->waiters++;
        wait_for(mutex, NEVER);
        mutex->waiters--;
    }
    mutex->owner = current + 1;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    threads_may_switch();
    lock(mutex_of(mutex));
    return 0;
}

static void unlock(struct mutex *mutex) {
    if (mutex->owner != current + 1) world.fail("a thread gives a lock back that it has not");
    mutex->owner = 0;
    if (mutex->waiters) wake(mutex, true);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    unlock(mutex_of(mutex));
    threads_may_switch();
    return 0;
}

/* --- conditions --- */

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes) {
    (void)cond, (void)attributes;
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond);
int __wrap_pthread_cond_destroy(pthread_cond_t *cond) {
    for (uint32_t i = 0; i < count; i++)
        if (threads[i].state == WAITS && threads[i].awaited == cond)
            world.fail("a condition is destroyed while a thread waits for it");
    return 0;
}

static bool wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t due_ns) {
    bool in_time = true;
    unlock(mutex_of(mutex));
    if (rng_below(&world.draws, SPURIOUS) != 0)
        in_time = wait_for(cond, due_ns);
    else
        choose();
    lock(mutex_of(mutex));
    return in_time;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
    wait_on(cond, mutex, NEVER);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *due);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *due) {
    int64_t due_ns = (int64_t)due->tv_sec * 1000000000 + due->tv_nsec;
    due_ns += own_group()->asleep_ns;
    return wait_on(cond, mutex, due_ns) ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond) {
    wake(cond, false);
    threads_may_switch();
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond) {
    wake(cond, true);
    threads_may_switch();
    return 0;
}

/* --- locks of readers and writers --- */

static struct rwlock *rwlock_of(pthread_rwlock_t *lock) {
    return (struct rwlock *)(void *)lock;
}

int __wrap_pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes);
int __wrap_pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attributes) {
    (void)attributes;
    *rwlock_of(lock) = (struct rwlock){0};
    return 0;
}

int __wrap_pthread_rwlock_destroy(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_destroy(pthread_rwlock_t *lock) {
    (void)lock;
    return 0;
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock) {
    struct rwlock *own = rwlock_of(lock);
    threads_may_switch();
    while (own->writer) wait_for(own, NEVER);
    own->readers++;
    return 0;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock) {
    struct rwlock *own = rwlock_of(lock);
    threads_may_switch();
    while (own->writer || own->readers) wait_for(own, NEVER);
    own->writer = 1;
    return 0;
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock);
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock) {
    struct rwlock *own = rwlock_of(lock);
    if (own->writer)
        own->writer = 0;
    else
        own->readers--;
    wake(own, true);
    threads_may_switch();
    return 0;
}

/* --- clocks and chance --- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now) {
    int64_t now_ns = *world.now_ns += 100;
    const struct group *group = own_group();
    if (clock == CLOCK_REALTIME)
        now_ns += (*world.wall_ms + group->wall_ms) * 1000000 + UNIX_S * INT64_C(1000000000);
    else
        now_ns -= group->asleep_ns;
    ret_now->tv_sec = now_ns / 1000000000;
    ret_now->tv_nsec = now_ns % 1000000000;
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left) {
    (void)ret_left;
    threads_sleep_ns((int64_t)time->tv_sec * 1000000000 + time->tv_nsec);
    return 0;
}

void __wrap_randombytes_buf(void *ret_bytes, size_t size);
void __wrap_randombytes_buf(void *ret_bytes, size_t size) {
    unsigned char *to = ret_bytes;
    for (size_t i = 0; i < size; i++) to[i] = (unsigned char)(rng_next(&world.bytes) >> 32);
}
