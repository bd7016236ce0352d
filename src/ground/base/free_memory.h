/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* free_memory: how much memory this process can still take without swapping, by the machine and by
 * the limits of its control groups (a container's, a service's), of versions 1 and 2.
 *
 * It knows no engine. Others take memory meanwhile, so the number is an estimate.
 *
 * Thread: any. It reads files of /proc and /sys, so a sandboxed process asks before it is one.
 * Memory: none. */

#include <stdint.h>

/* In bytes; pages of files that the system can drop count as free. 0: not known. */
uint64_t free_memory_bytes(void);
/* The same of a system whose files lie under `root`, for tests. */
uint64_t free_memory_bytes_under(const char *root);
