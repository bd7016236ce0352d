/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products_places: where cuBLASLt is looked for, by the plugin and by the doctor: the loader's own
 * places first, then next to the plugin, then where CUDA is installed by itself.
 *
 * Thread: any.
 * Memory: constants. */

#define PRODUCTS_NAMES "libcublasLt.so.13", "libcublasLt.so.12"
#define PRODUCTS_FOLDERS "/usr/local/cuda/lib64/", "/opt/cuda/lib64/"
