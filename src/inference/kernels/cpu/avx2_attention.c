/* SPDX-License-Identifier: Apache-2.0 */

/* attention_body.inc at the width of AVX2. */

#define ROWS_MAX 4       /* 4 x 2 sums, 2 keys or values, a broadcast: 11 of 16 registers */
#define BLOCKS_AT_ONCE 1 /* blocks of scores */
#define VALUES_AT_ONCE 2 /* vectors of values */

#include "kernels/cpu/avx2.h"

#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/kv_halves.h"

#include "kernels/cpu/attention_body.inc"
