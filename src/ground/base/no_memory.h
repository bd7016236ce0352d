/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* no_memory: the end of a process that has no memory for what it needs.
 *
 * quern plans its large memory at the start and bounds everything that grows, so that this is a
 * machine at its end, and every answer that follows would be a guess. What was acknowledged is on
 * the disk; the next start goes on from there.
 *
 * Thread: any.
 * Memory: none, and takes no lock. */

/* Says so on standard error, and aborts. */
_Noreturn void no_memory(void);
