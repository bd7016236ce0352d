/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/open_internet.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct block_v4 {
    uint32_t network;
    unsigned bits;
};

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

static const struct block_v4 special_v4[] = {
    {V4(0, 0, 0, 0), 8},        {V4(10, 0, 0, 0), 8},     {V4(100, 64, 0, 0), 10},
    {V4(127, 0, 0, 0), 8},      {V4(169, 254, 0, 0), 16}, {V4(172, 16, 0, 0), 12},
    {V4(192, 0, 0, 0), 24},     {V4(192, 0, 2, 0), 24},   {V4(192, 88, 99, 0), 24},
    {V4(192, 168, 0, 0), 16},   {V4(198, 18, 0, 0), 15},  {V4(198, 51, 100, 0), 24},
    {V4(203, 0, 113, 0), 24},   {V4(224, 0, 0, 0), 4},    {V4(240, 0, 0, 0), 4},
    {V4(168, 63, 129, 16), 32}, /* Azure's metadata */
};

static bool is_public_v4(uint32_t address) {
    for (size_t i = 0; i < sizeof special_v4 / sizeof *special_v4; i++) {
        uint32_t mask = ~(uint32_t)0 << (32 - special_v4[i].bits);
        if ((address & mask) == special_v4[i].network) return false;
    }
    return true;
}

struct block_v6 {
    unsigned char start[6]; /* the first bytes of the block */
    unsigned bits;          /* at most 48 */
};

static const struct block_v6 special_v6[] = {
    {{0x20, 0x01, 0x00, 0x00}, 23}, /* protocol assignments, such as Teredo (IPv4 inside) */
    {{0x20, 0x01, 0x0D, 0xB8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* 6to4: IPv4 inside */
    {{0x3F, 0xFF, 0x00}, 20},       /* documentation */
};

static bool is_in_block(const unsigned char address[16], const struct block_v6 *block) {
    unsigned whole = block->bits / 8, rest = block->bits % 8;
    if (memcmp(address, block->start, whole) != 0) return false;
    return rest == 0 || (address[whole] ^ block->start[whole]) >> (8 - rest) == 0;
}

static bool is_public_v6(const unsigned char address[16]) {
    if (address[0] >> 5 != 1) return false; /* only 2000::/3 has been given out */
    for (size_t i = 0; i < sizeof special_v6 / sizeof *special_v6; i++)
        if (is_in_block(address, &special_v6[i])) return false;
    return true;
}

bool open_internet_has(const struct address *address) {
    const unsigned char *v4 = address->bytes + 12;
    if (address->is_v4) return is_public_v4(V4(v4[0], v4[1], v4[2], v4[3]));
    return is_public_v6(address->bytes);
}
