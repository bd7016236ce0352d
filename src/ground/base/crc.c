/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc.h"

#include <string.h>

#define POLYNOMIAL 0x82F63B78u /* reflected 0x1EDC6F41 */

static uint32_t crc_portable(uint32_t crc, const unsigned char *at, size_t count) {
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1u)));
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const unsigned char *at,
                                                            size_t count) {
    uint64_t wide = crc;
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; count > 0; at++, count--) crc = __builtin_ia32_crc32qi(crc, *at);
    return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t count) {
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_sse42(crc, bytes, count);
#endif
    return ~crc_portable(crc, bytes, count);
}
