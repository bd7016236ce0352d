/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* messages: the clean-up of chat messages before a template sees them.
 *
 * The reference servers do the same; templates are written for the cleaned form and fail on others.
 *
 * Thread: any, one request each.
 * Memory: changes the messages in place. */

#include "json/refusal.h"

struct messages_options {
    bool takes_parts;     /* the template iterates content itself */
    bool knows_developer; /* the template names the role */
    bool has_channels;    /* the template is that of gpt-oss (chat/harmony.h) */
};

/* Cleans messages that have passed request_check_messages:
 *   - arguments of tool calls become objects, and an empty tool_calls goes;
 *   - a content of null becomes "";
 *   - a content of text parts becomes their texts joined by newlines, unless the template takes
 *     parts: then only refusals become texts;
 *   - `reasoning` or `thinking` becomes reasoning_content;
 *   - the role developer becomes system, unless the template knows it;
 *   - with channels, reasoning_content becomes `thinking` if the content is empty, and a message
 * with several calls becomes one per call, each followed by its result: the template shows one call
 * per message, and refuses both texts next to a call. */
void messages_clean(json_t *messages, struct messages_options options);

/* The text that ends the last message, for continuing it: its content, or the text of its last
 * part. Borrowed; empty if the message has no text. */
struct str messages_last_text(const json_t *messages);
