/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_internal: the inside of a worker_engine, shared by the calls of the runner
 * (worker_engine.c), the thread that keeps the child (supervisor.c), the child's death (death.c)
 * and the turns on a shared device (turn.c).
 *
 * Thread: as each group of members says.
 * Memory: see worker_engine.h. */

#include "workers/engine/child.h"
#include "workers/engine/turns.h"
#include "workers/engine/worker_engine.h"

#include <pthread.h>

#define NS_PER_MS 1000000
#define NS_PER_S INT64_C(1000000000)
#define WORKER_TOO_LARGE_MAX 16

enum worker_phase { PHASE_LOADING, PHASE_READY, PHASE_PARKED, PHASE_DOWN, PHASE_FAILED };

/* A job that was submitted and has no result yet. */
struct engine_job {
    uint64_t id;
    bool is_line;     /* no client waits for it: it can run later as well */
    bool is_recalled; /* cancelled to make room: it becomes OUTCOME_RETURNED */
};

struct worker_engine {
    struct worker worker; /* first */
    struct worker_events events;

    /* Constant after open. */
    char *program;
    char *dump_dir;   /* NULL: none */
    char **arguments; /* ending in NULL */
    struct buf hello; /* the payload, from which the names are borrowed */
    struct wire_names names;
    uint32_t jobs_max;
    int64_t hang_ns, load_ns, restart_delay_ms, close_ms, kill_ms;
    int64_t keep_usual_ms;
    struct turns *turns; /* NULL: not shared */
    uint32_t member;
    int wake_fd; /* an eventfd that wakes the thread: there are frames to send, or it closes */
    pthread_t thread;
    bool has_thread; /* false for a model that must not be loaded */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum worker_phase phase;
    /* The mark of the weights as they were at these facts of the file or folder. */
    int64_t mark_facts[4];
    bool has_mark;
    unsigned char mark[WORKER_IDENTITY_BYTES];
    char reason[ERROR_TEXT_BYTES]; /* why it is down or has failed */
    bool lacks_card;               /* its last start found no GPU, or no memory on it */
    pid_t held_pid;                /* a child that was killed and does not end; 0: none */
    bool is_closing;
    bool is_held;            /* an administrator holds its model unloaded */
    bool stays;              /* no client's wish makes it leave */
    bool is_retired;         /* its model was deleted: no name is served */
    bool is_leaving;         /* makes room on its device: takes no more jobs */
    bool is_asleep;          /* without turns: it has left, or leaves, until a job waits */
    int64_t keep_ms;         /* time without a job until it leaves; 0 or less: it stays */
    int64_t idle_ns;         /* when its last job ended, or it was loaded */
    bool had_line;           /* its last job was a line */
    bool wants_room;         /* submit has returned false since the last room event */
    struct buf out;          /* frames to send */
    struct engine_job *jobs; /* (jobs_max) in no order */
    uint32_t job_count;
    uint64_t
        too_large[WORKER_TOO_LARGE_MAX]; /* jobs that fit in no frame: the thread refuses them */
    uint32_t too_large_count;
    uint64_t restarts;
    pid_t process;         /* number of the child; 0: none */
    uint64_t memory_bytes; /* resident bytes of the child at the last ping */
    struct wire_stats stats;
    int64_t step_ms_max;     /* the longest step of all children */
    struct wire_stats ended; /* the sums of the counters of earlier children */
    int64_t moved_ns;        /* when it last made progress, as seen from here */
    struct buf ready_payload;
    struct wire_ready ready; /* READY of the first engine; its names are lent */
    struct buf foretold_payload;
    struct wire_ready foretold; /* what is known before; constant after open */
    bool has_ready;

    /* The thread's alone. */
    struct engine_child child;
    struct wire_reader reader;
    struct buf sending;
    size_t sent;
    int64_t watched_ns; /* when it was last watched */
    int64_t ping_due_ns;
    int64_t load_deadline_ns;
    uint32_t failures; /* deaths since the last result */
    bool has_told_fatal;
    bool has_told_no_card;  /* with WIRE_FLAG_NO_CARD */
    bool is_careful;        /* the last child that was READY ended by an error of its GPU */
    uint32_t same_failures; /* loads in a row that ended with the sentence in `reason` */
};

/* Whether a job can be taken; with the lock held. */
bool worker_engine_has_room(const struct worker_engine *engine);
/* Whether close was called; takes the lock. */
bool worker_engine_is_closing(struct worker_engine *engine);

/* Changes the phase, and the reason unless it is NULL; takes the lock. */
void worker_engine_set_phase(struct worker_engine *engine, enum worker_phase phase,
                             const char *reason);
/* Empties wake_fd. */
void worker_engine_drain_wakes(const struct worker_engine *engine);

/* --- death.c: the end of a child; without the lock --- */
/* Clears the state that belongs to the old child. */
void engine_death_forget(struct worker_engine *engine);
/* Tells that the child was killed and does not end. */
void engine_death_tell_held(struct worker_engine *engine);
/* Waits until no child is left; false if the worker closes meanwhile. */
bool engine_death_await(struct worker_engine *engine);
/* Ends a child that died or must die, and tells why. The worker is DOWN or FAILED then. */
void engine_death_bury(struct worker_engine *engine, const struct error *why);

/* --- turn.c: turns on a shared device, and models that are held; without the lock --- */
/* Waits until it is this engine's turn to load, and its model is not held; false if the worker
 * closes. */
bool engine_turn_wait(struct worker_engine *engine);
/* Milliseconds until the model leaves if no job comes; 0: it stays. With the lock held. */
int64_t engine_turn_leaves_ms(const struct worker_engine *engine);
/* Takes no more jobs and leaves, if no job is inside; takes the lock. */
void engine_turn_park(struct worker_engine *engine);
/* A job waits for the model: it loads again if it slept. True if it did; takes the lock. */
bool engine_turn_rouse(struct worker_engine *engine);
/* True if the engine must make room, is held, or has had no job for long, and has no job left;
 * begins to make room if it must. */
bool engine_turn_is_over(struct worker_engine *engine);
/* Its process has ended. */
void engine_turn_end(struct worker_engine *engine);
/* Its process has died. */
void engine_turn_lost(struct worker_engine *engine);

/* The thread; the argument is the worker_engine. Ends when the worker closes or has failed. */
void *worker_engine_supervise(void *user);
