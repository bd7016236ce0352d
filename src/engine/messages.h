/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* messages: the clean-up of chat messages before a template sees them, as the reference servers do
 * it: templates are written against that form and fail on others.
 *
 * Thread: any, one request each.  Memory: changes the messages in place. */

#include "engine/refusal.h"

struct messages_options {
    bool takes_parts;     /* the template iterates content itself */
    bool knows_developer; /* the template names the role */
};

/* `messages` have passed request_check_messages. For each: the arguments of tool calls become
 * objects, an empty tool_calls goes, a content that is null becomes "", a content of text parts
 * becomes their texts joined by newlines (unless the template takes parts), `reasoning` and
 * `thinking` become reasoning_content, and the role developer becomes system (unless known). */
void messages_clean(json_t *messages, struct messages_options options);

/* The text that ends the last message, for continuing it: its content, or the text of the last
 * part. Borrowed; empty when there is none. */
struct str messages_last_text(const json_t *messages);
