/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/slot.h"

#include "base/mem.h"
#include "batch/result.h"
#include "dialects/dialect.h"
#include "runner/leaders.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SLOTS 1024
#define INDEX_BITS 20 /* low bits of a job's number; the others count jobs */

struct slot *slot_at(struct runner *runner, uint32_t index) {
    return &runner->chunks[index / CHUNK_SLOTS][index % CHUNK_SLOTS];
}

static void add_chunk(struct runner *runner) {
    uint32_t chunks = runner->slot_count / CHUNK_SLOTS;
    assert(runner->slot_count < 1u << INDEX_BITS);
    runner->chunks = mem_resize(runner->chunks, chunks + 1, sizeof *runner->chunks);
    struct slot *chunk = mem_new(CHUNK_SLOTS, sizeof *chunk);
    runner->chunks[chunks] = chunk;
    for (uint32_t i = 0; i < CHUNK_SLOTS; i++) {
        chunk[i].index = runner->slot_count + i;
        chunk[i].next_free = i + 1 < CHUNK_SLOTS ? runner->slot_count + i + 2 : 0;
    }
    runner->first_free = runner->slot_count + 1;
    runner->slot_count += CHUNK_SLOTS;
}

struct slot *slot_take(struct runner *runner) {
    if (runner->first_free == 0) add_chunk(runner);
    struct slot *slot = slot_at(runner, runner->first_free - 1);
    assert(slot->state == SLOT_FREE);
    uint32_t index = slot->index;
    runner->first_free = slot->next_free;
    memset(slot, 0, sizeof *slot);
    slot->index = index;
    slot->id = ++runner->job_count << INDEX_BITS | index;
    slot->state = SLOT_PLACING;
    runner->slots_taken++;
    return slot;
}

void slot_free(struct runner *runner, struct slot *slot) {
    assert(slot->state != SLOT_FREE);
    leader_leave(runner, slot);
    if (slot->recalled_ns != 0) runner->recalled--;
    if (slot->batch) {
        assert(slot->batch->in_flight > 0);
        slot->batch->in_flight--;
    }
    dialect_call_free(slot->call);
    slot->call = NULL;
    if (slot->custom_id != slot->inline_id) free(slot->custom_id);
    slot->custom_id = NULL;
    slot->id = 0;
    slot->state = SLOT_FREE;
    slot->next_free = runner->first_free;
    runner->first_free = slot->index + 1;
    runner->slots_taken--;
    pthread_cond_broadcast(&runner->idle);
}

struct slot *slot_find(struct runner *runner, uint64_t job_id) {
    uint32_t index = (uint32_t)(job_id & ((1u << INDEX_BITS) - 1));
    if (index >= runner->slot_count) return NULL;
    struct slot *slot = slot_at(runner, index);
    return slot->state != SLOT_FREE && slot->id == job_id ? slot : NULL;
}

void slot_set_custom_id(struct slot *slot, struct str raw) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    batch_custom_id_write(&text, raw);
    slot->custom_id_bytes = text.bytes;
    if (text.bytes <= sizeof slot->inline_id) {
        memcpy(slot->inline_id, text.at, text.bytes);
        slot->custom_id = slot->inline_id;
        buf_release(&text);
    } else {
        slot->custom_id = text.at;
    }
}

void slots_release(struct runner *runner) {
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->custom_id != slot->inline_id) free(slot->custom_id);
    }
    for (uint32_t i = 0; i < runner->slot_count / CHUNK_SLOTS; i++) free(runner->chunks[i]);
    free(runner->chunks);
}
