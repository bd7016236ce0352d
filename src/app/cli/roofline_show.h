/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* roofline_show: the roofline of this machine (bench/roofline.h) on standard output, as a table or
 * as one JSON object.
 *
 * Thread: main.
 * Memory: borrows the roofline. */

#include "bench/roofline.h"

#include <stdbool.h>

void roofline_show(const struct roofline *roofline, bool json);
