/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_file: the text of a settings file, setting by setting.
 *
 *     # a comment is a line of its own
 *     port = 8081
 *     model = smollm2
 *     model = big=/models/big.gguf     # this is part of the value
 *
 * A key is the name of a long option; the value is the rest of the line without the spaces around
 * it, quotes included. Sections and values over several lines do not exist: any other line is an
 * error. This module knows no option.
 *
 * Thread: one.
 * Memory: borrows the text; keys and values point into it. */

#include "base/err.h"
#include "base/str.h"

#define CONFIG_FILE_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_KEY_BYTES_MAX 64
#define CONFIG_VALUE_BYTES_MAX 8192

/* Begin with {.rest = text}. */
struct config_reader {
    struct str rest;
    uint32_t line; /* the last one read, from 1 */
};

struct config_setting {
    struct str key;   /* lower-case letters, digits and '-' */
    struct str value; /* not empty; UTF-8 without control characters except tab */
};

/* Reads the next setting. False at the end of the text with *ret_err OK, and at an error. The
 * sentence names neither file nor line: the caller knows the file, and reader->line is the line. */
bool config_next(struct config_reader *reader, struct config_setting *ret_setting,
                 enum err *ret_err, struct error *error);
