/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue_options: the options of `quern serve` and `quern worker` about the bus between machines.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/options.h"

/* Rows that fill a struct queue_options (node/queue.h). */
extern const struct option queue_option_rows[];
/* Those that only the server has. */
extern const struct option queue_memory_rows[];
