/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* planted_kernels: a kernel that never ends and that leaves no other kernel of its process a place
 * on the GPU, and one that stores outside of the GPU's memory, through the driver's own interface.
 * A machine without an NVIDIA driver has none.
 *
 * Thread: any, one at a time.
 * Memory: the driver's, until the process ends.
 * Invariant: the driver compiles the kernels in planted_kernels_load, before the sandbox. */

#include <stdbool.h>
#include <stdint.h>

/* For the GPU of that number, whose context its runtime has made. False: no driver, or it refuses.
 */
bool planted_kernels_load(uint32_t gpu);
/* After planted_kernels_load, on the GPU that was loaded for last. They return once the kernel is
 * on its way. */
void endless_kernel_start(void);
void outside_kernel_start(void);
