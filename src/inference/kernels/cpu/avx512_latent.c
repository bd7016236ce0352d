/* SPDX-License-Identifier: Apache-2.0 */

/* latent_body.inc at the width of AVX-512. */

#define ROWS_MAX 4       /* 4 x 4 scores, 4 queries, a key: 21 of 32 registers */
#define KEYS_AT_ONCE 4   /* keys of scores */
#define VALUES_AT_ONCE 4 /* vectors of values: 4 x 4 sums, 4 values, a broadcast */

#include "kernels/cpu/avx512.h"

#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/latent_body.inc"
