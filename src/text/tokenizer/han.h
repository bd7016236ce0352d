/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* han: which characters are Han, the script of Chinese (Script=Han of Unicode 16.0, as \p{Han} of a
 * regular expression means it).
 *
 * Thread: any; pure.
 * Memory: none. */

#include <stdbool.h>
#include <stdint.h>

bool is_han(uint32_t code_point);
