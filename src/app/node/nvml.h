/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* nvml: NVIDIA's management library, found at run time: memory, power, clocks and errors of a GPU.
 *
 * The library comes with the driver and is not linked, so a machine without a GPU needs nothing.
 * A function that an older library lacks makes its value unknown. A call may block for seconds
 * while a driver is in trouble, so a thread of its own makes the calls (card_watch.h).
 *
 * Thread: one.
 * Memory: one struct nvml, from open to close. The library stays loaded, because it may have
 *     threads. */

#include "base/err.h"
#include "protocol/card.h"

struct nvml;

/* `library`: a path for tests; NULL: libnvidia-ml.so.1. ERR_UNAVAILABLE with a sentence. */
enum err nvml_open(struct nvml **ret_nvml, const char *library, struct error *error) MUST_CHECK;
/* NULL is allowed. */
void nvml_close(struct nvml *nvml);

/* Bytes of memory of this machine's largest GPU; 0 without one. */
uint64_t nvml_largest_bytes(struct nvml *nvml);

/* Sets name, is_up, values and brakes of the GPU with this UUID. is_up is false for a GPU that
 * the driver does not know or has lost. */
void nvml_read(struct nvml *nvml, const char *uuid, struct card_status *ret_status);

/* Asks for errors of this GPU from now on; nvml_next_xid gives them. False if the GPU has none to
 * tell. */
bool nvml_follow(struct nvml *nvml, const char *uuid);
/* The number of the next error, and the UUID of its GPU. False if no error waits. */
bool nvml_next_xid(struct nvml *nvml, uint32_t *ret_xid, char ret_uuid[CARD_UUID_BYTES]);
