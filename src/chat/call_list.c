/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/call_list.h"

#include "base/mem.h"

#include <stdlib.h>

struct tool_call *call_list_add(struct call_list *list) {
    list->at = vec_grow(list->at, list->count, &list->capacity, sizeof *list->at);
    struct tool_call *call = &list->at[list->count++];
    *call = (struct tool_call){.id = ""};
    buf_init(&call->name, BUF_UNLIMITED);
    buf_init(&call->arguments, BUF_UNLIMITED);
    return call;
}

void call_list_cut(struct call_list *list, size_t from) {
    while (list->count > from) {
        struct tool_call *call = &list->at[--list->count];
        buf_release(&call->name);
        buf_release(&call->arguments);
    }
}

void call_list_release(struct call_list *list) {
    call_list_cut(list, 0);
    free(list->at);
    *list = (struct call_list){.at = NULL};
}

void call_add_string(struct buf *buf, struct str text) {
    buf_add_byte(buf, '"');
    for (size_t i = 0; i < text.bytes; i++) {
        char byte = text.at[i];
        if (byte == '"' || byte == '\\') buf_add_byte(buf, '\\');
        if (byte == '\n')
            buf_add_text(buf, "\\n");
        else if ((unsigned char)byte < 0x20)
            buf_printf(buf, "\\u%04x", (unsigned)byte);
        else
            buf_add_byte(buf, byte);
    }
    buf_add_byte(buf, '"');
}
