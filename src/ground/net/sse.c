/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sse.h"

/* Takes a whole line. False ends the reading. */
static bool take_line(struct net_sse *sse, net_sse_fn data, void *context) {
    struct str line = buf_str(&sse->line);
    bool goes_on = !sse->line.overflowed;
    if (!sse->has_started && str_starts_with(line, STR("\xEF\xBB\xBF"))) line = str_skip(line, 3);
    sse->has_started = true;
    if (line.bytes == 0 && sse->has_data) {
        goes_on = goes_on && data(context, buf_str(&sse->data));
        buf_clear(&sse->data);
        sse->has_data = false;
    } else if (str_starts_with(line, STR("data:"))) {
        line = str_skip(line, 5);
        if (str_starts_with(line, STR(" "))) line = str_skip(line, 1);
        if (sse->has_data) buf_add_byte(&sse->data, '\n');
        buf_add_str(&sse->data, line);
        sse->has_data = true;
        goes_on = goes_on && !sse->data.overflowed;
    }
    buf_clear(&sse->line);
    return goes_on;
}

bool net_sse_feed(struct net_sse *sse, struct str bytes, net_sse_fn data, void *context) {
    size_t from = 0;
    for (size_t i = 0; i < bytes.bytes; i++) {
        char c = bytes.at[i];
        bool is_second = c == '\n' && sse->ended_with_cr;
        sse->ended_with_cr = c == '\r';
        if (c != '\n' && c != '\r') continue;
        buf_add(&sse->line, bytes.at + from, i - from);
        from = i + 1;
        if (!is_second && !take_line(sse, data, context)) return false;
    }
    buf_add(&sse->line, bytes.at + from, bytes.bytes - from);
    return !sse->line.overflowed;
}
