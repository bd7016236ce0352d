/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* host_kernels: what the plain versions of the CUDA kernels share. Pure. */

#include <stdint.h>

float host_from_e4m3(uint8_t code); /* not for NaN */
uint8_t host_to_e4m3(float value);  /* the nearest code, at most 448 */
