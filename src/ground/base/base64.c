/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <sodium/utils.h>

void base64_add(struct buf *buf, const void *bytes, size_t count) {
    size_t text_bytes = (count + 2) / 3 * 4;
    char *to = buf_reserve(buf, text_bytes);
    if (!to) {
        buf->overflowed = true;
        return;
    }
    /* The NUL behind the text fits: a buf has room for one. */
    sodium_bin2base64(to, text_bytes + 1, bytes, count, sodium_base64_VARIANT_ORIGINAL);
    buf_commit(buf, text_bytes);
}

bool base64_read(struct str text, void *ret_bytes, size_t bytes_max, size_t *ret_count) {
    const char *end;
    *ret_count = 0;
    if (text.bytes == 0) return true; /* its address may be NULL, which libsodium adds to */
    return sodium_base642bin(ret_bytes, bytes_max, text.at, text.bytes, NULL, ret_count, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           end == text.at + text.bytes;
}
