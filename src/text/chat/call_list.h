/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* call_list: calls of tools, as the readers of a model's text find them.
 *
 * Thread: one per struct.
 * Memory: owns its calls; call_list_release frees them. */

#include "base/buf.h"

#define TOOL_CALL_ID_BYTES 32

struct tool_call {
    char id[TOOL_CALL_ID_BYTES]; /* random: "call_…", or nine characters, as Mistral's templates
                                    demand; empty until tool_calls.c gives it */
    struct buf name;
    struct buf arguments; /* JSON text of an object */
};

/* Zero is the empty list. */
struct call_list {
    struct tool_call *at; /* (count) */
    size_t count, capacity;
};

/* Adds a call; its name and arguments are the caller's to fill until the next one is added. */
struct tool_call *call_list_add(struct call_list *list);
/* Removes the calls from number `from` on. */
void call_list_cut(struct call_list *list, size_t from);
void call_list_release(struct call_list *list);
