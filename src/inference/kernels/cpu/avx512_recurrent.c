/* SPDX-License-Identifier: Apache-2.0 */

/* recurrent_body.inc and mamba_body.inc at the width of AVX-512. */

#include "kernels/cpu/avx512.h"

#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/recurrent_body.inc"

#include "kernels/cpu/mamba_body.inc"
