/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* parts: the content of a message or of a question's instructions, as one text.
 *
 * Content is a string, or parts of which each has a type. The texts of the parts are joined by
 * newlines, as in vLLM. A part of JSON is compact JSON. Pictures are refused by the part's name.
 * Internal to the readers of decisions.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "json/refusal.h"

#define PARTS_JSON_DEPTH_MAX 32 /* this limit and the next two are those of OpenAI's reference */
#define PARTS_JSON_VALUES_MAX 10000
#define PARTS_JSON_BYTES_MAX ((size_t)256 * 1024)

/* Which parts a content may have, by bits. */
enum {
    PARTS_INPUT_TEXT = 1,
    PARTS_INPUT_JSON = 2,
    PARTS_OUTPUT_TEXT = 4,
    PARTS_REFUSAL = 8,
};

/* Appends the text of `content`, which a refusal calls `param`. */
bool parts_read(const json_t *content, const char *param, unsigned kinds, struct buf *text,
                struct refusal *ret_refusal) MUST_CHECK;

/* Reads a member that must be a string. `param` is the name of the object. */
bool parts_read_string(const json_t *object, const char *param, const char *name,
                       struct str *ret_text, struct refusal *ret_refusal) MUST_CHECK;
/* Writes "param.name" and returns `path`. */
const char *parts_path(char path[REFUSAL_PARAM_BYTES], const char *param, const char *name);
/* Writes "param[index]" and returns `path`. */
const char *parts_index(char path[REFUSAL_PARAM_BYTES], const char *param, size_t index);
