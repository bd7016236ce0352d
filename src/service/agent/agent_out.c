/* SPDX-License-Identifier: Apache-2.0 */

/* Packs of results, and the thread that puts them and the beats on the bus. */

#include "agent/agent_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"

#include <stdlib.h>

#define PACK_FULL ((size_t)200 << 10) /* then the next record begins a new pack */
#define PACK_SOON ((size_t)64 << 10)  /* then a pack is put at once */
#define LINGER_MS 20                  /* results of lines wait for others to come along */
#define AGAIN_MS 500                  /* after a failure */
#define BEAT_MS 2000

static uint64_t epoch_of(uint64_t round) {
    return round >> 24;
}

/* The pack that the next record goes to. */
static struct agent_pack *open_pack(struct agent *agent) {
    struct agent_pack *pack = agent->first_pack;
    while (pack && pack->next) pack = pack->next;
    if (pack && !pack->is_sealed && pack->bytes.bytes < PACK_FULL) return pack;
    pack = mem_new(1, sizeof *pack);
    buf_init(&pack->bytes, PACK_BYTES_MAX);
    pack_begin(&pack->bytes);
    *agent->last_pack = pack;
    agent->last_pack = &pack->next;
    return pack;
}

/* Records were added to the pack, which had `before` bytes. */
static void added(struct agent *agent, const struct agent_pack *pack, size_t before,
                  bool is_urgent) {
    agent->unsent_bytes += pack->bytes.bytes - before;
    int64_t due_ns = is_urgent || pack->bytes.bytes >= PACK_SOON ? clock_monotonic_ns()
                                                                 : sync_deadline_ns(LINGER_MS);
    if (due_ns >= agent->send_due_ns) return;
    agent->send_due_ns = due_ns;
    pthread_cond_signal(&agent->send);
}

void out_result(struct agent *agent, uint32_t seat, const struct worker_result *result,
                const char *line, bool is_urgent) {
    struct agent_pack *pack = open_pack(agent);
    size_t before = pack->bytes.bytes;
    pack_result(&pack->bytes, (uint8_t)seat, result, str_from(line));
    if (pack->bytes.overflowed) {
        struct worker_result large = {
            .id = result->id,
            .outcome = OUTCOME_DONE,
            .status = 500,
            .body = STR("{\"error\":{\"message\":\"The answer has more bytes than a node can "
                        "send.\",\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"answer_too_large\"}}")};
        pack->bytes.overflowed = false;
        pack_result(&pack->bytes, (uint8_t)seat, &large, str_from(line));
    }
    pack->results++;
    added(agent, pack, before, is_urgent);
}

void out_text(struct agent *agent, enum pack_kind kind, uint32_t seat, uint64_t id,
              struct str text) {
    struct agent_pack *pack = open_pack(agent);
    size_t before = pack->bytes.bytes;
    pack_text(&pack->bytes, kind, (uint8_t)seat, id, text);
    added(agent, pack, before, true);
}

void out_held(struct agent *agent, const uint64_t *ids, size_t count) {
    struct agent_pack *pack = open_pack(agent);
    size_t before = pack->bytes.bytes;
    pack_held(&pack->bytes, ids, count, true);
    added(agent, pack, before, true);
}

void out_bye(struct agent *agent) {
    struct agent_pack *pack = open_pack(agent);
    size_t before = pack->bytes.bytes;
    pack_bare(&pack->bytes, PACK_BYE, 0, 0);
    added(agent, pack, before, true);
}

static void free_pack(struct agent_pack *pack) {
    buf_release(&pack->bytes);
    free(pack);
}

/* Takes the first pack out of the list. */
static void drop_first(struct agent *agent) {
    struct agent_pack *pack = agent->first_pack;
    agent->first_pack = pack->next;
    if (!agent->first_pack) agent->last_pack = &agent->first_pack;
    agent->unsent_bytes -= pack->bytes.bytes - PACK_HEAD_BYTES;
    free_pack(pack);
    pthread_cond_broadcast(&agent->idle);
    pthread_cond_signal(&agent->give);
}

void out_clear(struct agent *agent) {
    while (agent->first_pack) drop_first(agent);
}

/* Leaves only answers for lines in the pack, which is sealed anew then. */
static void keep_answers(struct agent *agent, struct agent_pack *pack) {
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    struct worker_result result;
    struct str line;
    struct buf kept;
    buf_init(&kept, PACK_BYTES_MAX);
    pack_begin(&kept);
    pack->is_sealed = false;
    pack->results = 0;
    if (pack_open(&reader, &head, buf_str(&pack->bytes))) {
        while (pack_next(&reader, &record)) {
            if (record.kind != PACK_RESULT || !pack_read_result(&record, &result, &line) ||
                result.outcome != OUTCOME_DONE || line.bytes == 0)
                continue;
            pack_copy(&kept, &record);
            pack->results++;
        }
    }
    agent->unsent_bytes -= pack->bytes.bytes - kept.bytes;
    buf_release(&pack->bytes);
    pack->bytes = kept;
}

void out_keep_answers(struct agent *agent) {
    for (struct agent_pack *pack = agent->first_pack; pack; pack = pack->next)
        keep_answers(agent, pack);
}

/* Puts the first pack. The lock is held, and let go for the call. */
static void put_first(struct agent *agent) {
    struct agent_pack *pack = agent->first_pack;
    struct error error;
    if (!pack->is_sealed) {
        pack->is_sealed = true;
        pack->epoch = epoch_of(agent->round);
        pack_seal(&pack->bytes, agent->round, ++agent->result_seq);
    }
    uint64_t round = agent->round;
    /* out_clear may free the pack meanwhile. */
    struct buf bytes = pack->bytes;
    buf_init(&pack->bytes, PACK_BYTES_MAX);
    pack_begin(&pack->bytes);
    agent->unsent_bytes -= bytes.bytes - PACK_HEAD_BYTES;
    uint64_t epoch = pack->epoch, results = pack->results;
    pthread_mutex_unlock(&agent->lock);
    enum err err = epoch == 0 ? OK
                              : agent->send_bus->ops->answer(agent->send_bus, agent->node, epoch,
                                                             buf_str(&bytes), &error);
    agent_note(agent, WAY_RESULTS, err == ERR_NOT_FOUND ? OK : err,
               &error); /* the bus is reached */
    pthread_mutex_lock(&agent->lock);
    agent->send_due_ns =
        agent->first_pack ? sync_deadline_ns(err == OK ? 0 : AGAIN_MS) : SYNC_NEVER;
    bool is_here = agent->first_pack == pack; /* a new server has not made it void */
    if (err == OK) {
        agent->status.results += results;
        if (round == agent->round) agent->result_seq_put = agent->result_seq;
        if (is_here) drop_first(agent);
        if (!agent->first_pack) agent->send_due_ns = SYNC_NEVER;
    } else if (is_here) {
        buf_release(&pack->bytes);
        pack->bytes = bytes;
        agent->unsent_bytes += bytes.bytes - PACK_HEAD_BYTES;
        if (epoch != epoch_of(agent->round)) keep_answers(agent, pack);
        return;
    }
    buf_release(&bytes);
}

/* The lock is held, and let go for the call. */
static void tell_beat(struct agent *agent) {
    struct buf beat;
    struct error error;
    bool was_emptied = false;
    agent->beat_due_ns = sync_deadline_ns(BEAT_MS);
    pthread_mutex_unlock(&agent->lock);
    buf_init(&beat, BUF_UNLIMITED);
    beat_fill(agent, &beat);
    enum err err = agent->send_bus->ops->beat(agent->send_bus, agent->node, buf_str(&beat),
                                              &was_emptied, &error);
    agent_note(agent, WAY_RESULTS, err, &error);
    buf_release(&beat);
    pthread_mutex_lock(&agent->lock);
    if (err == OK && was_emptied) agent->from_start = true;
    if (err != OK) agent->beat_due_ns = sync_deadline_ns(AGAIN_MS);
}

void *out_send_main(void *context) {
    struct agent *agent = context;
    pthread_mutex_lock(&agent->lock);
    while (!agent->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        if (agent->beat_due_ns <= now_ns) {
            tell_beat(agent);
        } else if (agent->first_pack && agent->send_due_ns <= now_ns) {
            put_first(agent);
        } else {
            int64_t due_ns = agent->beat_due_ns;
            if (agent->first_pack && agent->send_due_ns < due_ns) due_ns = agent->send_due_ns;
            (void)sync_wait_until(&agent->send, &agent->lock, due_ns);
        }
    }
    pthread_mutex_unlock(&agent->lock);
    return NULL;
}
