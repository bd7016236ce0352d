/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state: the scheduler's struct, shared by the files that are its stages: scheduler.c (the door),
 * compose.c (what the next step has), start.c (who runs), retire.c (what came out), check.c.
 * Internal to scheduler/.
 *
 * Who is where: a WAITING sequence is in its request, which waits in a line; a PREEMPTED one in the
 * list `preempted` of its line; a RUNNING one in `running`; a DONE one nowhere. A sequence that
 * must go while its rows are under way is in `leaving` too, until retire.c lets it go.
 *
 * Thread: the scheduler's only. */

#include "scheduler/admission.h"
#include "scheduler/request.h"

#include <stddef.h>

struct kv_pages;
struct kv_pool;
struct prefix_tree;

/* After this many preemptions a sequence is given all the blocks it can ever need when it starts
 * again, and is left alone from then on. */
#define PREEMPTIONS_MAX 2u
/* After a preemption nobody starts before this share of the pages is not in use. */
#define RECOVERED_SHARE 20u /* one in 20 */

/* Urgent sequences are never all that runs: of every four slots one is left to the others. */
#define URGENT_SLOTS_SHARE 4u
/* Nor do they start beyond all pages but this share. */
#define URGENT_PAGES_SHARE 4u
/* While urgent sequences run, a step has no more than this share of its rows, so that their tokens
 * come soon… */
#define URGENT_ROWS_SHARE 2u
/* …but of the rows that decode leaves, this share is for prefill of the others. */
#define OTHERS_ROWS_SHARE 4u
/* Urgent rows that may pass one row of a step under way: the others keep a quarter. */
#define URGENT_ROWS_A_ROW 3u

/* The two kinds of sequences, each with a line of its own to start from. */
enum line_kind { LINE_URGENT, LINE_OTHERS, LINE_COUNT };

struct line {
    struct waiting waiting;
    struct sequence *preempted; /* by start, first started first; before all that wait */
};

/* A step and what it points to. */
struct plan {
    struct step step; /* its arrays are the following */
    uint32_t rows_max;
    int32_t *tokens;                 /* (rows_max) */
    uint32_t *positions;             /* (rows_max) */
    struct step_sequence *sequences; /* (running_max) */
    struct logit_row *logit_rows;    /* (rows_max) */
    struct sequence **members;       /* (running_max) whose step.sequences these are */
    struct sample *samples;          /* (rows_max) */
};

struct preempted_event {
    uint64_t id;
    uint32_t sequence;
};

struct scheduler {
    const struct backend *backend;
    scheduler_event_fn on_event;
    scheduler_allowed_fn allowed;
    void *user;
    uint64_t seed;
    bool is_caching;
    uint32_t running_max;
    uint32_t others_max; /* of running_max, sequences that are not urgent */
    uint32_t urgent_max; /* of running_max; 0: nobody is urgent */
    uint32_t urgent_pages_max;
    uint32_t rows_max;
    uint32_t context_tokens_max;
    uint32_t requests_max;
    uint32_t table_blocks_max; /* of one sequence */

    struct kv_pool *pool;
    struct kv_pages *pages;
    struct prefix_tree *tree;
    struct request_table requests;
    struct line lines[LINE_COUNT];
    struct admission admission;
    uint32_t open_sequences; /* of all requests, not DONE */
    uint64_t starts;         /* first starts of sequences so far */

    struct sequence **running; /* (running_count of running_max) by waiting_compare_tokens of their
                                  prompts, then by start: neighbours share blocks */
    uint32_t running_count;
    uint32_t urgent_count; /* of these, urgent */
    struct sequence *leaving;
    bool is_recovering; /* from a preemption */

    uint32_t *free_slots; /* (free_slot_count of running_max) a stack */
    uint32_t free_slot_count;
    uint32_t *tables;      /* (running_max, table_blocks_max) block numbers by slot */
    uint32_t *page_tables; /* (running_max, pages of a block, table_blocks_max) where they lie */

    uint64_t step_number;
    bool is_under_way;    /* between begin and the end of retiring */
    struct plan plan;     /* the step being composed or under way */
    struct plan urgent;   /* the one that passes it */
    uint32_t urgent_left; /* rows that may still pass the step under way */
    uint64_t *written_in; /* (blocks) number of the last step that has rows in the block */
    struct preempted_event *preempted_events; /* (running_max) to be told once the step is off */
    uint32_t preempted_event_count;

    struct scheduler_stats stats; /* the counters; the gauges are filled in when asked for */
};

/* Blocks that hold `tokens` positions. */
static inline uint32_t blocks_for(uint32_t tokens) {
    return tokens / BACKEND_BLOCK_TOKENS + (tokens % BACKEND_BLOCK_TOKENS > 0);
}

static inline uint32_t *block_table(const struct scheduler *scheduler, uint32_t slot) {
    return scheduler->tables + (size_t)slot * scheduler->table_blocks_max;
}

static inline uint32_t *page_table(const struct scheduler *scheduler, uint32_t slot) {
    const struct backend_caps *caps = &scheduler->backend->caps;
    size_t groups = caps->full_pages + caps->window_pages;
    return scheduler->page_tables + slot * groups * scheduler->table_blocks_max;
}

/* The first block that a row at `position` sees in the window groups. */
static inline uint32_t first_seen_block(const struct scheduler *scheduler, uint32_t position) {
    return backend_first_seen_block(scheduler->backend->caps.window_tokens, position);
}

static inline enum line_kind line_of(const struct sequence *sequence) {
    return sequence->request->is_urgent ? LINE_URGENT : LINE_OTHERS;
}

/* compose.c */

/* Fills scheduler->plan; it has rows unless there is no work. */
void compose_step(struct scheduler *scheduler);
/* Fills scheduler->urgent with rows that may pass the step under way. False: there are none. */
bool compose_urgent(struct scheduler *scheduler);
/* Puts the next rows of a running sequence in prefill into a step, as many as it has room for
 * below `rows_end`, which is at least one. */
void add_prefill_rows(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence,
                      uint32_t rows_end);
/* Enters full blocks of a sequence in the prefix tree, from where it left off. Another sequence may
 * have entered a block for the same tokens; then `may_swap`, allowed when no step is under way,
 * uses that one instead, and without it the rest is left for later. */
void enter_blocks(struct scheduler *scheduler, struct sequence *sequence, bool may_swap);

/* start.c */

/* Gives running sequences in decode the blocks they need; preempts others where there is none. */
void grow_running(struct scheduler *scheduler);
/* Preempts others until the first urgent sequence in line can start. */
void make_room(struct scheduler *scheduler);
/* Starts sequences of a line with rows in `plan` below `rows_end`. False when the first in line
 * waits for blocks. */
bool start_line(struct scheduler *scheduler, enum line_kind kind, struct plan *plan,
                uint32_t rows_end);
struct sequence *first_in_line(const struct scheduler *scheduler, enum line_kind kind);
uint32_t rows_missing(const struct sequence *sequence);
/* Whether tokens of its prompt are still to be scored, for prompt_logprobs. */
bool is_to_be_scored(const struct sequence *sequence);
bool has_block_for_next(const struct sequence *sequence);
/* Takes blocks and slot away from a running sequence, which is then in no list. */
void stop_running(struct scheduler *scheduler, struct sequence *sequence);
/* Enters block table[index] of a running sequence in its page tables. */
void map_block(const struct scheduler *scheduler, const struct sequence *sequence, uint32_t index);
/* Lets go the window pages that no row of a running sequence to come sees; it is in no step. */
void leave_window(struct scheduler *scheduler, struct sequence *sequence);

/* retire.c */

/* Takes the samples of the step under way, and lets go who is done. */
void retire_step(struct scheduler *scheduler);
/* The same for the urgent step; the other one is still under way. */
void retire_urgent(struct scheduler *scheduler);
/* Decides that a sequence, in whatever state, ends and why; the first reason stays. */
void mark_leaving(struct scheduler *scheduler, struct sequence *sequence,
                  enum finish_reason reason);
/* Lets go who is leaving and has no rows under way. Their requests may be gone after it. */
void let_go_leaving(struct scheduler *scheduler);
