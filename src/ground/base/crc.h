/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* crc: CRC-32C (Castagnoli), the checksum of iSCSI and ext4. It runs on the SSE 4.2 instruction of
 * CPUs that have it. crc32c(0, "123456789", 9) is 0xE3069283.
 *
 * Thread: any; pure.
 * Memory: none. */

#include <stddef.h>
#include <stdint.h>

/* Continues `crc`, which is 0 at the start, over `count` bytes. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t count);
