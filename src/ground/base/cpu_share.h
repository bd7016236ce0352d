/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cpu_share: what keeps the processor from this process: limits of its control groups, of versions
 * 1 and 2, and the time that the host of a virtual machine took.
 *
 * Thread: any. It reads files of /proc and /sys, so a sandboxed process asks before it is one.
 * Memory: none. */

/* Cores that the control groups allow, such as 1.5; 0: no limit. */
double cpu_share_cores(void);
/* Share of the processor time since the start of the machine that its host took, 0 to 1. */
double cpu_share_stolen(void);
/* The same of a system whose files lie under `root`, for tests. */
double cpu_share_cores_under(const char *root);
double cpu_share_stolen_under(const char *root);
