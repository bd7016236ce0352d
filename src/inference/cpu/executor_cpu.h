/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* executor_cpu: the executor of the CPU (program/executor.h). It runs a decoder's program
 * (cpu/forward.h) over the steps of a scheduler and samples their rows (cpu/sampler.h).
 *
 * A step is computed slice by slice, in advance or in wait. An urgent step may pass it between two
 * slices, in a lane of its own: a second workspace on the same weights and the same KV cache. It
 * knows no file, no architecture and no text.
 *
 * Thread: one at a time (the engine loop), which spreads the work over a pool.
 * Memory: everything is sized and allocated in executor_cpu_open. The KV cache and the workspaces
 *     are mapped and take memory as they are first used.
 * Invariant: the tokens of a sequence depend on its prompt, sampling and seed only. */

#include "kernels/pool.h"
#include "program/executor.h"
#include "program/kv_layout.h"
#include "weights/weights.h"

#define EXECUTOR_CPU_ROWS 512u                /* default of executor_limits.rows_max */
#define EXECUTOR_CPU_SEQUENCES 128u           /* likewise of sequences_max */
#define EXECUTOR_CPU_KV_BYTES (1ull << 30)    /* likewise of kv_bytes */
#define EXECUTOR_CPU_STATE_BYTES (2ull << 30) /* likewise of state_bytes */

struct executor_cpu_options {
    const struct model_config *config; /* config of a decoder that generates */
    const struct kv_layout *layout;
    const struct weights *weights; /* open; they must be filled before the first step */
    const struct kernels *kernels;
    struct pool *pool;
    bool kv_is_int8; /* keys and values of 8 bits; not for latent entries */
    struct executor_limits limits;
};

/* ERR_INVALID when kv_bytes is less than a block or state_bytes less than a state, ERR_LIMIT
 * without memory. Everything that the options point to must outlive the executor. */
enum err executor_cpu_open(struct executor *ret_executor,
                           const struct executor_cpu_options *options,
                           struct error *error) MUST_CHECK;

/* Where the trials of a model are kept (cpu/cpu_notes.h). */
struct executor_cpu_notes {
    const char *dir; /* NULL: nowhere */
    bool may_write;
    const unsigned char *model; /* (model_bytes) as in struct cpu_notes_key */
    size_t model_bytes;
};

/* The most rows of a step that this machine computes fastest, at most those of the executor: the
 * number in the notes, or by trials of half a second at most, which leave notes. Without a place
 * for notes, and for a toy, those of the executor. Called once the weights are filled, before the
 * first step. No result of a row follows from it. */
uint32_t executor_cpu_rows(const struct executor *executor, const struct executor_cpu_notes *place);
