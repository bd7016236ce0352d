/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_device: the GPU of the tests (plain_internal.h tells its environment), linked or as the
 * plugin libquern-plain.so.
 *
 * Thread: as gpu/table.h.
 * Memory: the table is constant. */

#include "gpu/table.h"

const struct gpu_table *quern_gpu_table(void);
