/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* state: the scheduler's struct and its stages, the one internal header of scheduler.c (the
 * interface), compose.c (rows of the next step), start.c (which sequences run), match.c (what the
 * cache has of a sequence), saves.c (where states are saved), drafts.c and guesses.c (tokens that
 * are guessed), retire.c (results of a step) and check.c.
 *
 * Where a sequence is: a WAITING one in its request, which waits in a line; a PREEMPTED one in the
 * list `preempted` of its line; a RUNNING one in `running`; a DONE one in no list. A sequence that
 * ends while its rows are under way is in `leaving` too, until retire.c removes it.
 *
 * Thread: the scheduler's only.
 * Memory: all arrays are allocated in scheduler_open. */

#include "scheduler/admission.h"
#include "scheduler/drafts.h"
#include "scheduler/request.h"
#include "scheduler/step_costs.h"

#include <stddef.h>

struct kv_pages;
struct kv_pool;
struct prefix_tree;
struct state_places;
struct state_steps;

/* After this many preemptions a sequence gets all blocks that it can ever need when it starts
 * again, and is never preempted from then on. */
#define PREEMPTIONS_MAX 2u
/* After a preemption no sequence that is not urgent starts before 1/RECOVERED_SHARE of the pages is
 * available. */
#define RECOVERED_SHARE 20u

/* 1/URGENT_SLOTS_SHARE of the slots is kept for sequences that are not urgent. */
#define URGENT_SLOTS_SHARE 4u
/* Urgent sequences do not start in the last 1/URGENT_PAGES_SHARE of the pages. */
#define URGENT_PAGES_SHARE 4u
/* While urgent sequences run, a step has at most 1/URGENT_ROWS_SHARE of its rows, so that their
 * tokens come soon. */
#define URGENT_ROWS_SHARE 2u
/* 1/OTHERS_ROWS_SHARE of the rows that decode leaves is for the prefill of other sequences. */
#define OTHERS_ROWS_SHARE 4u
/* Urgent rows that may pass per row of the step under way: the step keeps a quarter of all rows. */
#define URGENT_ROWS_PER_ROW 3u

/* The two kinds of requests, each with a line of its own. */
enum line_kind { LINE_URGENT, LINE_OTHERS, LINE_COUNT };

struct line {
    struct waiting waiting;
    struct sequence *preempted; /* in the order of first starts; they go before `waiting` */
};

/* A step and its arrays. */
struct plan {
    struct step step; /* points to the arrays below */
    uint32_t rows_max;
    uint32_t late_count;  /* logit rows that are late */
    uint32_t draft_count; /* the step's first sequences, each with one of scheduler->drafts */
    int32_t *tokens;      /* (rows_max) */
    uint32_t *positions;  /* (rows_max) */
    struct step_sequence *sequences; /* (running_max) */
    struct logit_row *logit_rows;    /* (rows_max) */
    struct logit_row *late_rows;     /* (running_max) those that `sample` gets */
    struct page_copy *copies;        /* (running_max · pages per block) */
    struct sequence **members;       /* (running_max) the sequence of each step.sequences[i] */
    bool *is_unstored;               /* (running_max) its saved state is to be stored at retiring */
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
    scheduler_given_fn given;
    scheduler_ahead_fn ahead;
    void *user;
    uint64_t seed;
    bool is_caching;
    uint32_t running_max;
    uint32_t others_max; /* running sequences that are not urgent */
    uint32_t urgent_max; /* running sequences that are urgent; 0: no request counts as urgent */
    uint32_t urgent_pages_max;
    uint32_t rows_max;
    uint32_t logit_rows_max;
    uint32_t context_tokens_max;
    uint32_t requests_max;
    uint32_t table_blocks_max; /* blocks per sequence */

    struct kv_pool *pool;
    struct kv_pages *pages;
    struct prefix_tree *tree;
    struct state_places *states; /* NULL: no layer has a state */
    struct request_table requests;
    struct line lines[LINE_COUNT];
    struct admission admission;
    uint32_t open_sequences; /* sequences that are not DONE */
    uint64_t starts;         /* first starts so far */

    struct sequence **running; /* (running_count of running_max) by waiting_compare_tokens of their
                                  prompts, then by start: neighbours share blocks */
    uint32_t running_count;
    uint32_t urgent_count; /* running sequences that are urgent */
    struct sequence *leaving;
    bool is_recovering; /* from a preemption: see RECOVERED_SHARE */

    uint32_t *free_slots; /* (free_slot_count of running_max) a stack */
    uint32_t free_slot_count;
    uint32_t *tables;      /* (running_max, table_blocks_max) block numbers by slot */
    uint32_t *page_tables; /* (running_max, pages per block, table_blocks_max) their pages */

    uint64_t step_number;
    struct plan plans[BACKEND_STEPS_MAX]; /* the first steps_max are open */
    uint32_t steps_max;
    uint32_t under_way;   /* steps from scheduler_begin to the end of retiring */
    uint32_t oldest;      /* index of the plan that was begun first; the others follow in a ring */
    struct plan urgent;   /* the urgent step that passes the one under way */
    uint32_t urgent_left; /* rows that may still pass the step under way */
    uint64_t *written_in; /* (blocks) number of the last step with rows in the block */
    uint32_t draft_tokens_max;
    struct draft *drafts;     /* (DRAFT_SEQUENCES_MAX) those in the step under way */
    scheduler_guess_fn guess; /* NULL: none */
    void *guesser;
    double guess_token_ns;   /* time of a token of `guess`, learned; 0: not known */
    int64_t guessed_ns;      /* time of `guess` within the step that was begun last */
    struct step_costs costs; /* learned from steps that none has passed */
    uint32_t ended_rows;     /* rows of the step that ended last; 0: an urgent one has passed it */
    bool is_passed;          /* an urgent step has passed the one under way */
    struct preempted_event *preempted_events; /* (running_max) reported after the step's submit */
    uint32_t preempted_event_count;

    struct scheduler_stats stats; /* only the counters; scheduler_stats computes the gauges */
};

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

/* The plan of step `index` under way, 0 for the oldest; with `under_way` the one to be composed. */
static inline struct plan *plan_at(struct scheduler *scheduler, uint32_t index) {
    return &scheduler->plans[(scheduler->oldest + index) % scheduler->steps_max];
}

static inline enum line_kind line_of(const struct sequence *sequence) {
    return sequence->request->is_urgent ? LINE_URGENT : LINE_OTHERS;
}

/* compose.c */

/* Fills the next plan. Without a step under way it has rows when the scheduler has work. With one
 * it is false where no sequence can have a row, or where one must be preempted first. */
bool compose_step(struct scheduler *scheduler);
/* Fills plan->late_rows when the tokens that its late rows need are known. Returns their number. */
uint32_t compose_late(const struct scheduler *scheduler, struct plan *plan);
/* Fills scheduler->urgent with rows that may pass the step under way. False without such rows. */
bool compose_urgent(struct scheduler *scheduler);
/* Whether a step has room for another row below `rows_end`, and for its logits. */
bool has_row_room(const struct scheduler *scheduler, const struct plan *plan, uint32_t rows_end);
/* Adds the next rows of a running sequence in prefill to a step, as many as fit below `rows_end`.
 * The step has room. */
void add_prefill_rows(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence,
                      uint32_t rows_end);
/* Adds full blocks of known tokens of a sequence to the prefix tree, behind those that are in it.
 * When the tree has another block for the same tokens, `may_swap`, allowed while no backend reads
 * the sequence's page tables, makes the sequence use that block. Without it the remaining blocks
 * are left for later. */
void enter_blocks(struct scheduler *scheduler, struct sequence *sequence, bool may_swap);

/* Whether the row would sample a token at a place where one was given meanwhile. */
static inline bool is_for_nothing(const struct sequence *sequence, const struct logit_row *row) {
    return !row->scored && row->counter < sequence->generated_count;
}

/* drafts.c */

/* Guesses the next tokens of the sequences in decode, in the order of `running`, and which of them
 * get rows in the step to be composed. Returns the number of scheduler->drafts; 0: the step has
 * none. */
uint32_t drafts_choose(struct scheduler *scheduler);

/* guesses.c */

/* Lets the caller's model guess in place of the guess from the text, at most `room` tokens, where
 * that is likely to pay in a step of `rows` rows. */
void guess_for(struct scheduler *scheduler, struct draft *draft, uint32_t room, uint32_t rows);
/* The chances in 1/255 that a guessed token is right when those before it are: by its certainty,
 * and of a first token. */
uint8_t *guess_chance_at(struct sequence *sequence, uint8_t certainty);
uint8_t *guess_chance_of_first(struct sequence *sequence);

/* match.c */

/* The tokens of a sequence that it need not compute. */
struct match {
    uint32_t blocks;      /* leading blocks of the tree that it can begin with */
    uint32_t part;        /* a block of the tree of which it can begin with a copy, behind them */
    uint32_t part_tokens; /* leading tokens of `part` that are its own; 0: no part */
    uint32_t state;       /* place of the stored state to begin with, or STATE_NONE */
    uint32_t known;       /* tokens in the cache, with or without a state behind them */
};

/* Writes the numbers of the leading blocks. Holds nothing. */
struct match match_prefix(const struct scheduler *scheduler, const struct sequence *sequence,
                          uint32_t *ret_blocks);
static inline uint32_t matched_tokens(const struct match *match) {
    return match->blocks * BACKEND_BLOCK_TOKENS + match->part_tokens;
}
/* True while the step being composed, or the one that it passes, writes what the first rows of a
 * running sequence are to be copied from. Then it has no rows in this step. */
bool is_held_up(const struct scheduler *scheduler, const struct sequence *sequence);
/* The steps whose places no other writer may have. */
struct state_steps steps_now(const struct scheduler *scheduler);
/* True when a running sequence will save a state that a sequence which could begin after `matched`
 * tokens had better wait for. */
bool is_state_coming(const struct scheduler *scheduler, const struct sequence *sequence,
                     uint32_t matched);

/* saves.c */

/* Decides before which positions of its prompt a sequence, which has just begun, saves its state.
 */
void plan_saves(const struct scheduler *scheduler, struct sequence *sequence,
                const struct match *match);
/* The most rows of a running sequence that a step can have: one state is saved per step. */
uint32_t rows_to_save(const struct sequence *sequence);
/* Saves a state among the rows of the part of a sequence that was added to a plan last, which ends
 * at sequence->computed. */
void save_state(struct scheduler *scheduler, struct plan *plan, struct sequence *sequence);
/* Stores the states of an ended step that could not be stored when it was composed. */
void store_states(struct scheduler *scheduler, const struct plan *plan);
/* Touches the stored states of the prefixes of a sequence within its first `blocks` blocks. */
void touch_states(struct scheduler *scheduler, const struct sequence *sequence, uint32_t blocks);

/* start.c */

/* Gives running sequences in decode the blocks they need; preempts others when no block is free.
 * False where it would preempt while a step is under way. */
bool grow_running(struct scheduler *scheduler);
/* Preempts sequences that are not urgent until the first urgent one in line can start. False where
 * it would preempt while a step is under way. */
bool make_room(struct scheduler *scheduler);
/* Starts sequences of a line, and adds their rows to `plan` below `rows_end`. False when the first
 * in line waits for blocks. */
bool start_line(struct scheduler *scheduler, enum line_kind kind, struct plan *plan,
                uint32_t rows_end);

/* running.c */

/* The first of a line: preempted sequences come before those that wait. NULL: an empty line. */
struct sequence *first_in_line(const struct scheduler *scheduler, enum line_kind kind);
/* Rows before the next token of a running sequence; 0 when its last token is pending. */
uint32_t rows_missing(const struct sequence *sequence);
/* True while tokens of its prompt need a score, for prompt_logprobs. */
bool is_to_be_scored(const struct sequence *sequence);
bool has_block_for_next(const struct sequence *sequence);
/* Whether a running sequence has one row before its next token in the step to be composed. */
bool is_in_decode(const struct scheduler *scheduler, const struct sequence *sequence);
/* Rows that the blocks of a running sequence have room for. */
uint32_t rows_with_block(const struct sequence *sequence);
/* The place of a sequence in `running`, or where it would be. */
uint32_t running_index(const struct scheduler *scheduler, const struct sequence *sequence);
void add_running(struct scheduler *scheduler, struct sequence *sequence);
/* Lets go of what a running sequence has held for its first rows. */
void let_go_part(struct scheduler *scheduler, struct sequence *sequence);
void let_go_state(struct scheduler *scheduler, struct sequence *sequence);
/* Takes blocks and slot away from a running sequence, which is in no list afterwards. */
void stop_running(struct scheduler *scheduler, struct sequence *sequence);
/* Writes the pages of block table[index] of a running sequence into its page tables. */
void map_block(const struct scheduler *scheduler, const struct sequence *sequence, uint32_t index);
/* Drops the window pages that no later row of a running sequence sees. */
void leave_window(struct scheduler *scheduler, struct sequence *sequence);

/* retire.c */

/* Takes the samples of the oldest step under way, and removes sequences that are done. */
void retire_step(struct scheduler *scheduler);
/* retire_step for the urgent step, while the other step is under way. */
void retire_urgent(struct scheduler *scheduler);
/* Appends the tokens that the caller of the scheduler gives a sequence, which has rows under way or
 * counts as if: it may be leaving afterwards. */
void take_given(struct scheduler *scheduler, struct sequence *sequence);
/* Marks a sequence, in any state, as ending for this reason. The first reason stays. */
void mark_leaving(struct scheduler *scheduler, struct sequence *sequence,
                  enum finish_reason reason);
/* Removes leaving sequences without rows under way. Their requests may be freed by it. */
void let_go_leaving(struct scheduler *scheduler);
