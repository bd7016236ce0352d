/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_find: whether this machine has the plugin next to the program, and a driver. It looks at
 * names of files and loads nothing, so that a server can ask too.
 *
 * Thread: any.
 * Memory: none. */

#include "base/str.h"

#include <limits.h>

#define GPU_PLUGIN_NAME "libquern-cuda.so"

/* Finds the plugin next to the program; false when none exists. */
bool gpu_find_plugin(char ret_path[PATH_MAX]);
/* True when the machine has a driver of NVIDIA, loaded or under Windows. */
bool gpu_find_driver(void);
/* The number of NVIDIA GPUs that an engine will see: those of CUDA_VISIBLE_DEVICES if it is set,
 * else those with a device file. 0: none, or not known (under Windows). */
unsigned gpu_find_count(void);
/* True when an engine with these values of --device and --device-plugin will probably run on a
 * GPU. */
bool gpu_find_is_likely(struct str gpu, struct str plugin);
