/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_messages: answers of gpt-oss that a server passes on as the model wrote them.
 *
 * Servers without a parser put all messages of the format Harmony, with their marks, into `content`
 * (chat/harmony.h). Such a content becomes thought, text and calls, as with quern's own engine.
 * Streams are passed on as they come.
 *
 * Thread: any; pure.
 * Memory: the tree of the answer during a call. */

#include "base/buf.h"

/* Appends the answer, a whole chat completion, with sorted messages. False if no content of it
 * begins with a mark of a message; then nothing is appended. */
bool upstream_messages_sort(struct str request, struct str answer, struct buf *out);
