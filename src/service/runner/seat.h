/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seat: the runner's account of one worker: its jobs in flight, how many more it may get, and the
 * hand-over of a job.
 *
 * A suspect is a line that was in flight when a worker went down. While a seat has suspects, it
 * runs only those. At first at most half of the lines of that crash run at a time; the number
 * doubles once as many suspects have ended well. A suspect that runs alone excludes single requests
 * too, so that its crash proves it guilty. A suspect whose seat has been down for 5 s, or is sick,
 * moves to another seat under the same rule.
 *
 * A seat is sick once its worker has gone down WORKER_SICK_DOWNS times without an answer. While
 * another seat of its model is well, it gets one line at a time, after a pause that doubles, and a
 * line that goes down for the first time then is no suspect. An answer makes it well. So a broken
 * machine convicts no line: the last of the downs that do is on another seat, where one serves the
 * model. A seat is sick, too, once FAULTS_SICK answers in a row were errors of the worker
 * (queue/faults.h).
 *
 * An error of a worker is a line's record only if no other well seat of its model is left that has
 * not failed with it, or if it was the line's last try. The last try is at such a seat.
 *
 * Thread: the runner's lock.
 * Memory: an array in struct runner; a seat is never given back.
 * Invariant: `suspects` counts the line states with is_suspect and this home. */

#include "protocol/worker.h"
#include "queue/faults.h"
#include "queue/pace.h"
#include "runner/line_state.h"
#include "runner/runs.h"

struct runner;
struct slot;

struct seat {
    struct runner *runner;
    uint32_t index;
    struct worker *worker; /* NULL until attached */
    uint32_t weight;       /* share of the lines, where several workers serve a model */
    uint32_t lines_max;    /* in flight */
    bool is_full;          /* the worker refused a job and has told of no room since */
    bool is_away;          /* and it was not ready then */
    int64_t full_ns;       /* when it refused that job */
    bool has_failed;       /* the worker's model can never be loaded */
    uint64_t rooms;        /* `room` and `down` events so far */
    /* In flight: */
    uint32_t lines;
    uint32_t requests;
    uint64_t bytes;        /* bytes of the lines' bodies */
    struct runs_warm warm; /* the groups that its lines had last */

    uint32_t suspects;
    uint32_t suspects_max;  /* in flight at a time */
    uint32_t suspects_good; /* ended well since suspects_max was set */
    int64_t down_ns;        /* when the worker last went down */
    uint32_t downs;         /* with jobs, since it last answered one */
    struct faults faults;
    int64_t probe_ns; /* sick: when it may get a line again */
    uint32_t served;  /* knows the model of its latest job again; 0: none yet */
    uint64_t peers;   /* a bit per seat whose worker serves that model, too (peers.h) */

    /* Measured once per second (rates.h): */
    struct pace pace;
    double slowness;      /* how often slower than the best of its model; 0: not known */
    uint32_t lines_bound; /* in flight, by its rate; 0: as many as lines_max */
    bool is_ready;        /* the worker takes jobs, as it says */
    bool is_silent;       /* its node shows no sign of life */
    uint32_t running;     /* lines that the worker has begun, as it says */
    uint64_t answers;     /* lines that it has answered */
    uint64_t answers_seen;
    int64_t measured_ns; /* when lines last waited at it at a look, by seat_clock_ns; 0: none did */
    int64_t looked_ns;   /* the last look, or when the worker was attached */
    int64_t unheard_ns;  /* time in which its answers could not come here (rates.c) */
};

/* --- with the lock held --- */
/* Whether the line may go to this seat now. NULL: whether any line may, a suspect or not. */
bool seat_has_room(const struct runner *runner, const struct seat *seat,
                   const struct line_state *line);
/* Whether the seat has been down or full for so long that its suspects look for another one. */
bool seat_is_lost(const struct seat *seat, int64_t now_ns);
bool seat_is_sick(const struct seat *seat);
/* Whether another one of these seats can be expected to answer: it is not sick, has not gone down
 * since its last answer, and is not away. It may be full, and need not have had a line. */
bool seat_has_well_neighbour(const struct runner *runner, const struct seat *seat, uint64_t seats);
/* The seats of its model where no try of the line failed, if its next failure would be its record
 * and one of them is well; else 0: the line may go to any. */
uint64_t seat_last_choice(const struct runner *runner, const struct line_state *line,
                          uint32_t attempts_max);
/* Whether a seat besides the suspect's home serves its model and is full or down for a moment: its
 * last word waits for that one. */
bool seat_expects_other(const struct runner *runner, const struct line_state *line, int64_t now_ns);
/* Whether the suspect may leave its home for a seat that has no room at once. */
bool seat_may_be_left(const struct runner *runner, const struct line_state *line, int64_t now_ns);
/* Whether one more down of the suspect alone convicts it, and all so far were at its home. */
bool seat_is_last_word(const struct runner *runner, const struct line_state *line);
/* A clock that stands while answers of the worker cannot come, so that its lines do not age. */
int64_t seat_clock_ns(const struct seat *seat, int64_t now_ns);
/* How many lines it may have in flight. */
uint32_t seat_limit(const struct seat *seat);
/* Whether it is so much slower than others of its model that these go first. */
bool seat_is_slow(const struct seat *seat);
/* Whether the answer is an error of the worker, as far as can be seen. */
bool seat_is_fault(const struct worker_result *result);
/* An answer came from the worker. */
void seat_note_answer(struct seat *seat, const struct worker_result *result, int64_t now_ns);
/* The worker went down with jobs. */
void seat_note_down(struct seat *seat, int64_t now_ns);
/* Notes a job, whose slot is RUNNING then, before the worker has it, because its result may come at
 * once. */
void seat_begin(struct seat *seat, struct slot *slot);
/* Takes the slot, which is RUNNING, off its seat. */
void seat_leave(struct runner *runner, struct slot *slot);

/* The line was in flight when the worker of this seat went down. */
void seat_add_suspect(struct seat *seat, struct line_state *line);
/* The suspect moves here from its home. */
void seat_move_suspect(struct runner *runner, struct seat *seat, struct line_state *line);
/* The line is no suspect any more, or never was. */
void seat_clear_suspect(struct runner *runner, struct line_state *line);
/* The line has ended well: it is cleared, and more suspects may run at a time. */
void seat_acquit(struct runner *runner, struct line_state *line);

/* --- without the lock --- */
/* Hands over the job of a slot that is PLACING; the result may be there before this returns. False
 * if the worker refuses it: the slot is PLACING still. */
bool seat_submit(struct runner *runner, struct seat *seat, struct slot *slot,
                 const struct worker_job *job);
