/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tables: the tables of the x86-64 kernels. kernels_at gives one only on a CPU with its
 * instructions.
 *
 * Thread: any.
 * Memory: constants. */

#include "kernels/kernels.h"

extern const struct kernels avx2_kernels;        /* AVX2, FMA, F16C */
extern const struct kernels avx512_kernels;      /* also AVX-512 F, BW, DQ, VL, VNNI */
extern const struct kernels avx512_bf16_kernels; /* also AVX-512 BF16 */
