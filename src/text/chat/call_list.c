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
