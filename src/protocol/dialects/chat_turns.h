/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* chat_turns: the messages of a chat request, as they are written from the items of another API.
 *
 * Neighbours of one role are one message: its text, its thought and its calls. The texts of the
 * system stand together in front, because most templates take one system message, the first. Knows
 * no dialect; strings that it takes are JSON strings with their quotes, and are copied as they are.
 *
 * Thread: one at a time.
 * Memory: texts go from the request into the body and are held nowhere else, but for those of the
 *     system and thoughts. All grow with the request, which is bounded where it is read.
 * Invariant: from `start` on, the body has whole messages, and the open turn up to its texts; its
 *     thought and its calls follow them at its end. */

#include "base/buf.h"
#include "base/map.h"

enum chat_role { CHAT_NOBODY, CHAT_USER, CHAT_ASSISTANT };

struct chat_turns {
    enum chat_role role;       /* whose turn is open */
    bool drops_empty;          /* a turn of the assistant without anything is left out */
    struct buf *body;          /* the request inside; the caller's */
    size_t start;              /* where the first message is in it */
    size_t turn_at;            /* where the open turn is in it, with its comma */
    size_t part_count;         /* parts of the open turn's content */
    struct buf thought, calls; /* inside of a string; calls with commas between */
    struct buf system;         /* inside of the system text */
    struct map ids;            /* those of calls, with their quotes */
};

/* Begins ,"messages":[ in the body, to which nobody else writes before chat_turns_finish. */
void chat_turns_init(struct chat_turns *turns, struct buf *body);
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
 * a string, in the returned buf. The open turn has ended. */
struct buf *chat_turns_begin_result(struct chat_turns *turns);
void chat_turns_end_result(struct chat_turns *turns, struct str id);
/* Parts the next text of the system from the one before. */
void chat_turns_begin_system(struct chat_turns *turns);
/* Ends the turn and the list of messages. */
void chat_turns_finish(struct chat_turns *turns);
