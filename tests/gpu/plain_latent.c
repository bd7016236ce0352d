/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"
#include "plain_internal.h"

#include <string.h>

/* Operations of latent layers around their attention, from the sizes of the program alone. */

static void norm_part(const struct gpu *gpu, float *x, const float *weight, uint32_t width) {
    ref_rms_norm(&(struct norm){.x = x,
                                .x_stride = width,
                                .y = x,
                                .y_stride = width,
                                .weight = weight,
                                .width = width,
                                .rows = 1,
                                .epsilon = gpu->program.latent.eps});
}

/* Turns the part of a row's head, or of its entry, that turns. */
static void turn(const struct gpu *gpu, uint32_t row, float *part) {
    const uint32_t count = gpu->program.latent.turned_dim;
    ref_rope(&(struct rope){.x = part,
                            .x_stride = count,
                            .positions = &row,
                            .rows = 1,
                            .head_count = 1,
                            .head_dim = count,
                            .rotary_dim = count,
                            .cosines = gpu->cosines[0],
                            .sines = gpu->sines[0]});
}

void plain_latent_entry(struct plain_pass *pass, const struct gpu_op *op) {
    struct gpu *gpu = pass->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    const uint32_t dim = sizes->rank + sizes->turned_dim, q_rank = sizes->q_rank;
    const size_t before = q_rank > 0 ? q_rank : program->heads * gpu_latent_head(program);
    MUST(!pass->is_kept, "LATENT_ENTRY behind KEEP");
    for (uint32_t i = 0; i < pass->row_count; i++) {
        float *row = pass->wide + i * (before + dim), entry[PLAIN_HEAD_DIM_MAX];
        const uint32_t slot = pass->step->groups[op->kv_group].slots[i];
        memcpy(entry, row + before, dim * sizeof *entry);
        norm_part(gpu, entry, op->latent.norm, sizes->rank);
        turn(gpu, i, entry + sizes->rank);
        plain_kv_put(gpu, (struct plain_kv){op->kv_place, slot, 0, dim, false}, entry);
        gpu->stamps[(size_t)op->kv_place * plain_slots(gpu) + slot] =
            (struct plain_stamp){.position_1 = pass->step->positions[i] + 1, .group = op->kv_group};
        if (q_rank == 0) continue;
        float *to = pass->attended + (size_t)i * q_rank;
        memcpy(to, row, q_rank * sizeof *to);
        norm_part(gpu, to, op->latent.q_norm, q_rank);
    }
    plain_prepare_rows(pass, op, pass->attended, q_rank, q_rank);
}

/* y (rows of a head's matrix) = the matrix of head `head` of `matrix` · x. */
static void multiply_head(const struct gpu *gpu, uint32_t matrix, uint32_t head, const float *x,
                          float *y) {
    const struct plain_matrix *from = &gpu->matrices[matrix];
    const uint32_t cols = from->shape.cols, rows = from->shape.rows / gpu->program.heads;
    for (uint32_t i = 0; i < rows; i++) {
        const size_t at = ((size_t)head * rows + i) * cols;
        const float *weights = (const float *)from->values + at;
        if (from->shape.form != GPU_F32) {
            for (uint32_t k = 0; k < cols; k++)
                gpu->weights[k] = bf16_to_f32(((const uint16_t *)from->values)[at + k]);
            weights = gpu->weights;
        }
        y[i] = plain_dot(x, weights, cols);
    }
}

void plain_latent_q(struct plain_pass *pass, const struct gpu_op *op) {
    struct gpu *gpu = pass->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct gpu_latent_sizes *sizes = &program->latent;
    const size_t dim = sizes->rank + sizes->turned_dim, each = gpu_latent_head(program);
    const size_t heads = program->heads, stride = heads * each + (sizes->q_rank > 0 ? 0 : dim);
    const enum gpu_form form = gpu->matrices[op->latent.k_b].shape.form;
    plain_begin(pass); /* behind KEEP the rows have other angles */
    for (uint32_t i = 0; i < pass->row_count; i++)
        for (uint32_t head = 0; head < heads; head++) {
            float *q = pass->wide + i * stride + head * each;
            float *to = gpu->queries + (i * heads + head) * dim;
            plain_round(form, q, sizes->still_dim);
            multiply_head(gpu, op->latent.k_b, head, q, to);
            turn(gpu, i, q + sizes->still_dim);
            memcpy(to + sizes->rank, q + sizes->still_dim, sizes->turned_dim * sizeof *to);
            plain_round(form, to, (uint32_t)dim);
        }
}

void plain_latent_out(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu *gpu = pass->gpu;
    const struct gpu_latent_sizes *sizes = &gpu->program.latent;
    const size_t heads = gpu->program.heads, rank = sizes->rank, values = sizes->value_dim;
    const enum gpu_form form = gpu->matrices[op->latent.v_b].shape.form;
    for (uint32_t i = 0; i < pass->row_count; i++)
        for (uint32_t head = 0; head < heads; head++) {
            float *from = pass->attended + (i * heads + head) * rank;
            plain_round(form, from, (uint32_t)rank);
            multiply_head(gpu, op->latent.v_b, head, from,
                          pass->wide + (i * heads + head) * values);
        }
    const uint32_t width = (uint32_t)(heads * values);
    plain_prepare_rows(pass, op, pass->wide, width, width);
}
