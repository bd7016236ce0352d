/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* agent_internal: the inside of the agent, shared by its files.
 *
 * Thread: members behind `lock` are guarded by it. Operations of workers are called without it.
 * Memory: see agent.h. */

#include "agent/agent.h"
#include "base/buf.h"
#include "cluster/job_set.h"
#include "cluster/pack.h"

#include <pthread.h>

struct agent_job {
    struct agent_job *next; /* in the seat's list of waiting jobs */
    uint64_t id;            /* the server's number */
    uint64_t local;         /* the worker's number; never used again */
    uint32_t seat;
    bool is_running; /* a worker has it, or is about to get it */
    bool is_dropped; /* the server has forgotten it: its result is not told */
    bool is_cancelled;
    bool is_recalled;      /* cancelled at a worker that gives no job back otherwise */
    struct worker_job job; /* model and body point behind the struct, until a worker has it */
    size_t bytes;
    char *text; /* body and model; NULL once a worker has them */
    char line[WORKER_LINE_BYTES];
};

struct agent_seat {
    struct agent *agent;
    uint32_t index;
    struct worker *worker; /* NULL until attached */
    uint32_t weight, lines_max;
    struct agent_job *first, **last; /* jobs that no worker has taken */
    bool is_full;                    /* the worker refused a job and has told of no room since */
    bool is_clearing; /* it went down: jobs are ignored until the server knows (PACK_CLEAR) */
};

/* Packs of results that wait to be put, in order. */
struct agent_pack {
    struct agent_pack *next;
    struct buf bytes;
    uint64_t results;
    uint64_t epoch;
    bool is_sealed;
};

struct agent {
    struct agent_options options;
    char node[BUS_NODE_BYTES];
    struct agent_seat seats[AGENT_WORKERS_MAX];
    uint32_t seat_count;
    struct bus *work_bus, *send_bus;
    pthread_t work_thread, give_thread, send_thread;
    bool is_started;

    pthread_mutex_t lock;
    pthread_cond_t give; /* a job can be given to a worker */
    pthread_cond_t send; /* there is something to put, or the beat is due */
    pthread_cond_t idle; /* a job has ended, or a pack was put */
    bool is_stopping, is_draining;
    struct job_set by_server, by_local; /* values are struct agent_job pointers */
    uint64_t job_count;
    size_t waiting_bytes;
    /* Packs of work: */
    uint64_t round, work_seq;
    bool has_gap;     /* a pack of this round did not come */
    bool is_refused;  /* a server of another layout was told of; node-work's alone */
    int64_t heard_ns; /* when a pack came last */
    bool from_start;  /* the bus was emptied: the stream is read from its start */
    /* Packs of results: */
    struct agent_pack *first_pack, **last_pack;
    size_t unsent_bytes;
    uint64_t result_seq, result_seq_put;
    int64_t send_due_ns; /* SYNC_NEVER: nothing waits */
    int64_t beat_due_ns;
    uint64_t beat_count;
    bool is_way_good[2]; /* enum agent_way: the last call of that thread succeeded */
    struct agent_status status;
};

/* --- agent_jobs: with the lock held, except as noted --- */
void jobs_add(struct agent *agent, uint8_t worker, const struct worker_job *from);
void jobs_cancel(struct agent *agent, uint64_t id); /* lets the lock go */
void jobs_recall(struct agent *agent, uint64_t id); /* likewise */
/* Forgets the jobs of a seat, or of all (UINT32_MAX), or of these those that are no lines; those
 * that run are cancelled. Lets the lock go. */
void jobs_forget(struct agent *agent, uint32_t only, bool keeps_lines);
/* Gives back the jobs that no worker has taken. */
void jobs_return_waiting(struct agent *agent);
/* Tells the server which jobs it has. */
void jobs_tell_held(struct agent *agent);
/* Tells the server the names of the lines that it has. */
void jobs_tell_kept(struct agent *agent);
void *jobs_give_main(void *context); /* a thread */
void jobs_free_all(struct agent *agent);
struct worker_events jobs_events(struct agent_seat *seat);

/* --- agent_out: with the lock held --- */
void out_result(struct agent *agent, uint32_t seat, const struct worker_result *result,
                const char *line, bool is_urgent);
void out_text(struct agent *agent, enum pack_kind kind, uint32_t seat, uint64_t id,
              struct str text);
void out_held(struct agent *agent, const uint64_t *ids, size_t count);
void out_bye(struct agent *agent);
/* Forgets all that waits. */
void out_clear(struct agent *agent);
/* A new server reads: of what waits it gets the answers for lines, in packs of its rounds. */
void out_keep_answers(struct agent *agent);
void *out_send_main(void *context); /* a thread */

/* --- without the lock --- */
void beat_fill(struct agent *agent, struct buf *out);
void *work_main(void *context); /* a thread */
enum agent_way { WAY_WORK, WAY_RESULTS };
void agent_note(struct agent *agent, enum agent_way way, enum err err, const struct error *error);
