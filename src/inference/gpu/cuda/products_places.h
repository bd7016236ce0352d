/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products_places: the places in which the plugin and the doctor look for cuBLASLt: first those of
 * the loader, then the folder of the plugin, then those of a separate installation of CUDA.
 *
 * Thread: any.
 * Memory: constants. */

#define PRODUCTS_NAMES "libcublasLt.so.13", "libcublasLt.so.12"
#define PRODUCTS_FOLDERS "/usr/local/cuda/lib64/", "/opt/cuda/lib64/"
