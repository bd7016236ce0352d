/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* step_runner: feeds the forward program steps of many sequences and keeps the logits of every
 * position, so that a test can compare how they were cut and mixed. */

#include "../../../cpu_weights.h"
#include "cpu/forward.h"

#include <stdlib.h>
#include <string.h>

#define RUNNER_SEQUENCES_MAX 16
#define RUNNER_STATES_MAX (2 * RUNNER_SEQUENCES_MAX)

/* One model opened by its parts. */
struct rig {
    struct checkpoint *checkpoint;
    struct model_config config;
    struct pool *pool;
    struct cpu_weights cpu;
    struct forward *forward;
    struct forward *beside; /* a second workspace of 128 rows */
    /* Called between two slices of each step; NULL: nothing comes between. */
    void (*between)(struct rig *rig, void *context);
    void *context;
};

struct runner_sequence {
    const int32_t *tokens; /* (count) */
    uint32_t count;
    uint32_t chunk; /* rows a step */
    uint32_t start; /* the step it enters in */
    uint32_t blocks[64];
    uint32_t slot;         /* place of its state, which no other has at the time */
    uint32_t cached;       /* positions another sequence writes for it */
    struct page_copy copy; /* before its first step, unless both pages are the same */
    uint32_t state_from;   /* place of its state after `cached` positions, if there are any */
    uint32_t save_at;      /* its state after so many positions goes to save_to; 0: none does */
    uint32_t save_to;
    uint32_t done;  /* positions so far */
    bool last_only; /* logits of the last row of each step alone */
    float *logits;  /* (count, vocab_rows); rows without wanted logits stay zero */
};

static inline void rig_close(struct rig *rig) {
    forward_close(rig->beside);
    forward_close(rig->forward);
    cpu_weights_close(&rig->cpu);
    pool_close(rig->pool);
    checkpoint_close(rig->checkpoint);
}

static inline enum err rig_open(struct rig *rig, const char *path, const struct kernels *kernels,
                                uint32_t threads, struct error *error) {
    *rig = (struct rig){0};
    enum err err = checkpoint_open(&rig->checkpoint, path, &(struct checkpoint_options){0}, error);
    if (err == OK) rig->config = *checkpoint_config(rig->checkpoint);
    if (err == OK) err = pool_open(&rig->pool, threads, error);
    if (err == OK)
        err = cpu_weights_open(&rig->cpu, rig->checkpoint, &rig->config, kernels, rig->pool, error);
    struct forward_options options = {.config = &rig->config,
                                      .weights = rig->cpu.weights,
                                      .kernels = kernels,
                                      .pool = rig->pool,
                                      .rows_max = 512,
                                      .logit_rows_max = 128,
                                      .page_count = 96,
                                      .state_count = RUNNER_STATES_MAX};
    if (err == OK) err = forward_open(&rig->forward, &options, error);
    if (err == OK) err = forward_open_beside(&rig->beside, rig->forward, 128, 16, error);
    if (err != OK) rig_close(rig);
    return err;
}

/* Says where the state of a sequence comes from, and where it is saved. */
static inline void set_state(const struct runner_sequence *sequence, struct step_sequence *part) {
    part->state = part->state_from = sequence->slot;
    if (part->slot_is_new)
        part->state_from = sequence->cached > 0 ? sequence->state_from : BACKEND_STATE_ZERO;
    if (sequence->save_at <= sequence->done || sequence->save_at > sequence->done + part->row_count)
        return;
    part->save_rows = sequence->save_at - sequence->done;
    part->save_to = sequence->save_to;
}

/* Appends the rows of a sequence's part of a step that shall have logits. */
static inline void want_rows(const struct runner_sequence *sequence,
                             const struct step_sequence *part, uint32_t *wanted, uint32_t *count) {
    for (uint32_t i = 0; i < part->row_count; i++)
        if (!sequence->last_only || i == part->row_count - 1)
            wanted[(*count)++] = part->row_first + i;
}

/* Copies the logits of wanted rows from `*at` on that belong to the sequence. */
static inline void keep_logits(struct rig *rig, struct runner_sequence *sequence,
                               const struct step_sequence *part, const uint32_t *wanted,
                               uint32_t count, uint32_t *at) {
    size_t vocab = rig->config.vocab_rows;
    for (; *at < count && wanted[*at] < part->row_first + part->row_count; ++*at) {
        uint32_t position = part->kv_tokens + wanted[*at] - part->row_first;
        memcpy(sequence->logits + position * vocab, forward_logits(rig->forward, *at, 1),
               vocab * sizeof(float));
    }
}

/* Runs the sequences, in list order within a step, until all are done. */
static inline void run_sequences(struct rig *rig, struct runner_sequence *sequences,
                                 uint32_t count) {
    bool left = true;
    for (uint32_t number = 0; left; number++) {
        int32_t tokens[512];
        uint32_t positions[512], rows = 0, members = 0, of[RUNNER_SEQUENCES_MAX];
        uint32_t wanted[512], wanted_count = 0, at = 0;
        struct step_sequence parts[RUNNER_SEQUENCES_MAX];
        struct page_copy copies[RUNNER_SEQUENCES_MAX];
        uint32_t copy_count = 0;
        left = false;
        for (uint32_t i = 0; i < count; i++) {
            struct runner_sequence *sequence = &sequences[i];
            if (number == 0) {
                sequence->done = sequence->cached;
                sequence->logits =
                    calloc((size_t)sequence->count * rig->config.vocab_rows, sizeof(float));
            }
            left = left || sequence->done < sequence->count;
            if (number < sequence->start || sequence->done == sequence->count) continue;
            uint32_t take = sequence->count - sequence->done;
            if (take > sequence->chunk) take = sequence->chunk;
            if (sequence->done == sequence->cached && sequence->copy.from != sequence->copy.to)
                copies[copy_count++] = sequence->copy;
            of[members] = i;
            parts[members++] =
                (struct step_sequence){.slot = sequence->slot,
                                       .slot_is_new = sequence->done == sequence->cached,
                                       .row_first = rows,
                                       .row_count = take,
                                       .kv_tokens = sequence->done,
                                       .block_count = 64,
                                       .page_stride = 64,
                                       .pages = sequence->blocks};
            set_state(sequence, &parts[members - 1]);
            want_rows(sequence, &parts[members - 1], wanted, &wanted_count);
            for (uint32_t j = 0; j < take; j++, rows++) {
                tokens[rows] = sequence->tokens[sequence->done + j];
                positions[rows] = sequence->done + j;
            }
        }
        if (members == 0) continue;
        const struct step step = {.row_count = rows,
                                  .sequence_count = members,
                                  .tokens = tokens,
                                  .positions = positions,
                                  .sequences = parts,
                                  .copies = copies,
                                  .copy_count = copy_count};
        forward_begin(rig->forward, &step, wanted, wanted_count);
        while (!forward_advance(rig->forward))
            if (rig->between) rig->between(rig, rig->context);
        for (uint32_t i = 0; i < members; i++) {
            struct runner_sequence *sequence = &sequences[of[i]];
            keep_logits(rig, sequence, &parts[i], wanted, wanted_count, &at);
            sequence->done += parts[i].row_count;
        }
    }
}
