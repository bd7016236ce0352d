/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* call_begun: calls of tools in a text that is not complete, so that a stream shows their arguments
 * while a model writes them.
 *
 * A call has begun when its name is one of the request's tools and its arguments have begun. In a
 * form whose arguments are JSON their bytes are those of the complete call, so they are shown as
 * they come. In other forms (values of XML, Python, Gemma) only the name is shown before the call
 * is complete. A text that is not written as models are taught to write it, such as with its name
 * behind the arguments, shows no call before it is complete.
 *
 * A call that has begun may still turn out to be none: the reader of the complete text decides
 * (tool_calls.h).
 *
 * Thread: one per struct.
 * Memory: plain; the calls are the caller's.
 * Invariant: the time over all feeds is linear in the text. */

#include "chat/call_list.h"
#include "chat/tool_format.h"

#include <jansson.h>

/* Zero, with the first three members set, is the beginning of a text of calls. */
struct call_begun {
    enum tool_format format;
    const json_t *tools; /* the request's */
    size_t calls_max;    /* calls that may begin in the text */

    size_t count; /* calls that have begun in the text */

    /* private */
    enum { BEGUN_HEAD, BEGUN_ARGUMENTS, BEGUN_TAIL, BEGUN_NAME, BEGUN_OFF } state;
    size_t at;                     /* bytes of the text that were read */
    size_t depth;                  /* open brackets in the arguments */
    bool is_in_string, is_escaped; /* in the arguments */
    bool is_list;                  /* inside the list of a form that has one */
    bool is_closed;                /* the object around the arguments is, or there is none */
};

/* `text` is the text of the calls so far, between the marks of the form: that of the last feed and
 * more. Adds calls that begin to `calls`, and appends to the arguments of the last one. */
void call_begun_feed(struct call_begun *begun, struct str text, struct call_list *calls);

/* Begins the call of a text that is nothing but its arguments, as in a message of harmony.h. `text`
 * is not empty; feeds that follow have the same text and more. */
void call_begun_named(struct call_begun *begun, struct str name, struct str text,
                      struct call_list *calls);

/* True if the text ends inside a call that has begun: its rest was cut. */
bool call_begun_is_open(const struct call_begun *begun);
