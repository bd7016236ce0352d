/* SPDX-License-Identifier: Apache-2.0 */
#include "http/ready_list.h"

void ready_list_add(struct ready_list *list, struct gate_connection *c) {
    c->is_listed = true;
    c->next_ready = NULL;
    c->previous_ready = list->last;
    if (list->last)
        list->last->next_ready = c;
    else
        list->first = c;
    list->last = c;
    list->count++;
}

void ready_list_remove(struct ready_list *list, struct gate_connection *c) {
    if (!c->is_listed) return;
    c->is_listed = false;
    if (c->previous_ready)
        c->previous_ready->next_ready = c->next_ready;
    else
        list->first = c->next_ready;
    if (c->next_ready)
        c->next_ready->previous_ready = c->previous_ready;
    else
        list->last = c->previous_ready;
    list->count--;
}
