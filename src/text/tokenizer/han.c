/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/han.h"

#include <stddef.h>

/* First and last, ascending. */
static const uint32_t ranges[][2] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
    {0x30000, 0x3134A}, {0x31350, 0x323AF},
};

bool is_han(uint32_t code_point) {
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code_point > ranges[middle][1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof ranges / sizeof *ranges && code_point >= ranges[low][0];
}
