/* SPDX-License-Identifier: Apache-2.0 */
#include "http/unfinished.h"

void unfinished_add(struct unfinished *list, struct gate_connection *c) {
    c->is_listed = true;
    c->next_unfinished = NULL;
    c->previous_unfinished = list->last;
    if (list->last)
        list->last->next_unfinished = c;
    else
        list->first = c;
    list->last = c;
    list->count++;
}

void unfinished_remove(struct unfinished *list, struct gate_connection *c) {
    if (!c->is_listed) return;
    c->is_listed = false;
    if (c->previous_unfinished)
        c->previous_unfinished->next_unfinished = c->next_unfinished;
    else
        list->first = c->next_unfinished;
    if (c->next_unfinished)
        c->next_unfinished->previous_unfinished = c->previous_unfinished;
    else
        list->last = c->previous_unfinished;
    list->count--;
}
