/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

void base64_add(struct buf *buf, const void *bytes, size_t count) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    size_t text_bytes = (count + 2) / 3 * 4;
    char *to = buf_reserve(buf, text_bytes);
    if (!to) {
        buf->overflowed = true;
        return;
    }
    for (size_t i = 0; i < count; i += 3) {
        uint32_t group = (uint32_t)from[i] << 16;
        if (i + 1 < count) group |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < count) group |= from[i + 2];
        *to++ = letters[group >> 18];
        *to++ = letters[group >> 12 & 63];
        *to++ = i + 1 < count ? letters[group >> 6 & 63] : '=';
        *to++ = i + 2 < count ? letters[group & 63] : '=';
    }
    buf_commit(buf, text_bytes);
}
