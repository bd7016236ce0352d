/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* calls: the calls of the C library by which quern reaches files, on the simulated disk.
 *
 * The rig's program is linked with --wrap for each of them (meson.build), so that the objects of
 * quern call these instead. Paths below RIG_ROOT and descriptors from CALLS_FIRST on belong to the
 * simulated disk, all others to the kernel.
 *
 * Thread: one.
 * Memory: a table of descriptors of a fixed size. */

#define RIG_ROOT "/rig"
#define RIG_DIR "/rig/state"
#define CALLS_FIRST 1000

/* The life begins: no descriptor is open. */
void calls_begin(void);
/* Descriptors that are open. */
unsigned calls_open(void);
