/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inspect_verdict: whether the engine can run a model, as far as its head and its list of tensors
 * show.
 *
 * Thread: main, in the sandbox.
 * Memory: the caller's struct. */

#include "checkpoint/checkpoint.h"
#include "hub/inspect.h"

/* ERR_INVALID with the reason if the engine cannot run it. Adds to the inspection what the engine
 * knows of the model's windows. */
enum err inspect_verdict(struct inspection *inspection, const char *path,
                         struct error *error) MUST_CHECK;
/* The bytes of keys, values, states and weights of a decoder, as the CPU keeps them. */
void inspect_take(struct inspection *inspection, const struct checkpoint *checkpoint);
