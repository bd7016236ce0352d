/* SPDX-License-Identifier: Apache-2.0 */

/* recurrent_body.inc and mamba_body.inc at the width of AVX2. */

#include "kernels/cpu/avx2.h"

#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/recurrent_body.inc"

#include "kernels/cpu/mamba_body.inc"
