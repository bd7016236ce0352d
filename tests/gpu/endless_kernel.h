/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* endless_kernel: a kernel that never ends and that leaves no other kernel of its process a place
 * on the GPU, through the driver's own interface. A machine without an NVIDIA driver has none.
 *
 * Thread: any, one at a time.
 * Memory: the driver's, until the process ends.
 * Invariant: the driver compiles the kernel in endless_kernel_load, before the sandbox. */

#include <stdbool.h>

/* For the GPU whose context is the calling thread's. False: no driver, or it refuses. */
bool endless_kernel_load(void);
/* After endless_kernel_load. Returns once the kernel is on its way. */
void endless_kernel_start(void);
