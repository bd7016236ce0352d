/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_shapes: the program that an executor would make of a model, from its config and its tensors'
 * types alone: matrices without rows, in the forms that a gpu_store would give them, and vectors
 * that are one float.
 *
 * It knows no limits and no bytes; gpu_fit asks what they would take.
 *
 * Thread: any.
 * Memory: a program and arrays of its own; config, checkpoint and layout must outlive them.
 * Invariant: it is not moved while it is open: the program points into it. */

#include "checkpoint/checkpoint.h"
#include "gpu/gpu_program.h"
#include "program/kv_layout.h"
#include "program/program.h"

struct gpu_shapes_options {
    const struct model_config *config;
    const struct kv_layout *layout;
    enum gpu_form weights;
    const struct checkpoint *checkpoint; /* with GPU_BLOCKS and for experts: its tensors' types */
    bool is_tied;                        /* the embedding is the head */
    bool is_for_texts, is_bidirectional; /* as text_runner_gpu.h has them */
};

struct gpu_shapes {
    struct gpu_program gpu_program;
    struct program program;
    struct matrix *matrices;      /* (count) by handle */
    struct gpu_matrix *forms;     /* (count) */
    struct layer_weights *layers; /* (layers) */
    struct matrix **experts;      /* (2 layers) gate_up and down of the first expert of each */
    struct matrix **heads;        /* (2 layers) k_b and v_b of the first head of each */
    uint32_t count;
    float vector;
};

void gpu_shapes_open(struct gpu_shapes *ret_shapes, const struct gpu_shapes_options *options);
void gpu_shapes_close(struct gpu_shapes *shapes);
/* Whether GPU_BLOCKS is a form of its own for a model: most of its numbers have fewer than 8 bits.
 * Single tensors may have more: rows that are not whole blocks of Q4_K, for one. */
bool gpu_shapes_has_blocks(const struct checkpoint *checkpoint);
