/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stop: SIGINT and SIGTERM as a flag. The first asks for an orderly end, the second ends the
 * process at once: everything that counts is on the disk.
 *
 * Thread: main sets it up before others start; any may read the flag. */

#include <stdbool.h>

/* The flag the signals set. */
const volatile bool *stop_on_signals(void);
/* And when the process that started this one ends. */
void stop_with_parent(void);
