/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/trial_step.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cpu/step_trials.h"

#include <stdlib.h>
#include <time.h>

#define TEXT_ROWS 64u
#define TEXT_BLOCKS (TEXT_ROWS / KV_BLOCK_TOKENS)
#define PART_NS (STEP_TRIALS_BUDGET_NS / 16)
#define LAYER_SLICES 3u
#define LAYER_NS_MOST (STEP_TRIALS_BUDGET_NS / 4) /* a larger layer leaves too few trials */
#define WEIGHT_BYTES_LEAST ((uint64_t)32 << 20)   /* steps of a smaller model are short anyway */

struct trial_step {
    struct forward *forward;
    uint32_t slices; /* slices of a trial */
    int32_t *tokens;
    uint32_t *positions;
    uint32_t *pages; /* (groups, texts · TEXT_BLOCKS) */
    struct step_sequence *sequences;
};

static int64_t spent_ns(void) {
    struct timespec spent;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent) != 0) return 0;
    return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}

static void begin(struct trial_step *trial, struct step *step, uint32_t rows) {
    *step = (struct step){.row_count = rows,
                          .sequence_count = rows / TEXT_ROWS,
                          .tokens = trial->tokens,
                          .positions = trial->positions,
                          .sequences = trial->sequences};
    forward_begin(trial->forward, step, NULL, 0);
}

/* Runs `slices` slices of a step, and more until `least_ns` have gone by. Returns the time. */
static int64_t run_slices(struct trial_step *trial, uint32_t rows, uint32_t slices,
                          int64_t least_ns) {
    struct step step;
    const int64_t begin_ns = clock_monotonic_ns();
    int64_t ns = 0;
    bool is_done = false;
    begin(trial, &step, rows);
    for (trial->slices = 0; !is_done && (trial->slices < slices || ns < least_ns);
         trial->slices++) {
        is_done = forward_advance(trial->forward);
        ns = clock_monotonic_ns() - begin_ns;
    }
    return ns;
}

/* Finds out how many slices a trial has. The first layer also touches the buffers. */
static bool count_slices(struct trial_step *trial, uint32_t rows) {
    if (run_slices(trial, rows, LAYER_SLICES, 0) > LAYER_NS_MOST) return false;
    (void)run_slices(trial, rows, LAYER_SLICES, PART_NS);
    return true;
}

static void fill(struct trial_step *trial, const struct forward_options *options, uint32_t groups) {
    const uint32_t rows = options->rows_max, texts = rows / TEXT_ROWS;
    for (uint32_t i = 0; i < rows; i++) trial->positions[i] = i % TEXT_ROWS;
    for (uint32_t i = 0; i < rows; i++)
        trial->tokens[i] = (int32_t)(i % (uint32_t)options->config->token_count);
    for (uint32_t i = 0; i < groups * texts * TEXT_BLOCKS; i++) trial->pages[i] = i;
    for (uint32_t i = 0; i < texts; i++)
        trial->sequences[i] = (struct step_sequence){.slot = i,
                                                     .slot_is_new = true,
                                                     .row_first = i * TEXT_ROWS,
                                                     .row_count = TEXT_ROWS,
                                                     .block_count = TEXT_BLOCKS,
                                                     .page_stride = texts * TEXT_BLOCKS,
                                                     .pages = trial->pages + i * TEXT_BLOCKS,
                                                     .state = i,
                                                     .state_from = BACKEND_STATE_ZERO};
}

struct trial_step *trial_step_open(struct forward *forward, const struct forward_options *options) {
    const uint32_t texts = options->rows_max / TEXT_ROWS;
    const uint32_t groups = kv_layout_groups(options->layout);
    const bool has_states = forward_state_bytes(options->config) > 0;
    if (options->weights->bytes < WEIGHT_BYTES_LEAST || options->rows_max % TEXT_ROWS > 0 ||
        options->page_count < groups * texts * TEXT_BLOCKS ||
        (has_states && options->state_count < texts))
        return NULL;
    struct trial_step *trial = mem_new(1, sizeof *trial);
    trial->forward = forward;
    trial->tokens = mem_new(options->rows_max, sizeof *trial->tokens);
    trial->positions = mem_new(options->rows_max, sizeof *trial->positions);
    trial->pages = mem_new((size_t)groups * texts * TEXT_BLOCKS, sizeof *trial->pages);
    trial->sequences = mem_new(texts, sizeof *trial->sequences);
    fill(trial, options, groups);
    if (count_slices(trial, options->rows_max)) return trial;
    trial_step_close(trial);
    return NULL;
}

int64_t trial_step_run(void *self, uint32_t rows) {
    struct trial_step *trial = self;
    struct step step;
    const int64_t begin_ns = spent_ns();
    begin(trial, &step, rows);
    for (uint32_t i = 0; i < trial->slices && !forward_advance(trial->forward); i++) continue;
    return spent_ns() - begin_ns;
}

void trial_step_close(struct trial_step *trial) {
    if (!trial) return;
    free(trial->sequences);
    free(trial->pages);
    free(trial->positions);
    free(trial->tokens);
    free(trial);
}
