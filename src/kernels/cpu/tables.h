/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tables: the tables of the x86-64 kernels. Use one only on a CPU that has its instructions, as
 * kernels_at does.  Thread: any.  Memory: constants. */

#include "kernels/kernels.h"

extern const struct kernels avx2_kernels;        /* AVX2, FMA, F16C */
extern const struct kernels avx512_kernels;      /* and AVX-512 F, BW, DQ, VL, VNNI */
extern const struct kernels avx512_bf16_kernels; /* and AVX-512 BF16 */
