/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tool_calls: the calls of tools in a model's text, in the forms of tool_format.h.
 *
 * A call is taken when it is complete and its arguments are JSON. Text that only looks like a call
 * stays text, as the model wrote it. White space before and between calls is dropped. So a stream
 * shows no text that a reader of the whole text would not see.
 *
 * A stream shows the arguments of a call while they come (call_begun.h). Where such a call turns
 * out to be none, or its rest is cut, the stream has a call that the answer has not.
 *
 * In the form HARMONY the whole answer is messages (harmony.h), and the reader sorts them:
 * thoughts, text, calls. A newline stands between two messages of one kind. Calls that are not
 * asked for, and those whose arguments are no JSON, are text.
 *
 * It knows no template language, no token and no response format. The time over all feeds is linear
 * in the text.
 *
 * Thread: one per struct.
 * Memory: owns its buffers; tool_reader_release frees them. The tools are borrowed.
 * Invariant: content and calls do not depend on how the text was cut into feeds. What `shown` has
 *     stays. */

#include "chat/call_begun.h"
#include "chat/harmony.h"
#include "chat/tool_format.h"

#include <jansson.h>

struct tool_reader {
    enum tool_format format;
    bool only_one; /* drop calls behind the first: parallel_tool_calls is false */
    /* The array of the request, for the types of XML's values; NULL: none, and no message is a
     * call. */
    const json_t *tools;

    struct buf content; /* the text without the calls, so far */
    struct buf thought; /* text of the messages that are thoughts, so far */
    struct call_list calls;
    struct call_list shown; /* those of a stream: of `calls`, and others that have begun */
    /* Bytes of the content that a stream shows: without the text of a call that `shown` has and
     * that the end of the text cut off. */
    size_t content_shown;

    /* private */
    enum { TOOL_TEXT, TOOL_CALL, TOOL_REST } state;
    size_t at;       /* end of the text that was read */
    size_t call_at;  /* start of the current call, with the white space before it */
    size_t searched; /* the call does not end before this; whole texts: start of the first text */
    size_t scanned;  /* bytes of a call in JSON that were scanned for its strings */
    bool is_json, is_in_string, is_escaped; /* state of the scan */
    bool is_after_call;                     /* only white space has followed the last call */
    bool is_bare;                           /* the call began without its mark */
    bool is_after_bare;                     /* the last call did, and an end mark may follow */
    bool is_cut;                            /* content_shown stays as it is */
    struct call_begun begun;                /* start of the current text of calls */
    struct harmony messages;
    bool is_named; /* the arguments of the call that is a message have begun */
    size_t space;  /* white space before them */
};

/* `format` is HERMES or behind it. */
void tool_reader_init(struct tool_reader *reader, enum tool_format format, bool only_one,
                      const json_t *tools);
void tool_reader_release(struct tool_reader *reader);

/* `text` is the whole text so far: that of the last feed and more. `is_end` marks the last feed. */
void tool_reader_feed(struct tool_reader *reader, struct str text, bool is_end);
