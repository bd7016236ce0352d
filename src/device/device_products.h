/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* device_products: whether cuBLASLt, with which a card of NVIDIA is opened, can be loaded.
 *
 * Neither the driver nor quern brings it. The library is loaded for a moment, so this is for a process
 * that computes nothing: the doctor.
 *
 * Thread: one.
 * Memory: none. */

#include <limits.h>
#include <stdbool.h>

/* Finds the library where the plugin at this path looks for it. `ret_path` is a name alone where the
 * loader finds it by itself. */
bool device_products_find(const char *plugin, char ret_path[PATH_MAX]);
