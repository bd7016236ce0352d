/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_program: a decoder's program (program/program.h) in the numbers of a device.
 *
 * Matrices become their indices; the rest is copied field by field.
 *
 * Thread: any; constant after gpu_program_of.
 * Memory: owns the operations. Vectors and matrices are the model's, and must outlive it. */

#include "gpu/table.h"
#include "program/program.h"

/* `vocab`: tokens that may be sampled. The matrices are those of gpu/gpu_store.h. */
void gpu_program_of(struct gpu_program *ret_program, const struct program *program,
                    const struct gpu_matrix *matrices, uint32_t matrix_count, uint32_t vocab);
void gpu_program_release(struct gpu_program *program);
