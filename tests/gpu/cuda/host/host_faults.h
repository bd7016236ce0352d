/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* host_faults: a machine that cannot be used, or a GPU that others fill, by variables:
 *
 *   QUERN_HOST_MACHINE  no-driver, old-driver, no-GPU, old-GPU, no-code or no-library: its defect;
 *                       ptx: a GPU for which the driver must compile the kernels;
 *                       apart, unmapped: GPUs that do not reach each other's memory
 *   QUERN_HOST_FULL     "place:n": the first n tries to make this find no memory; the place is
 *                       context, stream or library (cuBLASLt's handle)
 *   QUERN_HOST_FAULT    ecc or launch: what a kernel that stores outside makes the GPU tell,
 *                       instead of an illegal access
 *   QUERN_HOST_FAULT_ON the GPU that alone tells it; others do as if nothing had been stored
 *
 * Thread: one. */

#include <stdbool.h>

/* How many GPUs there are (QUERN_HOST_CARDS). */
#define HOST_CARDS_MAX 4
int host_cards(void);
bool host_machine_is(const char *kind);
bool host_fault_is(const char *kind);
bool host_has_fault(int card);        /* whether the GPU tells what its kernels store outside */
bool host_is_full(const char *place); /* counts a try */
bool host_was_full(void);             /* by the last try */
