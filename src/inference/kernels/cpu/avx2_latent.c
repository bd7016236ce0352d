/* SPDX-License-Identifier: Apache-2.0 */

/* latent_body.inc at the width of AVX2. */

#define ROWS_MAX 4       /* 4 x 2 scores, 4 queries, a key: 13 of 16 registers */
#define KEYS_AT_ONCE 2   /* keys of scores */
#define VALUES_AT_ONCE 2 /* vectors of values: 4 x 2 sums, 2 values, a broadcast */

#include "kernels/cpu/avx2.h"

#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/latent_body.inc"
