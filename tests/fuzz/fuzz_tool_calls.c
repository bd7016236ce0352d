/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "chat/tool_calls.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes that a stream has shown. */
static size_t bytes_of(const struct tool_reader *reader) {
    size_t bytes = reader->content_shown;
    assert(bytes <= reader->content.bytes);
    for (size_t i = 0; i < reader->shown.count; i++)
        bytes += 1 + reader->shown.at[i].name.bytes + reader->shown.at[i].arguments.bytes;
    return bytes;
}

/* The calls of the answer are among those of the stream, in their order. */
static void check_shown(const struct tool_reader *reader) {
    size_t at = 0;
    for (size_t i = 0; i < reader->calls.count; i++, at++) {
        while (at < reader->shown.count &&
               strcmp(reader->shown.at[at].id, reader->calls.at[i].id) != 0)
            at++;
        assert(at < reader->shown.count);
    }
}

/* A model's text in one of the forms, in pieces and at once. Both give the same result, text that
 * was shown stays, and arguments are JSON. The first byte chooses the form, the second the cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    enum tool_format format =
        TOOL_FORMAT_HERMES + data[0] % (TOOL_FORMAT_COUNT - TOOL_FORMAT_HERMES);
    size_t step = 1 + data[1] % 16, bytes = size - 2;
    char *text = malloc(bytes + 1);
    if (!text) abort();
    memcpy(text, data + 2, bytes);
    struct tool_reader whole, cut;
    json_t *tools = json_pack("[{s:{s:s,s:{s:{s:{s:[s,s]},s:{s:s},s:{s:s}}}}}]", "function", "name",
                              "f", "parameters", "properties", "a", "type", "number", "boolean",
                              "b", "type", "object", "c", "type", "null");
    tool_reader_init(&whole, format, false, tools);
    tool_reader_init(&cut, format, false, tools);
    tool_reader_feed(&whole, (struct str){text, bytes}, true);
    for (size_t at = step; at < bytes; at += step) {
        size_t shown = cut.content.bytes, calls = cut.calls.count, streamed = bytes_of(&cut);
        tool_reader_feed(&cut, (struct str){text, at}, false);
        assert(cut.content.bytes >= shown && cut.calls.count >= calls);
        assert(bytes_of(&cut) >= streamed);
    }
    tool_reader_feed(&cut, (struct str){text, bytes}, true);
    check_shown(&whole);
    check_shown(&cut);
    assert(str_equals(buf_str(&whole.content), buf_str(&cut.content)));
    assert(str_equals(buf_str(&whole.thought), buf_str(&cut.thought)));
    assert(whole.calls.count == cut.calls.count);
    for (size_t i = 0; i < whole.calls.count; i++) {
        struct str arguments = buf_str(&whole.calls.at[i].arguments), value;
        assert(str_equals(arguments, buf_str(&cut.calls.at[i].arguments)));
        assert(str_equals(buf_str(&whole.calls.at[i].name), buf_str(&cut.calls.at[i].name)));
        assert(utf8_is_valid(arguments) && json_span_read(arguments, &value));
        assert(json_span_is_object(value) && whole.calls.at[i].name.bytes > 0);
    }
    tool_reader_release(&whole);
    tool_reader_release(&cut);
    json_decref(tools);
    free(text);
    return 0;
}
