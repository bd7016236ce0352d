/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tune_show: the figures of `quern tune` as a table.
 *
 * Thread: main.
 * Memory: none. */

#include "tune/tune.h"

void tune_show_table(const struct tune_figures *shown);
