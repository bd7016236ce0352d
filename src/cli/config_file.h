/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_file: the text of a configuration file, setting by setting.
 *
 *     # a comment: a line whose first character that is no space is '#'
 *     port = 8081
 *     model = smollm2
 *     model = big=/models/big.gguf     # this is part of the value: there are no comments behind
 * one
 *
 * A key is the name of a long option; the value is the rest of the line without the spaces around
 * it. Nothing is quoted, nothing goes on in the next line. Everything else is an error with its
 * line.
 *
 * Knows no option.  Thread: one.  Memory: borrows the text; keys and values point into it. */

#include "base/err.h"
#include "base/str.h"

#define CONFIG_FILE_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_KEY_BYTES_MAX 64
#define CONFIG_VALUE_BYTES_MAX 8192

/* Begin with {.rest = text}. */
struct config_reader {
    struct str rest;
    uint32_t line; /* of the last setting, from 1 */
};

struct config_setting {
    struct str key;   /* lower-case letters, digits and '-' */
    struct str value; /* not empty; UTF-8 without control characters but tab */
};

/* False at the end of the text, and with *ret_err not OK at an error, whose sentence begins with
 * what is wrong (the caller knows the file's name; the line is in `reader`). */
bool config_next(struct config_reader *reader, struct config_setting *ret_setting,
                 enum err *ret_err, struct error *error);
