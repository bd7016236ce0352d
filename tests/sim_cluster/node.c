/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes, and the packs between them and the server. */

#include "base/mem.h"
#include "world.h"

#include <stdlib.h>

#define NEVER_S 1e18

/* --- packs --- */

void message_put(struct messages *messages, const struct message *message) {
    if (messages->count == messages->capacity) {
        size_t capacity = messages->capacity ? messages->capacity * 2 : 1024;
        struct message *at = mem_new(capacity, sizeof *at);
        for (size_t i = 0; i < messages->count; i++)
            at[i] = messages->at[(messages->first + i) & (messages->capacity - 1)];
        free(messages->at);
        *messages = (struct messages){at, 0, messages->count, capacity};
    }
    messages->at[(messages->first + messages->count++) & (messages->capacity - 1)] = *message;
}

void message_send(struct world *world, struct messages *way, uint32_t node, enum word word,
                  const struct slice *slice, uint32_t count) {
    const struct message message = {.due_s = world->now_s + DELAY_S,
                                    .word = word,
                                    .node = node,
                                    .life = world->fars[node].life,
                                    .count = count,
                                    .slice = *slice};
    message_put(way, &message);
}

bool message_take(struct messages *messages, double until_s, struct message *ret_message) {
    if (messages->count == 0 || messages->at[messages->first].due_s > until_s) return false;
    *ret_message = messages->at[messages->first];
    messages->first = (messages->first + 1) & (messages->capacity - 1);
    messages->count--;
    return true;
}

/* --- which node ends a slice next --- */

static void heap_set(struct world *world, uint32_t place, uint32_t node) {
    world->heap[place] = node;
    world->heap_at[node] = place + 1;
}

static void heap_move(struct world *world, uint32_t place, uint32_t node) {
    double end_s = world->fars[node].end_s;
    for (uint32_t up; place > 0; place = up) {
        up = (place - 1) / 2;
        if (world->fars[world->heap[up]].end_s <= end_s) break;
        heap_set(world, place, world->heap[up]);
    }
    for (uint32_t down; (down = 2 * place + 1) < world->heap_count; place = down) {
        if (down + 1 < world->heap_count &&
            world->fars[world->heap[down + 1]].end_s < world->fars[world->heap[down]].end_s)
            down++;
        if (world->fars[world->heap[down]].end_s >= end_s) break;
        heap_set(world, place, world->heap[down]);
    }
    heap_set(world, place, node);
}

/* The first slice of the node, or its end, has changed. */
static void plan(struct world *world, uint32_t node) {
    struct far *far = &world->fars[node];
    uint32_t at = world->heap_at[node];
    far->end_s = NEVER_S;
    if (far->is_alive && far->count > 0) {
        const struct slice *slice = &far->slices[far->first];
        double first_s = slice->given_s + DELAY_S + ROOM_LINES / far->rate;
        double begin_s = far->free_s > world->now_s ? far->free_s : world->now_s;
        far->end_s = begin_s + slice->count / far->rate * (0.7 + 0.6 * rng_unit(&world->rng));
        if (far->end_s < first_s) far->end_s = first_s;
        if (far->is_broken) far->end_s = world->now_s;
    }
    heap_move(world, at ? at - 1 : world->heap_count++, node);
}

double far_next_s(const struct world *world) {
    return world->heap_count > 0 ? world->fars[world->heap[0]].end_s : NEVER_S;
}

/* --- nodes --- */

static void tell(struct world *world, uint32_t node, enum word word, const struct slice *slice,
                 uint32_t count) {
    message_send(world, &world->results, node, word, slice, count);
}

void far_start(struct world *world, uint32_t node) {
    struct far *far = &world->fars[node];
    far->is_alive = true;
    far->free_s = far->begun_s = world->now_s;
    if (!far->is_broken) world->capacity += far->rate;
    world->seats[node] = (struct seat){.is_known = true, .bound = LINES_MAX};
    plan(world, node);
}

void far_kill(struct world *world, uint32_t node) {
    struct far *far = &world->fars[node];
    if (!far->is_alive) return;
    if (!far->is_broken) world->capacity -= far->rate;
    far->is_alive = false;
    far->life++;
    far->first = far->count = far->lines = 0;
    job_set_release(&far->held);
    plan(world, node);
}

static struct slice *slice_at(struct far *far, uint32_t at) {
    return &far->slices[(far->first + at) % SLICES_MAX];
}

static void end_slice(struct far *far, uint32_t at) {
    uint64_t value;
    (void)job_set_take(&far->held, slice_at(far, at)->id, &value);
    for (uint32_t i = at; i + 1 < far->count; i++) *slice_at(far, i) = *slice_at(far, i + 1);
    far->count--;
}

/* Gives lines back that have not begun, the latest first. */
static void give_back(struct world *world, uint32_t node, uint32_t count) {
    struct far *far = &world->fars[node];
    while (count > 0 && far->count > 0 && far->lines > ROOM_LINES) {
        struct slice *last = slice_at(far, far->count - 1);
        uint32_t lines = far->lines - ROOM_LINES;
        if (lines > count) lines = count;
        if (lines > last->count) lines = last->count;
        last->count -= lines;
        *job_set_find(&far->held, last->id) = last->count;
        far->lines -= lines;
        count -= lines;
        tell(world, node, WORD_BACK, last, lines);
        if (last->count == 0) end_slice(far, far->count - 1);
    }
}

void far_take(struct world *world, const struct message *message) {
    struct far *far = &world->fars[message->node];
    if (!far->is_alive || far->life != message->life) return;
    if (message->word == WORD_RECALL) {
        give_back(world, message->node, message->count);
        if (far->count == 0) plan(world, message->node);
        return;
    }
    uint32_t before = 0;
    for (uint32_t i = 0; i < far->count && message->word == WORD_CANCEL; i++) {
        struct slice *slice = slice_at(far, i);
        uint32_t lines = slice->count, begun = before < ROOM_LINES ? ROOM_LINES - before : 0;
        before += lines;
        if (slice->id != message->slice.id) continue;
        world->wasted += begun < lines ? begun : lines;
        far->lines -= lines;
        slice->count = 0;
        tell(world, message->node, WORD_BACK, slice, lines);
        end_slice(far, i);
        if (i == 0) plan(world, message->node);
        return;
    }
    if (message->word != WORD_SLICE) return;
    if (far->count == SLICES_MAX) {
        wrong(world, "a node has more lines than any may have");
        return;
    }
    *slice_at(far, far->count++) = message->slice;
    far->lines += message->slice.count;
    job_set_put(&far->held, message->slice.id, message->slice.count);
    if (far->count == 1) plan(world, message->node);
}

void far_answer(struct world *world) {
    uint32_t node = world->heap[0];
    struct far *far = &world->fars[node];
    struct slice slice = far->slices[far->first];
    uint64_t value;
    world->now_s = far->free_s = far->end_s;
    far->first = (far->first + 1) % SLICES_MAX;
    far->count--;
    far->lines -= slice.count;
    (void)job_set_take(&far->held, slice.id, &value);
    tell(world, node, far->is_broken ? WORD_ERROR : WORD_DONE, &slice, slice.count);
    plan(world, node);
}
