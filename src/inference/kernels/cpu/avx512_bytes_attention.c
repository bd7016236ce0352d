/* SPDX-License-Identifier: Apache-2.0 */

/* attention_body.inc over a cache of 8 bits, at the width of AVX-512 with VNNI. */

#define ROWS_MAX 6       /* 6 x 4 sums, 4 keys or values, a broadcast: 29 of 32 registers */
#define BLOCKS_AT_ONCE 4 /* blocks of scores */
#define VALUES_AT_ONCE 4 /* vectors of values */

#include "kernels/cpu/avx512.h"

#include "kernels/cpu/vec_avx512.h"

#undef VEC_NAME
#define VEC_NAME(name) avx512_bytes_##name

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/kv_bytes_avx512.h"

#include "kernels/cpu/attention_body.inc"

#include "kernels/cpu/kv_bytes_store.inc"
