/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* evaluate_show: the figures of `quern evaluate` as a table.
 *
 * Thread: main.
 * Memory: none. */

#include "evaluate/evaluation.h"

void evaluate_show_table(const struct evaluation *evaluation);
