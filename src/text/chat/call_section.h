/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* call_section: calls in a section that has a mark at its beginning and its end, each with marks of
 * its own: the name, a separator, the arguments as JSON. The formats DEEPSEEK, DEEPSEEK_3, KIMI and
 * HUNYUAN of tool_format.h write them so.
 *
 * Thread: any; pure.
 * Memory: adds to the caller's list; a text that is refused leaves the list as it was. */

#include "chat/call_list.h"
#include "chat/tool_format.h"

#include <jansson.h>

/* True for the formats with such sections. */
bool call_section_has(enum tool_format format);

enum section_head {
    SECTION_OPEN, /* the text goes on */
    SECTION_CALL,
    SECTION_NONE, /* another text */
};
/* Reads a call from `at` on up to its arguments, and before it the end of the call before, if there
 * is one. Fills the name and where the arguments begin only for SECTION_CALL. */
enum section_head call_section_head(enum tool_format format, struct str text, size_t at,
                                    struct str *ret_name, size_t *ret_arguments);

/* The text between the marks of a section, which is calls and nothing else. The end of the last
 * call may be cut. */
bool call_section_read(enum tool_format format, struct str text, const json_t *tools,
                       struct call_list *calls);
