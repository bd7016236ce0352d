/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha1.h"

#include <string.h>

static uint32_t turn(uint32_t value, unsigned bits) {
    return value << bits | value >> (32 - bits);
}

static uint32_t mix(unsigned round, uint32_t b, uint32_t c, uint32_t d) {
    switch (round / 20) {
    case 0: return ((b & c) | (~b & d)) + 0x5a827999;
    case 1: return (b ^ c ^ d) + 0x6ed9eba1;
    case 2: return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    default: return (b ^ c ^ d) + 0xca62c1d6;
    }
}

static void take_block(struct sha1 *sha1, const unsigned char block[64]) {
    uint32_t words[80], state[5];
    memcpy(state, sha1->state, sizeof state);
    for (size_t i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                   (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    for (size_t i = 16; i < 80; i++)
        words[i] = turn(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t next =
            turn(state[0], 5) + mix(i, state[1], state[2], state[3]) + state[4] + words[i];
        state[4] = state[3];
        state[3] = state[2];
        state[2] = turn(state[1], 30);
        state[1] = state[0];
        state[0] = next;
    }
    for (size_t i = 0; i < 5; i++) sha1->state[i] += state[i];
}

void sha1_init(struct sha1 *sha1) {
    *sha1 = (struct sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_add(struct sha1 *sha1, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    while (count > 0) {
        size_t used = sha1->bytes % 64, take = 64 - used < count ? 64 - used : count;
        memcpy(sha1->block + used, at, take);
        sha1->bytes += take;
        at += take;
        count -= take;
        if (used + take == 64) take_block(sha1, sha1->block);
    }
}

void sha1_end_hex(struct sha1 *sha1, char ret_hex[SHA1_HEX_BYTES]) {
    static const unsigned char padding[64] = {0x80};
    static const char digits[] = "0123456789abcdef";
    unsigned char tail[8];
    uint64_t bits = sha1->bytes * 8;
    for (unsigned i = 0; i < 8; i++) tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(sha1, padding, 1 + (119 - sha1->bytes % 64) % 64);
    sha1_add(sha1, tail, 8);
    for (unsigned i = 0; i < 20; i++) {
        unsigned byte = sha1->state[i / 4] >> (24 - 8 * (i % 4)) & 0xFF;
        ret_hex[2 * i] = digits[byte >> 4];
        ret_hex[2 * i + 1] = digits[byte & 15];
    }
    ret_hex[40] = '\0';
}
