/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"
#include "copy/restore.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>

#define LOOK_MS 1000
#define STEP_MS 50
#define LOOK_NS_MAX INT64_C(3000000000) /* what one look may add to the silence */

/* Moves the end on to the newest entry, one after another. *ret_moved: there was one. */
static enum err look(struct copy *copy, struct chain_end *end, bool *ret_moved,
                     struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct entry_header header;
    struct buf bytes;
    buf_init(&bytes, ENTRY_BYTES_MAX);
    chain_log_name(end->number + 1, name);
    enum err err = chain_read(copy->bucket, name, end->number + 1, copy->asked_to_stop, &bytes,
                              &header, error);
    buf_release(&bytes);
    *ret_moved = err == OK;
    if (err == OK) {
        end->number++;
        end->header = header;
    }
    return err == ERR_NOT_FOUND ? OK : err;
}

static enum err wait_a_moment(const struct copy *copy, int wait_ms, struct error *error) {
    for (int ms = 0; !*copy->asked_to_stop; ms += STEP_MS) {
        if (ms >= wait_ms) return OK;
        clock_sleep_ms(STEP_MS);
    }
    return err_set(error, ERR_CANCELLED, "stopped");
}

/* Waits until no entry came for the time. Only looks that were answered count, and each for at most
 * 3 s: neither a storage that was away, nor a sleep of this process, is a silence. Behind an entry
 * the next one is looked for at once: a server writes several per second, and who is a thousand
 * behind when it dies would count its silence a thousand looks later. */
static enum err wait_for_silence(struct copy *copy, struct chain_end *end, int64_t silence_ms,
                                 struct error *error) {
    int64_t silent_ns = 0, looked_ns = clock_monotonic_ns();
    bool has_moved = true;
    while (silent_ns < silence_ms * INT64_C(1000000)) {
        enum err err = wait_a_moment(copy, has_moved ? 0 : LOOK_MS, error);
        int64_t asked_ns = clock_monotonic_ns();
        if (err == OK) err = look(copy, end, &has_moved, error);
        if (err != OK) return err;
        int64_t passed_ns = asked_ns - looked_ns;
        looked_ns = clock_monotonic_ns();
        silent_ns = has_moved ? 0 : silent_ns + (passed_ns < LOOK_NS_MAX ? passed_ns : LOOK_NS_MAX);
        if (has_moved) looked_ns = asked_ns;
    }
    return OK;
}

static enum err take_over(struct copy *copy, struct chain_end *end, struct error *error) {
    struct copy_restored restored;
    uint64_t silent_at = end->number;
    enum err err = chain_find(copy->bucket, copy->asked_to_stop, end, error);
    if (err != OK) return err;
    /* The next entry was missing because a base made it needless. */
    if (end->number != silent_at) return err_set(error, ERR_CONFLICT, "the server goes on");
    /* Nothing was acknowledged before the first base is whole, and only its server can make it: to
     * lead here would end that server, with nothing to restore. */
    if (end->base == 0) {
        log_warn("event=copy_silent host=\"%s\" entry=%" PRIu64
                 "; the copy has no whole state yet, so that server must start again",
                 end->header.host, end->number);
        return err_set(error, ERR_CONFLICT, "there is no complete copy yet");
    }
    log_info("event=copy_silent host=\"%s\" entry=%" PRIu64 "; taking over", end->header.host,
             end->number);
    /* The mark comes first: a server that starts here after a kill must not lead with nothing. */
    err = copy_restore_begin(copy->state_dir, error);
    if (err == OK) err = copy_lead(copy, end, error);
    if (err != OK) return err;
    /* The base may have moved on since the standby began to look. */
    struct chain_end found;
    err = chain_find(copy->bucket, copy->asked_to_stop, &found, error);
    if (err == OK)
        err = copy_restore(copy->bucket, &found, copy->state_dir, copy->asked_to_stop, &restored,
                           error);
    if (err != OK) return err;
    log_info("event=copy_restored entries=%" PRIu64 " files=%" PRIu64 " batches=%" PRIu64
             " unfinished=%" PRIu64,
             restored.entries, restored.files, restored.batches, restored.unfinished);
    return copy_learn(copy, &found, error);
}

enum err copy_stand_by(struct copy *copy, int64_t silence_ms, struct error *error) {
    struct chain_end end;
    enum err err = chain_find(copy->bucket, copy->asked_to_stop, &end, error);
    if (err != OK) return copy_name_option(err, error);
    if (end.number == 0)
        return err_set(error, ERR_NOT_FOUND, "--standby: there is no copy yet to stand by for");
    log_info("event=standing_by host=\"%s\" entry=%" PRIu64, end.header.host, end.number);
    for (;;) {
        err = wait_for_silence(copy, &end, silence_ms, error);
        if (err == OK) err = take_over(copy, &end, error);
        if (err != ERR_CONFLICT || copy->leader) return copy_name_option(err, error);
        /* Another one was faster, or the server has come back. */
        err = chain_find(copy->bucket, copy->asked_to_stop, &end, error);
        if (err != OK) return copy_name_option(err, error);
    }
}
