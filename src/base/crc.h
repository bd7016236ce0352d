/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* crc: CRC-32C (Castagnoli), as iSCSI and ext4 use it; SSE 4.2 where the CPU has it.
 * crc32c(0, "123456789", 9) is 0xE3069283.  Thread: any. */

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 to start) over `count` bytes. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t count);
