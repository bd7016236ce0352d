/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products_load: finds and loads cuBLASLt. Plain C, so that tests without nvcc see its sentences.
 *
 * Thread: any.
 * Memory: the library stays loaded until the process ends: it has code on the GPU that the driver
 *     knows. */

#include "base/err.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the library at `path`; NULL: the first of its names in the first of the folders that has
 * it. A folder ends with a slash, or is empty: where the loader looks. ERR_UNAVAILABLE with the
 * remedy. */
enum err products_load(void **ret_library, const char *path, const char *const *folders,
                       size_t folder_count, struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
