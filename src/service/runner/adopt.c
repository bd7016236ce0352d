/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/adopt.h"

#include "base/log.h"
#include "base/mem.h"
#include "runner/results.h"
#include "runner/runner_internal.h"
#include "runner/translated.h"

#include <stdio.h>
#include <string.h>

void adopt_write_name(char ret_name[WORKER_LINE_BYTES], const struct active_batch *batch,
                      uint32_t number) {
    _Static_assert(STORE_ID_BYTES + 12 <= WORKER_LINE_BYTES, "a name fits");
    snprintf(ret_name, WORKER_LINE_BYTES, "%s:%u", batch->row.id, number);
}

bool adopt_has(const struct active_batch *batch, uint32_t number) {
    return batch->adopted && (batch->adopted[number / 8] >> number % 8 & 1);
}

static void mark(struct active_batch *batch, uint32_t number, bool is_adopted) {
    unsigned char bit = (unsigned char)(1u << number % 8);
    if (!batch->adopted) batch->adopted = mem_new(index_count(batch->index) / 8 + 1, 1);
    if (is_adopted)
        batch->adopted[number / 8] |= bit;
    else
        batch->adopted[number / 8] &= (unsigned char)~bit;
}

/* The batch and the line that a name is of, if the line has neither a record nor a worker. NULL
 * otherwise. The lock is held. */
static struct active_batch *find_free(struct runner *runner, struct str name,
                                      uint32_t *ret_number) {
    size_t colon = str_find(name, STR(":"), 0);
    uint64_t number;
    if (!runner->is_holding || colon == SIZE_MAX || !str_to_u64(str_skip(name, colon + 1), &number))
        return NULL;
    struct active_batch *batch = active_find(runner, (struct str){name.at, colon});
    if (!batch || !batch->is_taken_up || batch->phase != PHASE_RUN ||
        number >= index_count(batch->index) || seglog_has(batch->log, (uint32_t)number) ||
        adopt_has(batch, (uint32_t)number))
        return NULL;
    *ret_number = (uint32_t)number;
    return batch;
}

/* Fills the slot with what the record of the line needs. */
static enum err fill(struct runner *runner, struct slot *slot, struct error *error) {
    struct batch_line line;
    struct refusal refusal;
    enum err err =
        line_reader_read(&runner->adopting, slot->batch, slot->line.number, &line, error);
    if (err != OK) return err;
    slot_set_custom_id(slot, line.custom_id);
    slot->endpoint = line.endpoint;
    if (endpoint_is_translated(line.endpoint)) {
        slot->call = translated_read(&line, &runner->adopting_room, &refusal);
        if (!slot->call) return err_set(error, ERR_INVALID, "a line that its API refuses");
    }
    slot->asks_shape = batch_line_asks_shape(&line);
    slot->bytes = line.body.bytes;
    return OK;
}

uint64_t runner_adopt(struct runner *runner, uint32_t seat, struct str name) {
    struct error error;
    uint32_t number;
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = find_free(runner, name, &number);
    if (!batch) {
        pthread_mutex_unlock(&runner->lock);
        return 0;
    }
    struct slot *slot = slot_take(runner);
    slot->batch = batch;
    slot->line = (struct line_state){.number = number};
    batch->in_flight++;
    mark(batch, number, true);
    pthread_mutex_unlock(&runner->lock);
    enum err err = fill(runner, slot, &error);
    pthread_mutex_lock(&runner->lock);
    uint64_t job_id = slot->id;
    if (err == OK && batch->phase == PHASE_RUN) {
        seat_begin(&runner->seats[seat], slot);
        runner->counters.lines_adopted++;
    } else {
        mark(batch, number, false);
        slot_free(runner, slot);
        job_id = 0;
    }
    pthread_mutex_unlock(&runner->lock);
    return job_id;
}

void runner_adopted(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    bool was_holding = runner->is_holding;
    runner->is_holding = false;
    runner->progress++;
    runner->is_reordered = true;
    uint64_t count = runner->counters.lines_adopted;
    pthread_cond_signal(&runner->work);
    pthread_mutex_unlock(&runner->lock);
    if (was_holding) log_info("event=lines_adopted lines=%llu", (unsigned long long)count);
}

size_t runner_jobs_ended(struct runner *runner, const uint64_t *job_ids, size_t count) {
    size_t ended = 0;
    pthread_mutex_lock(&runner->lock);
    while (ended < count && !slot_find(runner, job_ids[ended])) ended++;
    pthread_mutex_unlock(&runner->lock);
    return ended;
}
