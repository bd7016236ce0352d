/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* products_notes: the algorithms chosen for products, as text that a host keeps between loads.
 *
 * A line of text each, with '\n' behind it:
 *
 *     the name       library, driver, GPU and build that the choices hold for
 *     a choice       format outputs inputs bucket batch gap workspace, and WORDS words in
 *                    hexadecimal
 *     …
 *     end COUNT CRC  the number of choices, and the CRC-32C of all lines before, in hexadecimal
 *
 * The text is valid if (1) its last line is such an `end`, (2) the CRC is that of the bytes before,
 * (3) the first line is the reader's own name, (4) COUNT lines between are choices. Otherwise all
 * of it is ignored.
 *
 * Thread: any.
 * Memory: the text is the caller's to free. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PRODUCTS_NOTE_WORDS 8 /* words in an algorithm as cuBLASLt keeps it */

struct products_note {
    uint32_t format;
    uint32_t outputs;
    uint32_t inputs;
    uint32_t bucket;
    uint32_t batch, gap; /* as struct cuda_multiply has them */
    uint64_t workspace_bytes;
    uint64_t words[PRODUCTS_NOTE_WORDS];
};

/* `name` has no line break. NULL: no memory. */
char *products_notes_write(const char *name, const struct products_note *notes, uint32_t count,
                           size_t *ret_bytes);
/* The choices of a text, at most `room`; 0 unless it is valid. */
uint32_t products_notes_read(const char *text, size_t bytes, const char *name,
                             struct products_note *ret_notes, uint32_t room);

#ifdef __cplusplus
}
#endif
