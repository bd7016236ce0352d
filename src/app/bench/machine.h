/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* machine: on what machine a benchmark ran, and with which command.
 *
 * Figures without these two cannot be repeated. What the machine does not tell stays empty.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include <stdint.h>

struct machine {
    char processor[128]; /* "AMD EPYC 9B14" */
    char kernel[128];    /* "Linux 6.1.0 x86_64" */
    long cores;
    uint64_t memory_bytes;
    double load;        /* average over the last minute */
    char command[4096]; /* this process's arguments, quoted for a shell */
};

void machine_describe(struct machine *ret_machine);
