/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* chat_turns: the messages of a chat request, as they are gathered from the items of another API.
 *
 * Neighbours of one role are one message: its text, its thought and its calls. The texts of the
 * system stand together in front, because most templates take one system message, the first. Knows
 * no dialect; strings that it takes are JSON strings with their quotes, and are copied as they are.
 *
 * Thread: one at a time.
 * Memory: grows with the request, which is bounded where it is read.
 * Invariant: `written` is a list of whole messages; what is gathered of the open turn stands in
 * `parts`, `thought` and `calls`. */

#include "base/buf.h"
#include "base/map.h"

enum chat_role { CHAT_NOBODY, CHAT_USER, CHAT_ASSISTANT };

struct chat_turns {
    enum chat_role role;       /* whose turn is open */
    bool drops_empty;          /* a turn of the assistant without anything is left out */
    struct buf parts;          /* parts of content with commas between */
    struct buf thought, calls; /* inside of a string; calls with commas between */
    struct buf system;         /* inside of the system text */
    struct buf written;        /* messages with commas between */
    struct map ids;            /* those of calls, with their quotes */
};

void chat_turns_init(struct chat_turns *turns);
void chat_turns_release(struct chat_turns *turns);
/* Appends what is between the quotes of a JSON string; anything else is ignored. */
void chat_turns_add_inside(struct buf *to, struct str string);
/* Begins a turn unless one of this role is open; ends that of another role. */
void chat_turns_open(struct chat_turns *turns, enum chat_role role);
void chat_turns_end(struct chat_turns *turns);
/* Adds to the open turn. `arguments` is a JSON string. */
void chat_turns_add_text(struct chat_turns *turns, struct str text);
void chat_turns_add_call(struct chat_turns *turns, struct str id, struct str name,
                         struct str arguments);
/* Whether a call of this id was added before. */
bool chat_turns_know(const struct chat_turns *turns, struct str id);
/* A result of a call is a message of its own: between these two its text is added to the inside of
 * a string in `written`. The open turn has ended. */
void chat_turns_begin_result(struct chat_turns *turns);
void chat_turns_end_result(struct chat_turns *turns, struct str id);
/* Parts the next text of the system from the one before. */
void chat_turns_begin_system(struct chat_turns *turns);
/* Ends the turn and appends ,"messages":[…]. */
void chat_turns_write(struct chat_turns *turns, struct buf *body);
