/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_backend.h"

#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    uint64_t hash;
    uint64_t written_in; /* step number; of a row of the step under way that is not yet computed
                            when `is_pending` */
    bool is_pending;
};

/* What a device knows of the sequence in a slot. */
struct place {
    uint32_t position; /* where the sequence goes on, if all guesses are right */
    uint32_t guesses;  /* rows of guesses before that */
    uint64_t seen;     /* step in which the slot had rows last */
    int32_t *tokens;   /* (context_tokens_max) with steps_max 2: by position, as far as its rows or
                          logit rows have named them */
    /* With steps_max 2, the token sampled last, while no row has taken it. */
    bool has_last;
    uint32_t last_position;
    int32_t last;
};

/* A place for a state: the hash of the tokens that it has seen. */
struct fake_state {
    uint64_t hash;
};

/* A step under way. With steps_max 2 all arrays are copies. */
struct held {
    struct step step;
    int32_t *tokens;
    uint32_t *positions;
    uint32_t *pages;
    struct step_sequence *sequences;
    struct logit_row *logit_rows;
    struct page_copy *copies;
    bool *is_sampled; /* (logit_count) late rows that `sample` has named */
};

struct fake {
    struct fake_options options;
    struct slot *slots;                  /* (page_count, BACKEND_BLOCK_TOKENS) */
    struct place *places;                /* (sequences_max) */
    struct fake_state *states;           /* (state_places) */
    struct held held[BACKEND_STEPS_MAX]; /* (under_way) the oldest first */
    uint32_t under_way;
    uint32_t slices_left; /* slices of that step */
    uint64_t steps;
    uint64_t copies;
    uint64_t saves;
    uint64_t restores;
};

uint64_t fake_copies(const struct backend *backend) {
    const struct fake *fake = backend->self;
    return fake->copies;
}

void fake_states(const struct backend *backend, uint64_t *ret_saves, uint64_t *ret_restores) {
    const struct fake *fake = backend->self;
    *ret_saves = fake->saves;
    *ret_restores = fake->restores;
}

uint64_t fake_hash(uint64_t hash, int32_t token) {
    return rng_at(hash, (uint64_t)token + 1);
}

static bool is_allowed(const uint32_t *allowed, uint32_t token) {
    return !allowed || (allowed[token / 32] >> (token % 32) & 1);
}

int32_t fake_next_token(const struct fake_options *options, uint64_t hash,
                        const struct sampling *sampling, uint64_t seed, uint32_t counter,
                        const uint32_t *allowed) {
    uint64_t bits = rng_at(hash, sampling->temperature > 0 ? seed : 7) ^ rng_at(3, counter);
    if (options->period > 0 && bits % 8 != 0) bits = rng_at(5, counter % options->period);
    struct rng rng = {bits};
    uint32_t vocab = options->caps.vocab;
    uint32_t token = 1 + (uint32_t)rng_below(&rng, vocab - 1);
    if (options->end_one_in > 0 && rng_below(&rng, options->end_one_in) == 0)
        token = FAKE_END_TOKEN;
    while (!is_allowed(allowed, token)) token = (token + 1) % vocab;
    return (int32_t)token;
}

static uint32_t group_count(const struct fake *fake) {
    return fake->options.caps.full_pages + fake->options.caps.window_pages;
}

static struct slot *slot_at(struct fake *fake, const struct step_sequence *part, uint32_t group,
                            uint32_t position) {
    uint32_t index = position / BACKEND_BLOCK_TOKENS;
    assert(index < part->block_count && part->block_count <= part->page_stride);
    uint32_t page = part->pages[(size_t)group * part->page_stride + index];
    assert(page < fake->options.caps.page_count);
    return &fake->slots[(size_t)page * BACKEND_BLOCK_TOKENS + position % BACKEND_BLOCK_TOKENS];
}

/* The first position a row sees in the pages of a group. */
static uint32_t first_seen(const struct fake *fake, uint32_t group, uint32_t position) {
    uint32_t window = fake->options.caps.window_tokens;
    if (group < fake->options.caps.full_pages || position < window) return 0;
    return position - window + 1;
}

static bool holds_two(const struct fake *fake) {
    return fake->options.caps.steps_max > 1;
}

/* A token that is pending is so because the step under way samples it. */
static void check_token(const struct fake *fake, const struct step_sequence *part, int32_t token) {
    if (backend_is_pending(token)) {
        assert(fake->under_way == 1 && holds_two(fake));
        assert(backend_pending_slot(token) == part->slot);
        assert(part->row_count == 1 && !part->slot_is_new);
    } else {
        assert((uint32_t)token < fake->options.caps.vocab);
    }
}

/* Whether the rows of a sequence behind this one are guesses, each with a logit row. */
static bool is_before_guess(const struct step *step, const struct logit_row *row) {
    const struct logit_row *next = row + 1;
    return row->index + 1 < step->logit_count && next->sequence == row->sequence &&
           next->row == row->row + 1 && next->counter == row->counter + 1 &&
           next->generated[row->counter] == step->tokens[next->row];
}

/* Rows of guesses of sequence `index`: all that sample but for the first. */
static uint32_t guesses_of(const struct step *step, uint32_t index) {
    uint32_t sampled = 0;
    for (uint32_t i = 0; i < step->logit_count; i++)
        sampled += step->logit_rows[i].sequence == index && !step->logit_rows[i].scored;
    return sampled > 0 ? sampled - 1 : 0;
}

static void check_logit_rows(const struct fake *fake, const struct step *step) {
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        const struct step_sequence *part = &step->sequences[row->sequence];
        assert(row->index == i && (i == 0 || row->row > row[-1].row));
        assert(row->row >= part->row_first && row->row < part->row_first + part->row_count);
        bool is_pending = backend_is_pending(step->tokens[part->row_first]);
        bool needs_token = row->sampling->presence_penalty != 0;
        assert(!row->is_late || (is_pending && !row->scored && !row->allowed));
        /* No row is computed for a token behind the last one. */
        uint32_t tokens_max = row->sampling->max_tokens;
        assert(row->scored || tokens_max == 0 || row->counter < tokens_max);
        assert(!needs_token || row->is_late == (is_pending && !row->scored));
        assert(row->scored || row->counter == 0 || (row->generated == NULL) == is_pending);
        assert(row->scored || row->row == part->row_first + part->row_count - 1 ||
               (!holds_two(fake) && fake->options.caps.state_places == 0 &&
                is_before_guess(step, row)));
        assert(!row->scored || row->scored == row->prompt + step->positions[row->row] + 1);
    }
}

/* Notes the slots that a step writes; none is written twice. */
static void mark_slots(struct fake *fake, const struct step *step) {
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *part = &step->sequences[i];
        for (uint32_t k = 0; k < part->row_count; k++) {
            for (uint32_t group = 0; group < group_count(fake); group++) {
                struct slot *slot = slot_at(fake, part, group, part->kv_tokens + k);
                assert(slot->written_in != step->number && !slot->is_pending);
                slot->written_in = step->number;
                slot->is_pending = true;
            }
        }
    }
}

static struct fake_state *state_at(struct fake *fake, uint32_t place) {
    assert(place < fake->options.caps.state_places);
    return &fake->states[place];
}

static bool saves_to(const struct step_sequence *part, uint32_t place) {
    return part->save_rows > 0 && part->save_to == place;
}

/* Parts of a step, or of one that another passes, may run in any order: what one writes the other
 * neither reads nor writes. */
static void check_apart(const struct step_sequence *part, const struct step_sequence *other) {
    assert(part->state != other->state && part->state != other->state_from);
    assert(part->state_from != other->state && !saves_to(other, part->state));
    assert(!saves_to(other, part->state_from) && !saves_to(part, other->state_from));
    assert(!saves_to(part, other->state));
    assert(part->save_rows == 0 || !saves_to(other, part->save_to));
}

static void check_states(struct fake *fake, const struct step *step) {
    if (fake->options.caps.state_places == 0) return;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *part = &step->sequences[i];
        assert(part->save_rows <= part->row_count && !saves_to(part, part->state));
        assert(!saves_to(part, part->state_from));
        assert(part->slot_is_new || part->state_from == part->state);
        for (uint32_t k = 0; k < i; k++) check_apart(part, &step->sequences[k]);
    }
}

/* Copies pages, none of which a row is still to be written to. */
static void copy_in_order(struct fake *fake, const struct step *step) {
    assert(step->copy_count == 0 || fake->options.caps.copies_pages);
    for (uint32_t i = 0; i < step->copy_count; i++) {
        const struct page_copy copy = step->copies[i];
        assert(copy.from < fake->options.caps.page_count);
        assert(copy.to < fake->options.caps.page_count && copy.to != copy.from);
        struct slot *from = &fake->slots[(size_t)copy.from * BACKEND_BLOCK_TOKENS];
        struct slot *to = &fake->slots[(size_t)copy.to * BACKEND_BLOCK_TOKENS];
        for (uint32_t k = 0; k < BACKEND_BLOCK_TOKENS; k++) {
            assert(!from[k].is_pending && !to[k].is_pending);
            to[k] = from[k];
        }
    }
    fake->copies += step->copy_count;
}

/* The shape of a step. */
static void check_step(struct fake *fake, const struct step *step) {
    const struct backend_caps *caps = &fake->options.caps;
    assert(step->number > fake->steps);
    assert(step->row_count > 0 && step->row_count <= caps->rows_max);
    assert(step->sequence_count > 0 && step->sequence_count <= caps->sequences_max);
    assert(step->logit_count <= step->row_count);
    assert(caps->logit_rows_max == 0 || step->logit_count <= caps->logit_rows_max);
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *part = &step->sequences[i];
        assert(part->row_first == row && part->row_count > 0);
        assert(part->kv_tokens + part->row_count <= caps->context_tokens_max);
        assert(part->slot < caps->sequences_max);
        struct place *place = &fake->places[part->slot];
        assert(place->seen != step->number);
        assert(part->slot_is_new || (part->kv_tokens <= place->position &&
                                     part->kv_tokens + place->guesses >= place->position));
        place->seen = step->number;
        place->position = part->kv_tokens + part->row_count;
        place->guesses = guesses_of(step, i);
        for (uint32_t k = 0; k < part->row_count; k++, row++) {
            assert(step->positions[row] == part->kv_tokens + k);
            check_token(fake, part, step->tokens[row]);
        }
    }
    assert(row == step->row_count);
    check_states(fake, step);
    check_logit_rows(fake, step);
    fake->steps = step->number;
}

/* ---- copies ---- */

static void *copied(const void *from, size_t count, size_t bytes) {
    void *copy = malloc(count * bytes + 1);
    if (!copy) abort();
    if (count > 0) memcpy(copy, from, count * bytes);
    return copy;
}

/* Copies of all page tables, one behind the other. */
static void copy_pages(const struct fake *fake, struct held *held) {
    size_t count = 0;
    uint32_t groups = group_count(fake);
    for (uint32_t i = 0; i < held->step.sequence_count; i++)
        count += (size_t)held->sequences[i].block_count * groups;
    uint32_t *at = held->pages = malloc(count * sizeof *held->pages);
    if (!at) abort();
    for (uint32_t i = 0; i < held->step.sequence_count; i++) {
        struct step_sequence *part = &held->sequences[i];
        const uint32_t *from = part->pages;
        for (uint32_t group = 0; group < groups; group++)
            memcpy(at + (size_t)group * part->block_count, from + (size_t)group * part->page_stride,
                   part->block_count * sizeof *at);
        part->pages = at;
        part->page_stride = part->block_count;
        at += (size_t)groups * part->block_count;
    }
}

static void hold(const struct fake *fake, const struct step *step, struct held *ret_held) {
    struct held held = {.step = *step};
    if (holds_two(fake)) {
        held.tokens = copied(step->tokens, step->row_count, sizeof *step->tokens);
        held.positions = copied(step->positions, step->row_count, sizeof *step->positions);
        held.sequences = copied(step->sequences, step->sequence_count, sizeof *step->sequences);
        held.logit_rows = copied(step->logit_rows, step->logit_count, sizeof *step->logit_rows);
        held.copies = copied(step->copies, step->copy_count, sizeof *step->copies);
        held.is_sampled = calloc(step->logit_count + 1, sizeof *held.is_sampled);
        if (!held.is_sampled) abort();
        copy_pages(fake, &held);
        held.step.tokens = held.tokens;
        held.step.positions = held.positions;
        held.step.sequences = held.sequences;
        held.step.logit_rows = held.logit_rows;
        held.step.copies = held.copies;
    }
    *ret_held = held;
}

static void let_go(struct held *held) {
    free(held->copies);
    free(held->is_sampled);
    free(held->logit_rows);
    free(held->sequences);
    free(held->pages);
    free(held->positions);
    free(held->tokens);
}

/* Puts the tokens in the place of pending ones, each once, and notes all by position. */
static void resolve_tokens(struct fake *fake, struct held *held) {
    for (uint32_t i = 0; i < held->step.sequence_count; i++) {
        const struct step_sequence *part = &held->sequences[i];
        struct place *place = &fake->places[part->slot];
        for (uint32_t k = 0; k < part->row_count; k++) {
            int32_t *token = &held->tokens[part->row_first + k];
            if (backend_is_pending(*token)) {
                assert(place->has_last && place->last_position == part->kv_tokens);
                *token = place->last;
            }
            place->tokens[part->kv_tokens + k] = *token;
        }
        place->has_last = false;
    }
}

/* The tokens that a logit row names are those of its sequence. */
static void note_generated(struct fake *fake, const struct step_sequence *part,
                           const struct logit_row *row) {
    if (row->counter > 0)
        memcpy(fake->places[part->slot].tokens + row->prompt_count, row->generated,
               row->counter * sizeof *row->generated);
}

/* The hash before the first row. False when a slot the row sees is still to be written. */
static bool see_prefix(struct fake *fake, const struct step_sequence *part, uint64_t *ret_hash) {
    *ret_hash = FAKE_HASH_START;
    for (uint32_t group = 0; group < group_count(fake) && part->kv_tokens > 0; group++) {
        uint32_t first = first_seen(fake, group, part->kv_tokens);
        for (uint32_t i = first; i < part->kv_tokens; i++)
            if (slot_at(fake, part, group, i)->is_pending) return false;
        uint64_t hash = slot_at(fake, part, group, part->kv_tokens - 1)->hash;
        assert(group == 0 || hash == *ret_hash);
        *ret_hash = hash;
    }
    return true;
}

/* The state that a part goes on from has seen the tokens before its first row, and no other. */
static void read_state(struct fake *fake, const struct step_sequence *part, uint64_t hash) {
    if (fake->options.caps.state_places == 0) return;
    const bool is_new = part->state_from == BACKEND_STATE_ZERO;
    assert(hash == (is_new ? FAKE_HASH_START : state_at(fake, part->state_from)->hash));
    fake->restores += !is_new && part->state_from != part->state;
}

/* The state after `rows` rows of a part. */
static void write_state(struct fake *fake, const struct step_sequence *part, uint32_t rows,
                        uint64_t hash) {
    if (fake->options.caps.state_places == 0) return;
    if (rows == part->row_count) state_at(fake, part->state)->hash = hash;
    if (rows != part->save_rows) return;
    state_at(fake, part->save_to)->hash = hash;
    fake->saves++;
}

/* False when it must be tried again, once others have computed. */
static bool compute(struct fake *fake, const struct step *step, const struct step_sequence *part) {
    uint64_t hash;
    if (!see_prefix(fake, part, &hash)) return false;
    read_state(fake, part, hash);
    for (uint32_t k = 0; k < part->row_count; k++) {
        hash = fake_hash(hash, step->tokens[part->row_first + k]);
        for (uint32_t group = 0; group < group_count(fake); group++) {
            struct slot *slot = slot_at(fake, part, group, part->kv_tokens + k);
            slot->hash = hash;
            slot->is_pending = false;
        }
        write_state(fake, part, k + 1, hash);
    }
    return true;
}

/* A sequence may come before those whose rows it reads, so the loop repeats until all are done. */
static void compute_all(struct fake *fake, const struct step *step) {
    uint32_t done = 0;
    while (done < step->sequence_count) {
        uint32_t before = done;
        for (uint32_t i = 0; i < step->sequence_count; i++) {
            const struct step_sequence *part = &step->sequences[i];
            if (slot_at(fake, part, 0, part->kv_tokens)->is_pending)
                done += compute(fake, step, part);
        }
        assert(done > before); /* else two sequences wait for each other */
    }
}

/* Reads back from the cache all that the rows of a sequence see, and returns the hash of it all. */
static uint64_t read_prefix(struct fake *fake, const struct step *step,
                            const struct logit_row *row) {
    const struct step_sequence *part = &step->sequences[row->sequence];
    uint64_t hash = FAKE_HASH_START;
    uint32_t count = row->prompt_count + row->counter;
    assert(count == step->positions[row->row] + 1);
    const int32_t *generated =
        holds_two(fake) ? fake->places[part->slot].tokens + row->prompt_count : row->generated;
    for (uint32_t i = 0; i < count; i++) {
        hash = fake_hash(hash,
                         i < row->prompt_count ? row->prompt[i] : generated[i - row->prompt_count]);
        for (uint32_t group = 0; group < group_count(fake); group++)
            if (i >= first_seen(fake, group, part->kv_tokens))
                assert(slot_at(fake, part, group, i)->hash == hash);
    }
    return hash;
}

static enum err fake_submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->under_way < fake->options.caps.steps_max);
    check_step(fake, step);
    if (!holds_two(fake)) {
        copy_in_order(fake, step);
        mark_slots(fake, step); /* so that none is changed by urgent steps */
    }
    for (uint32_t i = 0; i < step->logit_count && holds_two(fake); i++)
        if (step->logit_rows[i].generated)
            note_generated(fake, &step->sequences[step->logit_rows[i].sequence],
                           &step->logit_rows[i]);
    hold(fake, step, &fake->held[fake->under_way++]);
    fake->slices_left = fake->options.slices;
    return OK;
}

/* Rows are sampled in wait, like all others. */
static enum err fake_sample(void *self, uint64_t number, const struct logit_row *rows,
                            uint32_t count, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->under_way == 1 && number == fake->steps && count > 0);
    struct held *held = &fake->held[0];
    for (uint32_t i = 0; i < count; i++) {
        const struct logit_row *row = &rows[i];
        assert(row->index < held->step.logit_count && (i == 0 || row->index > row[-1].index));
        struct logit_row *own = &held->logit_rows[row->index];
        assert(own->is_late && !held->is_sampled[row->index]);
        assert(row->row == own->row && row->sequence == own->sequence &&
               row->counter == own->counter && row->seed == own->seed && row->counter > 0);
        const struct step_sequence *part = &held->sequences[row->sequence];
        const struct place *place = &fake->places[part->slot];
        assert(place->has_last && place->last == row->generated[row->counter - 1]);
        note_generated(fake, part, row);
        own->allowed = row->allowed;
        held->is_sampled[row->index] = true;
    }
    return OK;
}

static void sample_row(struct fake *fake, const struct step *step, const struct logit_row *row,
                       struct sample *ret_sample) {
    const struct step_sequence *part = &step->sequences[row->sequence];
    uint64_t hash = read_prefix(fake, step, row);
    *ret_sample = (struct sample){.token = fake_next_token(&fake->options, hash, row->sampling,
                                                           row->seed, row->counter, row->allowed)};
    ret_sample->logprob = -(float)ret_sample->token;
    ret_sample->top_count = row->sampling->top_logprobs;
    struct place *place = &fake->places[part->slot];
    place->has_last = true;
    place->last = ret_sample->token;
    place->last_position = step->positions[row->row] + 1;
}

static void run(struct fake *fake, const struct held *held, struct step_result *result) {
    const struct step *step = &held->step;
    compute_all(fake, step);
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        struct sample *sample = &result->samples[i];
        memset(sample, 0, sizeof *sample);
        sample->token = -1; /* for rows that are never sampled */
        if (row->scored) {
            sample->token = *row->scored;
            sample->top_count = row->sampling->prompt_top_logprobs;
        } else if (!row->is_late || held->is_sampled[i]) {
            sample_row(fake, step, row, sample);
        }
    }
}

/* The work is done here and not in submit, so that every change between the two is seen. */
static enum err fake_wait(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->under_way > 0);
    struct held held = fake->held[0];
    if (holds_two(fake)) {
        copy_in_order(fake, &held.step);
        mark_slots(fake, &held.step);
        resolve_tokens(fake, &held);
    }
    run(fake, &held, result);
    let_go(&held);
    fake->held[0] = fake->held[1];
    fake->under_way--;
    return OK;
}

static enum err fake_advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->under_way == 1);
    if (fake->slices_left > 0) fake->slices_left--;
    *ret_done = fake->slices_left == 0;
    return OK;
}

static void check_beside(const struct fake *fake, const struct step_sequence *part,
                         const struct step_sequence *other) {
    assert(part->slot != other->slot);
    if (fake->options.caps.state_places > 0) check_apart(part, other);
}

/* The slots that the step under way reads and writes must not change: those it writes are pending,
 * and those it reads are checked when it is computed. */
static enum err fake_interject(void *self, const struct step *step, struct step_result *result,
                               struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->under_way == 1 && step->row_count <= fake->options.caps.urgent_rows_max);
    const struct step *other = &fake->held[0].step;
    for (uint32_t i = 0; i < step->sequence_count; i++)
        for (uint32_t k = 0; k < other->sequence_count; k++)
            check_beside(fake, &step->sequences[i], &other->sequences[k]);
    check_step(fake, step);
    copy_in_order(fake, step);
    mark_slots(fake, step);
    run(fake, &(struct held){.step = *step}, result);
    return OK;
}

static void fake_close(void *self) {
    struct fake *fake = self;
    for (uint32_t i = 0; i < fake->under_way; i++) let_go(&fake->held[i]);
    for (uint32_t i = 0; i < fake->options.caps.sequences_max; i++) free(fake->places[i].tokens);
    free(fake->states);
    free(fake->places);
    free(fake->slots);
    free(fake);
}

static const struct backend_ops whole_ops = {
    .submit = fake_submit, .wait = fake_wait, .close = fake_close};
static const struct backend_ops sliced_ops = {.submit = fake_submit,
                                              .wait = fake_wait,
                                              .close = fake_close,
                                              .advance = fake_advance,
                                              .interject = fake_interject};
static const struct backend_ops two_ops = {
    .submit = fake_submit, .sample = fake_sample, .wait = fake_wait, .close = fake_close};

void fake_backend_open(struct backend *ret_backend, const struct fake_options *options) {
    const struct backend_caps *caps = &options->caps;
    struct fake *fake = calloc(1, sizeof *fake);
    if (!fake) abort();
    fake->options = *options;
    fake->slots = calloc((size_t)caps->page_count * BACKEND_BLOCK_TOKENS, sizeof *fake->slots);
    fake->places = calloc(caps->sequences_max, sizeof *fake->places);
    fake->states = calloc((size_t)caps->state_places + 1, sizeof *fake->states);
    if (!fake->slots || !fake->places || !fake->states) abort();
    for (uint32_t i = 0; i < caps->sequences_max && holds_two(fake); i++) {
        fake->places[i].tokens = calloc(caps->context_tokens_max, sizeof *fake->places[i].tokens);
        if (!fake->places[i].tokens) abort();
    }
    assert(options->slices == 0 || caps->steps_max == 1);
    const struct backend_ops *ops = options->slices > 0 ? &sliced_ops : &whole_ops;
    *ret_backend =
        (struct backend){.ops = caps->steps_max > 1 ? &two_ops : ops, .self = fake, .caps = *caps};
}
