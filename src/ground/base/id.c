/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include <assert.h>
#include <sodium/randombytes.h>
#include <string.h>

#define ID_DIGITS_MAX 64

static void fill(char *ret_id, size_t id_bytes, const char *prefix, size_t count,
                 const char *digits, uint32_t digit_count) {
    size_t prefix_bytes = strlen(prefix);
    assert(prefix_bytes + count < id_bytes);
    memcpy(ret_id, prefix, prefix_bytes);
    /* One call for the system's generator serves a whole id. A 32-bit draw is within 2^-26 of even.
     */
    uint32_t draws[ID_DIGITS_MAX];
    assert(count <= ID_DIGITS_MAX);
    randombytes_buf(draws, count * sizeof *draws);
    for (size_t i = 0; i < count; i++)
        ret_id[prefix_bytes + i] = digits[(uint64_t)draws[i] * digit_count >> 32];
    ret_id[prefix_bytes + count] = '\0';
}

void id_hex(char *ret_id, size_t id_bytes, const char *prefix, size_t count) {
    fill(ret_id, id_bytes, prefix, count, "0123456789abcdef", 16);
}

void id_alnum(char *ret_id, size_t id_bytes, const char *prefix, size_t count) {
    fill(ret_id, id_bytes, prefix, count, "0123456789abcdefghijklmnopqrstuvwxyz", 36);
}

uint64_t id_u64(void) {
    uint64_t value;
    randombytes_buf(&value, sizeof value);
    return value;
}
