/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_program: a decoder's program (program/program.h) in the numbers of a device.
 *
 * Matrices become their indices; the rest is copied field by field.
 *
 * Thread: any; constant after device_program_of.
 * Memory: owns the operations. Vectors and matrices are the model's, and must outlive it. */

#include "kernels/device.h"
#include "program/program.h"

/* `vocab`: tokens that may be sampled. The matrices are those of device/device_store.h. */
void device_program_of(struct device_program *ret_program, const struct program *program,
                       const struct device_matrix *matrices, uint32_t matrix_count, uint32_t vocab);
void device_program_release(struct device_program *program);
