/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/log_show.h"

#include "base/printable.h"

#include <stdio.h>
#include <string.h>

static const char page_begin[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<title>Decision log</title>\n<style>\n"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}\n"
    "dt{font-weight:600;margin-top:.6rem}\n"
    "dd{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    "h2{border-bottom:1px solid;margin-top:2rem}\n"
    "</style></head><body>\n";

static struct str text_of(const json_t *object, const char *name) {
    return json_member_str(object, name);
}

/* Appends a text of many lines, each behind two spaces, safe for a terminal. */
static void add_lines(struct buf *out, struct str text) {
    char piece[PRINTABLE_BYTES / 4];
    while (text.bytes > 0) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str line = {text.at, end == SIZE_MAX ? text.bytes : end};
        buf_add_text(out, "  ");
        for (struct str rest = line; rest.bytes > 0;) {
            size_t bytes = rest.bytes < sizeof piece ? rest.bytes : sizeof piece - 1;
            /* A cut goes before the first byte of a character. */
            while (bytes > 1 && bytes < rest.bytes &&
                   ((unsigned char)rest.at[bytes] & 0xC0) == 0x80)
                bytes--;
            snprintf(piece, sizeof piece, "%.*s", (int)bytes, rest.at);
            buf_add_text(out, printable(piece).text);
            rest = str_skip(rest, bytes);
        }
        buf_add_byte(out, '\n');
        text = str_skip(text, line.bytes + 1);
    }
}

void log_show_text(struct buf *out, const json_t *log) {
    const json_t *section, *entry;
    size_t i, k;
    buf_add_text(out, "Decision log of the request with the custom_id\n");
    add_lines(out, text_of(log, "custom_id"));
    json_array_foreach(json_object_get(log, "sections"), i, section) {
        struct str heading = text_of(section, "heading");
        buf_add_byte(out, '\n');
        buf_add_str(out, heading);
        buf_add_byte(out, '\n');
        for (k = 0; k < heading.bytes; k++) buf_add_byte(out, '=');
        buf_add_byte(out, '\n');
        json_array_foreach(json_object_get(section, "entries"), k, entry) {
            buf_add_str(out, text_of(entry, "label"));
            buf_add_text(out, ":\n");
            add_lines(out, text_of(entry, "text"));
        }
    }
}

static void add_escaped(struct buf *out, struct str text) {
    for (size_t i = 0; i < text.bytes; i++) {
        switch (text.at[i]) {
        case '&': buf_add_text(out, "&amp;"); break;
        case '<': buf_add_text(out, "&lt;"); break;
        case '>': buf_add_text(out, "&gt;"); break;
        case '"': buf_add_text(out, "&quot;"); break;
        case '\0': buf_add_text(out, "\xEF\xBF\xBD"); break;
        default: buf_add_byte(out, text.at[i]);
        }
    }
}

void log_show_html(struct buf *out, const json_t *log) {
    const json_t *section, *entry;
    size_t i, k;
    buf_add_text(out, page_begin);
    buf_add_text(out, "<h1>Decision log</h1>\n<p>Of the request with the custom_id <b>");
    add_escaped(out, text_of(log, "custom_id"));
    buf_add_text(out, "</b></p>\n");
    json_array_foreach(json_object_get(log, "sections"), i, section) {
        buf_add_text(out, "<h2>");
        add_escaped(out, text_of(section, "heading"));
        buf_add_text(out, "</h2>\n<dl>\n");
        json_array_foreach(json_object_get(section, "entries"), k, entry) {
            buf_add_text(out, "<dt>");
            add_escaped(out, text_of(entry, "label"));
            buf_add_text(out, "</dt><dd>");
            add_escaped(out, text_of(entry, "text"));
            buf_add_text(out, "</dd>\n");
        }
        buf_add_text(out, "</dl>\n");
    }
    buf_add_text(out, "</body></html>\n");
}
