/* SPDX-License-Identifier: Apache-2.0 */

/* rows_body.inc at the width of AVX-512. */

#include "kernels/cpu/avx512.h"

#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/rows_body.inc"
