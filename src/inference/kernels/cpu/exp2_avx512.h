/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* exp2_avx512: a power of two for weights of which few bits are kept.
 *
 * Include it behind vec_avx512.h.
 *
 * Thread: any.
 * Memory: none. */

/* 2^x, for x <= 0, to 2^-18 of it: the polynomial of degree 4 with the least largest relative error
 * over the fraction above the next lower integer, and 1 at 0. */
static inline vec exp2_coarse(vec x) {
    vec f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vec p = vec_set(0.0134268108f);
    p = vec_fma(p, f, vec_set(0.0522422708f));
    p = vec_fma(p, f, vec_set(0.2412803f));
    p = vec_fma(p, f, vec_set(0.693044833f));
    return _mm512_scalef_ps(vec_fma(p, f, vec_set(1.0f)), x);
}
