/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inline: how the kernels get their loops unrolled and their parts inlined.
 *
 * Thread: any.
 * Memory: none. */

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Arrays of registers exist only when the loops over them are gone. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
