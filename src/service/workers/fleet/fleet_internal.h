/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fleet_internal: the inside of the fleet, shared by its files.
 *
 * Thread: all members are guarded by `lock`, which is not held while the bus or an event of a
 *     worker is called. `calling` is held around each event, so that a worker that is closed gets
 *     none.
 * Memory: see fleet.h. */

#include "base/buf.h"
#include "cluster/beat.h"
#include "cluster/job_set.h"
#include "cluster/pack.h"
#include "workers/fleet/fleet.h"

#include <pthread.h>

struct fleet_job {
    uint64_t round, seq; /* those of the pack that it went with */
    uint64_t body_key;   /* knows it again, if it is lost with a second node */
    uint64_t wire_id;    /* its number at the node; another one if it was adopted */
    uint32_t bytes;
    bool streams;
};

struct fleet_model {
    struct worker_model served; /* name is one of the fleet's */
    bool has_identity;
    unsigned char identity[WORKER_IDENTITY_BYTES];
    bool has_weights;
    unsigned char weights[WORKER_IDENTITY_BYTES];
};

/* The worker of one seat. */
struct berth {
    struct worker worker;
    struct fleet *fleet;
    uint32_t seat;
    struct worker_events events;
    bool is_closed;
    bool is_ready;           /* its node takes jobs */
    bool is_falling;         /* its `down` is being told: a job that it took now would be lost */
    bool was_full;           /* refused a job and has told of no room since */
    struct fleet_node *node; /* NULL: it waits for one */
    uint8_t index;           /* the worker's number at its node */
    struct job_set jobs;     /* values are struct fleet_job pointers */
    struct worker_status status;
    struct fleet_model models[BEAT_MODELS_MAX];
    size_t model_count;
    char conflict[WORKER_TEXT_BYTES]; /* why a model of it is not served; empty: all are */
    uint32_t lines_max, weight;
    int64_t wanted_ns; /* when PACK_WANT was put last */
    uint32_t downs;    /* with jobs, since its node's last answer */
};

#define FLEET_MARKS 8
#define FLEET_MARK_NS INT64_C(15000000000)

struct fleet_node {
    struct fleet_node *next;
    char node[BUS_NODE_BYTES], name[BUS_NODE_BYTES], version[32];
    struct berth *berths[BEAT_WORKERS_MAX]; /* NULL: it has no seat */
    size_t berth_count;
    bool is_draining, is_gone;
    bool is_forgotten; /* it is gone, and its work leaves the bus with the next flush */
    bool is_silent;    /* no new beat has come for FLEET_SILENT_MS; at the last look */
    bool is_seen;      /* its beat was there at the last look, or it is new */
    bool is_read;      /* fleet-read has a pack of it: it must stay */
    bool is_synced;    /* it has told its jobs in this round */
    bool must_sync;    /* a round is to be begun */
    bool keeps_jobs;   /* in the round to be begun */
    uint64_t round, work_seq, result_seq;
    uint64_t read_seq, trimmed_seq; /* packs of work that it has read, that were dropped */
    int64_t synced_ns;              /* when the round began */
    /* The latest beat: */
    uint64_t beat_count;
    int64_t beat_ns; /* when it was new */
    /* It must come to know packs up to these, from this time on; 0: none are noted. */
    int64_t behind_ns;
    uint64_t behind_work_seq, behind_result_seq;
    uint64_t results;
    int64_t busy_ns;  /* time in which it had jobs */
    int64_t shown_ns; /* when busy_ns was counted last */
    /* The count of results at times of busy_ns, the oldest one first, for its rate. */
    struct fleet_mark {
        int64_t busy_ns;
        uint64_t results;
    } marks[FLEET_MARKS];
    size_t mark_count;
    struct buf out; /* the pack that jobs are added to */
    int64_t out_due_ns;
    struct job_set held; /* ids that PACK_HELD told, until its last record */
    /* The jobs that were adopted, by the numbers that the node knows, with those of the runner. */
    struct job_set adopted;
};

/* Packs of results that the bus still has, in order, and the jobs whose results they told. */
struct told {
    uint64_t *ids;
    size_t count, capacity;
    size_t *packs; /* per pack, how many of `ids` were told up to its end */
    size_t pack_count, pack_capacity;
};

#define LOST_KEYS 4096

struct fleet {
    struct fleet_options options;
    char id[256];
    struct bus *send_bus, *read_bus;
    pthread_t send_thread, read_thread;
    pthread_mutex_t calling;

    pthread_mutex_t lock;
    pthread_cond_t send;
    pthread_cond_t change; /* a node has become ready */
    bool is_stopping;
    uint64_t epoch; /* 0: this server does not lead yet */
    bool follows;   /* the server before was of this state directory */
    bool is_adopting;
    int64_t started_ns;           /* fleet_start; 0: not yet */
    bool has_read_any;            /* in the look at the results that goes on; fleet-read's alone */
    bool has_read_all;            /* a look at the results found none, once */
    bool from_start;              /* results are read from the start of their stream again */
    struct told told;             /* fleet-read's alone */
    char refused[BUS_NODE_BYTES]; /* a node of an unknown release; fleet-send's alone */
    uint64_t round_count;
    struct berth *berths[FLEET_SEATS_MAX];
    uint32_t berth_count;
    struct fleet_node *nodes;
    int64_t reached_ns; /* since when the bus is there; 0: it is not */
    int64_t look_due_ns;
    uint64_t bytes;
    bool was_full;
    uint64_t lost_keys[LOST_KEYS]; /* bodies that were lost with a node, a ring */
    size_t lost_count;
    char *names[FLEET_NAMES_MAX];
    size_t name_count;
    struct fleet_status status;
};

/* What is to be told of jobs once the lock is free. */
struct endings {
    struct ending {
        struct berth *berth;
        uint64_t id;
        enum outcome outcome;
    } * list;
    size_t count, capacity;
};

/* Knows a line by its name, or a request by its body. */
uint64_t fleet_key_of(struct str text);

/* --- with the lock held --- */
/* Takes an answer for a line that this server has not given out, if the runner wants it; the lock
 * is let go. Returns the number of its job, or 0. */
uint64_t fleet_adopt_answer(struct fleet *fleet, struct berth *berth,
                            const struct worker_result *result, struct str line);
/* PACK_KEPT; the lock is let go. `berth` may be NULL. */
void fleet_take_kept(struct fleet *fleet, struct fleet_node *node, struct berth *berth,
                     const struct pack_record *record);
/* Takes a job off its berth; NULL: it is not there. The caller frees it. */
struct fleet_job *berth_take(struct berth *berth, uint64_t id);
/* Takes all jobs off that `is_lost` names; each is told as `outcome`. */
void berth_take_lost(struct berth *berth, struct endings *endings, enum outcome outcome,
                     bool (*is_lost)(const struct berth *, uint64_t, const struct fleet_job *));
/* The node is gone: its berths are free. */
void node_release(struct fleet *fleet, struct fleet_node *node, struct endings *endings);
/* A round will begin. Streams that are in flight end, because pieces of them may be lost. */
void node_must_sync(struct fleet *fleet, struct fleet_node *node, struct endings *endings,
                    const char *why);
struct fleet_node *node_find(struct fleet *fleet, struct str name);
void fleet_note(struct fleet *fleet, enum err err, const struct error *error);
/* Something was added to the node's pack. */
void node_added(struct fleet *fleet, struct fleet_node *node, bool is_urgent);

/* Counts the time in which the node has jobs; called at each look. */
void node_note_rate(struct fleet_node *node);

/* --- without the lock --- */
/* Lets the lines run that no node has, once all nodes have told theirs. */
void fleet_check_adoption(struct fleet *fleet);
/* The result of this job was told; then: the pack has no further one. */
void fleet_note_result(struct fleet *fleet, uint64_t id);
void fleet_note_told(struct fleet *fleet);
/* How many packs, from the oldest on, have only results that are durable; forgets them. */
size_t fleet_count_settled(struct fleet *fleet);
void endings_tell(struct fleet *fleet, struct endings *endings); /* empties it */
void berth_tell_result(struct berth *berth, const struct worker_result *result);
void berth_tell_room(struct berth *berth);
void berth_tell_down(struct berth *berth, const char *reason);
void berth_tell_delta(struct berth *berth, const struct worker_delta *delta);
/* A worker that waits for a node, on a new seat. NULL: no seat is left. */
struct berth *berth_open(struct fleet *fleet, enum shape_handling shapes);
void fleet_take_beat(void *context, struct str name, struct str bytes);
/* Nodes that are silent, packs that do not arrive, seats that have become ready. */
void fleet_check_nodes(struct fleet *fleet, bool was_emptied);
void *fleet_send_main(void *context); /* a thread */
void *fleet_read_main(void *context); /* a thread */
/* Both threads have ended. */
void fleet_end(struct fleet *fleet);
void node_free(struct fleet_node *node);
