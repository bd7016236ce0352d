/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_products: finds cuBLASLt, which quern needs to open a GPU of NVIDIA.
 *
 * Neither the driver nor quern includes it. The search loads the library for a moment, so only a
 * process that computes nothing may call it: the doctor.
 *
 * Thread: one.
 * Memory: none. */

#include <limits.h>
#include <stdbool.h>

/* Searches the places in which the plugin at this path looks. False if no library can be loaded.
 * `ret_path` is a bare name if the loader itself finds the library. */
bool gpu_products_find(const char *plugin, char ret_path[PATH_MAX]);
