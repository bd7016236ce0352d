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

struct fake {
    struct fake_options options;
    struct slot *slots;       /* (page_count, BACKEND_BLOCK_TOKENS) */
    uint32_t *slot_positions; /* (sequences_max) where the sequence in the slot goes on */
    uint64_t *slot_seen;      /* (sequences_max) step in which the slot had rows last */
    const struct step *step;  /* between submit and wait */
    uint32_t slices_left;     /* slices of that step */
    uint64_t steps;
};

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

/* The shape of a step, and that no slot is written twice. */
static void check_step(struct fake *fake, const struct step *step) {
    const struct backend_caps *caps = &fake->options.caps;
    assert(step->number > fake->steps);
    assert(step->row_count > 0 && step->row_count <= caps->rows_max);
    assert(step->sequence_count > 0 && step->sequence_count <= caps->sequences_max);
    assert(step->logit_count <= step->row_count);
    uint32_t row = 0;
    for (uint32_t i = 0; i < step->sequence_count; i++) {
        const struct step_sequence *part = &step->sequences[i];
        assert(part->row_first == row && part->row_count > 0);
        assert(part->kv_tokens + part->row_count <= caps->context_tokens_max);
        assert(part->slot < caps->sequences_max && fake->slot_seen[part->slot] != step->number);
        assert(part->slot_is_new || fake->slot_positions[part->slot] == part->kv_tokens);
        fake->slot_seen[part->slot] = step->number;
        fake->slot_positions[part->slot] = part->kv_tokens + part->row_count;
        for (uint32_t k = 0; k < part->row_count; k++, row++) {
            assert(step->positions[row] == part->kv_tokens + k);
            assert(step->tokens[row] >= 0 && (uint32_t)step->tokens[row] < caps->vocab);
            for (uint32_t group = 0; group < group_count(fake); group++) {
                struct slot *slot = slot_at(fake, part, group, part->kv_tokens + k);
                assert(slot->written_in != step->number && !slot->is_pending);
                slot->written_in = step->number;
                slot->is_pending = true;
            }
        }
    }
    assert(row == step->row_count);
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

/* False when it must be tried again, once others have computed. */
static bool compute(struct fake *fake, const struct step *step, const struct step_sequence *part) {
    uint64_t hash;
    if (!see_prefix(fake, part, &hash)) return false;
    for (uint32_t k = 0; k < part->row_count; k++) {
        hash = fake_hash(hash, step->tokens[part->row_first + k]);
        for (uint32_t group = 0; group < group_count(fake); group++) {
            struct slot *slot = slot_at(fake, part, group, part->kv_tokens + k);
            slot->hash = hash;
            slot->is_pending = false;
        }
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
static uint64_t read_prefix(struct fake *fake, const struct step_sequence *part,
                            const struct logit_row *row) {
    uint64_t hash = FAKE_HASH_START;
    uint32_t count = row->prompt_count + row->counter;
    assert(count == part->kv_tokens + part->row_count);
    for (uint32_t i = 0; i < count; i++) {
        hash = fake_hash(hash, i < row->prompt_count ? row->prompt[i]
                                                     : row->generated[i - row->prompt_count]);
        for (uint32_t group = 0; group < group_count(fake); group++)
            if (i >= first_seen(fake, group, part->kv_tokens))
                assert(slot_at(fake, part, group, i)->hash == hash);
    }
    return hash;
}

static enum err fake_submit(void *self, const struct step *step, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(!fake->step);
    check_step(fake, step);
    fake->steps = step->number;
    fake->step = step;
    fake->slices_left = fake->options.slices;
    return OK;
}

static void run(struct fake *fake, const struct step *step, struct step_result *result) {
    compute_all(fake, step);
    uint32_t last_row = 0;
    for (uint32_t i = 0; i < step->logit_count; i++) {
        const struct logit_row *row = &step->logit_rows[i];
        const struct step_sequence *part = &step->sequences[row->sequence];
        assert(i == 0 || row->row > last_row);
        last_row = row->row;
        struct sample *sample = &result->samples[i];
        memset(sample, 0, sizeof *sample);
        if (row->scored) {
            assert(row->row >= part->row_first && row->row < part->row_first + part->row_count);
            assert(row->scored == row->prompt + step->positions[row->row] + 1);
            sample->token = *row->scored;
            sample->top_count = row->sampling->prompt_top_logprobs;
            continue;
        }
        assert(row->row == part->row_first + part->row_count - 1);
        uint64_t hash = read_prefix(fake, part, row);
        sample->token = fake_next_token(&fake->options, hash, row->sampling, row->seed,
                                        row->counter, row->allowed);
        sample->logprob = -(float)sample->token;
        sample->top_count = row->sampling->top_logprobs;
    }
}

/* The work is done here and not in submit, so that every change between the two is seen. */
static enum err fake_wait(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->step);
    run(fake, fake->step, result);
    fake->step = NULL;
    return OK;
}

static enum err fake_advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->step);
    if (fake->slices_left > 0) fake->slices_left--;
    *ret_done = fake->slices_left == 0;
    return OK;
}

/* The slots that the step under way reads and writes must not change: those it writes are pending,
 * and those it reads are checked when it is computed. */
static enum err fake_interject(void *self, const struct step *step, struct step_result *result,
                               struct error *error) {
    (void)error;
    struct fake *fake = self;
    assert(fake->step && step->row_count <= fake->options.caps.urgent_rows_max);
    for (uint32_t i = 0; i < step->sequence_count; i++)
        for (uint32_t k = 0; k < fake->step->sequence_count; k++)
            assert(step->sequences[i].slot != fake->step->sequences[k].slot);
    check_step(fake, step);
    fake->steps = step->number;
    run(fake, step, result);
    return OK;
}

static void fake_close(void *self) {
    struct fake *fake = self;
    free(fake->slots);
    free(fake->slot_positions);
    free(fake->slot_seen);
    free(fake);
}

static const struct backend_ops whole_ops = {
    .submit = fake_submit, .wait = fake_wait, .close = fake_close};
static const struct backend_ops sliced_ops = {.submit = fake_submit,
                                              .wait = fake_wait,
                                              .close = fake_close,
                                              .advance = fake_advance,
                                              .interject = fake_interject};

void fake_backend_open(struct backend *ret_backend, const struct fake_options *options) {
    const struct backend_caps *caps = &options->caps;
    struct fake *fake = calloc(1, sizeof *fake);
    if (!fake) abort();
    fake->options = *options;
    fake->slots = calloc((size_t)caps->page_count * BACKEND_BLOCK_TOKENS, sizeof *fake->slots);
    fake->slot_positions = calloc(caps->sequences_max, sizeof *fake->slot_positions);
    fake->slot_seen = calloc(caps->sequences_max, sizeof *fake->slot_seen);
    if (!fake->slots || !fake->slot_positions || !fake->slot_seen) abort();
    *ret_backend = (struct backend){
        .ops = options->slices > 0 ? &sliced_ops : &whole_ops, .self = fake, .caps = *caps};
}
