/* SPDX-License-Identifier: Apache-2.0 */

/* attention_body.inc over a cache of 8 bits, at the width of AVX2. */

#define ROWS_MAX 4       /* 4 x 2 sums, 2 keys in two forms, a query, a product, ones: 15 of 16 */
#define BLOCKS_AT_ONCE 1 /* blocks of scores */
#define VALUES_AT_ONCE 2 /* vectors of values */

#include "kernels/cpu/avx2.h"

#include "kernels/cpu/vec_avx2.h"

#undef VEC_NAME
#define VEC_NAME(name) avx2_bytes_##name

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/kv_bytes_avx2.h"

#include "kernels/cpu/attention_body.inc"

#include "kernels/cpu/kv_bytes_store.inc"
