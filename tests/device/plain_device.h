/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_device: the device of the tests (plain_internal.h tells its environment), linked or as the
 * plugin libquern-plain.so.
 *
 * Thread: as kernels/device.h.
 * Memory: the table is constant. */

#include "kernels/device.h"

const struct device_table *quern_device_table(void);
