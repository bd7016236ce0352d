/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tool_calls: the calls of tools in a model's text, in the forms that models are taught by their
 * chat templates:
 *
 *     HERMES    text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …   (Hermes, Qwen)
 *     MISTRAL   text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *               text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]…                        (from v11 on)
 *     LLAMA     {"name": "f", "parameters": {…}}; …         alone, or after <|python_tag|>
 *
 * A call is taken when it is whole and its arguments are JSON; what looks like a call and is none
 * stays text, as the model wrote it. White space before and between calls is dropped. So a stream
 * shows a call at once when it is complete, and shows nothing that a reader of the whole text would
 * not see.
 *
 * Knows no template language, no token and no response format.
 *
 * Thread: one struct, one thread.  Memory: owns its buffers; tool_reader_release frees. Time is
 * linear in the text over all feeds.
 * Invariant: content and calls do not depend on how the text was cut into feeds. */

#include "base/buf.h"

struct jinja_template;

enum tool_format {
    TOOL_FORMAT_NONE,  /* the template does not take tools */
    TOOL_FORMAT_PLAIN, /* it does, and teaches a form that is not read here: calls stay text */
    TOOL_FORMAT_HERMES,
    TOOL_FORMAT_MISTRAL,
    TOOL_FORMAT_LLAMA,
};

/* Which form a template teaches, by the marks its source holds. NULL: TOOL_FORMAT_NONE. */
enum tool_format tool_format_of(const struct jinja_template *template);
/* Marks of a form that may be control tokens of a vocabulary, and must be in the text all the same:
 * an array that ends in NULL. */
const char *const *tool_format_marks(enum tool_format format);

#define TOOL_CALL_ID_BYTES 32

struct tool_call {
    char id[TOOL_CALL_ID_BYTES]; /* random: "call_…", or nine characters, which Mistral's templates
                                    insist on */
    struct buf name;
    struct buf arguments; /* JSON text of an object, as the model wrote it */
};

struct tool_reader {
    enum tool_format format;
    bool only_one; /* further calls are dropped: parallel_tool_calls is false */

    struct buf content; /* the text beside the calls, so far */
    struct tool_call *calls;
    size_t call_count, call_capacity;

    /* Inside. */
    enum { TOOL_TEXT, TOOL_CALL, TOOL_REST } state;
    size_t at;          /* read up to here */
    size_t call_at;     /* where the call under way begins, with the white space before it */
    size_t searched;    /* the end of the call is not before this; or LLAMA's first text */
    bool is_after_call; /* only white space since the last call */
};

/* `format` is one of the three that are read. */
void tool_reader_init(struct tool_reader *reader, enum tool_format format, bool only_one);
void tool_reader_release(struct tool_reader *reader);

/* `text` is all there is so far: what it was at the last feed, and more. With `is_end` nothing more
 * comes, and the reader is not fed again. */
void tool_reader_feed(struct tool_reader *reader, struct str text, bool is_end);
