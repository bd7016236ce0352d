/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runner_internal: what the files of runner/ share. One lock guards everything in here; it is never
 * held while a worker, a client's callback or a long read is called, but it is held over the short
 * transactions that change a batch's state, so that a live batch's row is always the stored one.
 *
 * Order of locks: runner->lock, then the store's. A request's `calling` is taken without the
 * runner's lock. */

#include "batch/extras.h"
#include "batch/index.h"
#include "batch/line.h"
#include "batch/publish.h"
#include "batch/quality.h"
#include "batch/result.h"
#include "batch/state.h"
#include "batch/validate.h"
#include "queue/order.h"
#include "queue/queue.h"
#include "runner/held.h"
#include "runner/reuse.h"
#include "runner/runner.h"
#include "runner/runs.h"
#include "store/seglog.h"

#include <pthread.h>

#define CUSTOM_ID_INLINE_BYTES 64

/* Where a batch is on its way through the threads. */
enum phase {
    PHASE_VALIDATE,   /* waits for the validate thread */
    PHASE_VALIDATING, /* is with it */
    PHASE_RUN,        /* its lines run */
    PHASE_END,        /* cancelled, expired or done: waits for what is in flight */
    PHASE_PUBLISH,    /* waits for the publish thread */
    PHASE_PUBLISHING, /* is with it */
};

/* A line to run again. */
struct retry {
    uint32_t line;
    uint16_t attempts; /* tries that failed (OUTCOME_TRY_AGAIN) */
    uint16_t downs;    /* times it was in flight when a worker went down */
    uint16_t alone;    /* of those, times nothing else was */
    uint16_t refusals; /* times a worker gave it back without having run it */
    bool is_suspect;   /* one of these took worker `home` down: they run apart, in halves */
    bool was_held;     /* it comes from live->held */
    uint8_t model;     /* in a batch of several: 1 + its number in live->held; 0: not known */
    uint32_t home;
    int64_t due_ns;
};

/* How a batch gets on, for who watches. */
struct progress {
    uint64_t lines_done;  /* durable when last looked at */
    int64_t since_ns;     /* when that number last grew, or the batch could not be blamed */
    int64_t tell_ns;      /* when it is next told that it is stuck */
    bool is_stuck;        /* and was told */
    bool is_waiting_turn; /* others go first: nothing is wrong */
    bool was_risk_told;
    char waiting_for[128]; /* one phrase; empty: it gets on */
};

struct live {
    struct live *next; /* by age */
    struct order_entry order;
    struct store_batch row;
    enum phase phase;
    bool stop;           /* the thread that has it shall let go */
    int64_t due_ns;      /* not to be taken up before */
    int64_t deadline_ns; /* PHASE_END: when jobs in flight are given up */
    enum endpoint endpoint;
    struct batch_extras extras;
    uint32_t alarms; /* bits of enum quality_share that were told */
    int input_fd;
    unsigned char input_sha256[SHA256_BYTES];
    struct line_index *index;
    struct seglog *log;
    uint32_t in_flight;  /* slots that are this batch's */
    uint32_t readers;    /* threads that read its log without the lock */
    bool is_removed;     /* its last reader frees it */
    uint64_t blocked_at; /* runner->progress when no worker had room for its next line */
    struct retry *retries;
    size_t retry_count;
    size_t retry_capacity;
    struct held *held;        /* of a batch of several models; NULL until one has no room */
    struct queue_lease lease; /* its places from lease_at on have not run */
    uint32_t lease_at;
    struct runs runs;
    struct progress progress;
};

enum slot_state { SLOT_FREE, SLOT_PLACING, SLOT_RUNNING, SLOT_COMMITTING };

struct request;

/* One job: a line of a batch or a single request. */
struct slot {
    uint64_t id; /* of the job; also the cookie of its record */
    enum slot_state state;
    uint32_t index;
    uint32_t next_free;
    uint32_t place;          /* of the worker it is with */
    uint64_t bytes;          /* of its body */
    struct request *request; /* or a line: */
    struct live *live;
    struct retry line;
    struct usage usage; /* of its record */
    /* A line that others wait for (runner/reuse.h). */
    bool is_leader;
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    struct slot *next_leader;
    struct waiter *waiters;
    size_t custom_id_bytes; /* as JSON, ASCII */
    char *custom_id;        /* in `inline_id`, or allocated */
    char inline_id[CUSTOM_ID_INLINE_BYTES];
};

struct request {
    struct request *next;
    uint64_t id;
    uint64_t order; /* of arrival */
    struct runner_request call;
    struct runner_request_events events;
    char *model;
    char *body;
    uint64_t job_id; /* 0 while it waits */
    uint32_t place;
    uint64_t blocked_at; /* runner->progress when no worker had room */
    bool is_placing;     /* dispatch is handing it to a worker */
    bool was_lost;       /* its worker went down once, or gave it back */
    bool has_streamed;
    bool cancel;
    uint32_t holds; /* threads that are calling its client, and the list */
    pthread_mutex_t calling;
    bool is_finished; /* guarded by `calling`: its client has the result */
};

/* One worker's place. */
struct place {
    struct runner *runner;
    uint32_t index;
    struct worker *worker; /* NULL until attached */
    uint32_t weight;       /* of the lines, where several serve a model */
    uint32_t lines_max;    /* in flight */
    bool is_full;          /* submit answered false; until its `room` */
    bool has_failed;       /* and it never will again: its model cannot be loaded */
    uint64_t rooms;        /* `room` events so far */
    uint32_t lines;        /* in flight */
    uint32_t requests;
    uint64_t bytes;
    /* Lines that were in flight when it went down, waiting or in flight again. While there are
     * some, only they run here, at most `suspects_max` at a time: half of those it went down with,
     * and twice as many after as many have ended well. When it is one, that one is alone: requests
     * wait. */
    uint32_t suspects;
    uint32_t suspects_max;
    uint32_t suspects_good; /* ended well since suspects_max was set */
    int64_t down_ns;        /* when it went down last */
};

struct runner {
    struct store *store;
    struct runner_options options;
    struct queue *queue;
    struct seglog_writer *writer;
    uint64_t nonce; /* of this start, for request ids */

    pthread_mutex_t lock;
    pthread_cond_t work;    /* for dispatch */
    pthread_cond_t helpers; /* for validate and publish */
    pthread_cond_t idle;    /* something left flight */
    pthread_t dispatch_thread, validate_thread, publish_thread;
    bool is_started;
    bool is_draining;
    bool is_stopping;
    uint64_t progress; /* counts what may have made room */

    struct place places[RUNNER_WORKERS_MAX];
    uint32_t place_count;

    struct live *live;     /* all that are not terminal */
    struct order order;    /* those whose lines run */
    struct live *current;  /* whose lines dispatch gives now */
    uint32_t current_left; /* until it chooses again */
    bool is_reordered;     /* it shall choose again at once */
    struct runs_warm warm;
    int64_t watch_ns; /* when batches are next looked at */

    struct slot **chunks;
    uint32_t slot_count;
    uint32_t first_free; /* index + 1; 0: none */
    uint64_t job_count;
    uint64_t slots_taken;

    struct reuse reuse;

    struct request *requests; /* waiting and running, in order of admission */
    uint32_t request_count;
    uint64_t request_order;

    struct runner_status counters;
};

/* --- slots.c --- */
struct slot *slot_take(struct runner *runner);
void slot_free(struct runner *runner, struct slot *slot);
struct slot *slot_find(struct runner *runner, uint64_t job_id);
struct slot *slot_at(struct runner *runner, uint32_t index);
void slot_set_custom_id(struct slot *slot, struct str raw);

/* --- batches.c: the lock is held --- */
struct live *live_find(struct runner *runner, struct str id);
/* Takes the row up (and owns it from here on), in the phase its state asks for. */
void live_adopt(struct runner *runner, struct store_batch *row);
void live_remove(struct runner *runner, struct live *live);
/* Gives back what live->readers counts. */
void live_leave(struct live *live);
void live_free(struct live *live);
/* Opens index and log of a batch that was validated. */
enum err live_load(struct runner *runner, struct live *live, struct error *error) MUST_CHECK;
void live_start_lines(struct runner *runner, struct live *live);
/* Moves the state, in the store too. ERR_CONFLICT when that is not what the store has. */
enum err live_move(struct runner *runner, struct live *live, enum batch_status to,
                   struct error *error) MUST_CHECK;
/* Ends the running of lines: PHASE_END. Jobs in flight are put on *ret_cancel (place and id). */
struct cancel_list {
    struct cancel_item {
        struct worker *worker;
        uint64_t job_id;
    } * items;
    size_t count;
};
void live_stop_lines(struct runner *runner, struct live *live, struct cancel_list *ret_cancel);
void live_push_retry(struct live *live, const struct retry *retry);
bool live_is_done(struct live *live);
/* The line is no longer one that may have taken a worker down. */
void retry_clear_suspect(struct runner *runner, struct retry *retry);
/* Ends the batch with a fault of the server. */
void live_fault(struct runner *runner, struct live *live, const char *message,
                struct cancel_list *ret_cancel);
/* Its lines wait until live_resume; what is in flight ends and counts. Durable. */
enum err live_pause(struct runner *runner, struct live *live, enum batch_paused why,
                    struct error *error) MUST_CHECK;
enum err live_resume(struct runner *runner, struct live *live, struct error *error) MUST_CHECK;
/* Looks at what its answers are like; may pause it. */
void live_judge(struct runner *runner, struct live *live);
bool live_is_paused(const struct live *live);
/* What its answers are like, as JSON text that the caller frees. */
char *live_quality(struct live *live);
/* Copies the row, with live counters. */
void live_copy_row(struct live *live, struct store_batch *ret_batch);
/* Looks at every live batch's clock; without the lock. */
void batches_tend(struct runner *runner);
/* Lines that have a durable result. */
uint64_t live_lines_done(struct live *live);
/* Sends cancels, and frees the list; without the lock. */
void cancel_list_send(struct cancel_list *list);

/* --- results.c --- */
void runner_on_result(void *context, const struct worker_result *result);
void runner_on_delta(void *context, const struct worker_delta *delta);
void runner_on_down(void *context, const char *reason);
void runner_on_room(void *context);
void runner_on_durable(void *context, const struct seglog_done *done, size_t count);
/* Takes the slot off its worker. The lock is held. */
void slot_leave_worker(struct runner *runner, struct slot *slot);
/* Commits the answer of an equal request; without the lock. */
void commit_reused(struct runner *runner, struct slot *slot, struct str body,
                   const struct usage *usage);
/* What a line came to that no worker could be given: as a worker's own answer, with the batch's
 * policy for trying again. Its slot is placing; without the lock. */
void line_refuse(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                 const char *message);
/* Commits an error of quern's own for a line whose slot is committing; without the lock. */
void commit_error(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                  const char *message);

/* --- watch.c --- */
/* Measures rates, says who is late or stuck and what it waits for; without the lock, about once a
 * second. */
void watch_batches(struct runner *runner);
/* Tells the log's reader and the events' listener; without the lock. */
void watch_tell(struct runner *runner, const struct runner_event *event);

/* --- requests.c --- */
/* Gives waiting requests to workers. The lock is held, and let go in between. True when one was
 * given. */
bool requests_dispatch(struct runner *runner);
/* Ends a request with a result of quern's own; without the lock. It must have been taken off. */
void request_fail(struct runner *runner, struct request *request, int32_t status, const char *code,
                  const char *message);
void request_finish(struct runner *runner, struct request *request,
                    const struct worker_result *result);
/* Takes it out of the list, the lock held; the hold of the list is then the caller's. False when it
 * was out already. */
bool request_unlink(struct runner *runner, struct request *request);
void request_drop(struct runner *runner, struct request *request);
void requests_fail_all(struct runner *runner);

/* --- models.c --- */
/* Whether a model can be asked for: served, unknown to workers that are all ready, or not known
 * yet. Calls workers; without the lock. */
enum serving { SERVED, NOT_SERVED, SERVING_UNKNOWN };
enum serving runner_serving(struct runner *runner, struct str model);
/* The model of requests that name none: the first name of the only worker. */
enum serving runner_default_model(struct runner *runner, char ret_model[MODEL_NAME_BYTES]);
/* ERR_UNAVAILABLE, with the reason, when every worker that serves the model has failed. */
enum err runner_check_model(struct runner *runner, struct str model,
                            struct error *error) MUST_CHECK;
/* Whether the worker runs requests for the name, and what it calls that model. */
bool runner_finds(const struct runner *runner, struct worker *worker, struct str model,
                  char ret_served[MODEL_NAME_BYTES]);
/* Tells the workers that serve the model, and have no room, that a job waits; without the lock. */
void runner_want(struct runner *runner, struct str model, enum tier tier, int64_t deadline_unix_s);
/* The workers attached so far; without the lock. */
size_t runner_workers(struct runner *runner, struct worker *ret_workers[RUNNER_WORKERS_MAX]);

/* --- threads --- */
void *dispatch_main(void *context);
void *validate_main(void *context);
void *publish_main(void *context);
/* Waits on a condition until `due_ns` of the monotonic clock at the latest. The lock is held. */
void runner_wait(struct runner *runner, pthread_cond_t *cond, int64_t due_ns);
int64_t runner_now_unix_s(struct runner *runner);
