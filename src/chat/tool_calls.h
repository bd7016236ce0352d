/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tool_calls: the calls of tools in a model's text, in the forms that chat templates teach:
 *
 *     HERMES    text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …   (Hermes, Qwen)
 *     MISTRAL   text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *               text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]…                        (from v11 on)
 *     LLAMA     {"name": "f", "parameters": {…}}; …         alone, or after <|python_tag|>
 *
 * A call is taken when it is complete and its arguments are JSON. Text that only looks like a call
 * stays text, as the model wrote it. White space before and between calls is dropped. So a stream
 * shows a call as soon as it is complete, and no text that a reader of the whole text would not
 * see.
 *
 * It knows no template language, no token and no response format. The time over all feeds is linear
 * in the text.
 *
 * Thread: one per struct.
 * Memory: owns its buffers; tool_reader_release frees them.
 * Invariant: content and calls do not depend on how the text was cut into feeds. */

#include "base/buf.h"

struct jinja_template;

enum tool_format {
    TOOL_FORMAT_NONE,  /* the template does not take tools */
    TOOL_FORMAT_PLAIN, /* the template takes tools in a form that is not read: calls stay text */
    TOOL_FORMAT_HERMES,
    TOOL_FORMAT_MISTRAL,
    TOOL_FORMAT_LLAMA,
};

/* The form that a template teaches, by the marks in its source. NULL: TOOL_FORMAT_NONE. */
enum tool_format tool_format_of(const struct jinja_template *template);
/* Marks of a form, in an array that ends in NULL. A vocabulary may have them as control tokens,
 * which the text must then show. */
const char *const *tool_format_marks(enum tool_format format);

#define TOOL_CALL_ID_BYTES 32

struct tool_call {
    char id[TOOL_CALL_ID_BYTES]; /* random: "call_…", or nine characters, as Mistral's templates
                                    demand */
    struct buf name;
    struct buf arguments; /* JSON text of an object, as the model wrote it */
};

struct tool_reader {
    enum tool_format format;
    bool only_one; /* drop calls behind the first: parallel_tool_calls is false */

    struct buf content; /* the text without the calls, so far */
    struct tool_call *calls;
    size_t call_count, call_capacity;

    /* private */
    enum { TOOL_TEXT, TOOL_CALL, TOOL_REST } state;
    size_t at;          /* end of the text that was read */
    size_t call_at;     /* start of the current call, with the white space before it */
    size_t searched;    /* the call does not end before this; LLAMA: start of the first text */
    bool is_after_call; /* only white space has followed the last call */
};

/* `format` is HERMES, MISTRAL or LLAMA. */
void tool_reader_init(struct tool_reader *reader, enum tool_format format, bool only_one);
void tool_reader_release(struct tool_reader *reader);

/* `text` is the whole text so far: that of the last feed and more. `is_end` marks the last feed. */
void tool_reader_feed(struct tool_reader *reader, struct str text, bool is_end);
