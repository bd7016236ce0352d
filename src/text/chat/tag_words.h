/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tag_words: formats of grammar/tags.h, and the words of a family in them.
 *
 * Thread: any; pure.
 * Memory: results are the caller's; values that go into a format are taken over. */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* {"type": type, key: value}. */
json_t *tag_format(const char *type, const char *key, json_t *value);
/* Appends exactly this text to a list of formats. */
void tag_add_text(json_t *list, const char *text, size_t bytes);
/* The same, with its control tokens as marks: those of the set `marks` (tool_format.h). A newline
 * may be left out. */
void tag_add_words(json_t *list, uint64_t marks, const char *text);
