/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/retention.h"

#include "base/log.h"
#include "store/answers_forget.h"
#include "store/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400
#define AT_ONCE 64 /* batches, or pieces of one, between two looks at what is to be published */

/* Counts a deletion and logs it. */
static void note(struct retention *retention, const char *id, enum retention_why why,
                 const struct store_freed *freed) {
    static const char *const names[DELETED_COUNT] = {"request", "age"};
    atomic_fetch_add(&retention->deleted[why], 1);
    atomic_fetch_add(&retention->bytes, freed->bytes);
    log_info("batch=%s event=deleted by=%s files=%" PRIu64 " bytes=%" PRIu64 " judgements=%" PRIu64,
             id, names[why], freed->files, freed->bytes, freed->judgements);
}

static enum err audit_age(struct retention *retention, const char *id, int64_t now_unix_s,
                          struct error *error) {
    char detail[64];
    snprintf(detail, sizeof detail, "it ended more than %" PRIu32 " days ago",
             retention->keep_days);
    const struct audit_entry entry = {.unix_s = now_unix_s,
                                      .action = "batch.delete",
                                      .subject = id,
                                      .actor = "server",
                                      .detail = detail};
    return audit_add(store_dir(retention->store), &entry, error);
}

/* Marks the oldest batches that are too old. True if one call does not do for all. */
static bool delete_old(struct retention *retention, int64_t now_unix_s) {
    int64_t before = now_unix_s - (int64_t)retention->keep_days * DAY_S;
    if (!retention->keep_days) return false;
    for (int i = 0; i < AT_ONCE; i++) {
        char id[STORE_ID_BYTES];
        struct store_freed freed;
        struct error error;
        enum err err = store_batch_oldest_ended(retention->store, before, id, &error);
        if (err == ERR_NOT_FOUND) return false;
        if (err == OK) err = audit_age(retention, id, now_unix_s, &error);
        if (err == OK)
            err = store_batch_delete(retention->store, str_from(id), now_unix_s, &freed, &error);
        if (err == OK) {
            note(retention, id, DELETED_BY_AGE, &freed);
        } else if (err != ERR_NOT_FOUND) { /* a client may have deleted it meanwhile */
            log_warn("event=retention error=\"%s\", retrying", error.text);
            return false;
        }
    }
    return true;
}

bool retention_sweep(struct retention *retention, int64_t now_unix_s) {
    struct error error;
    bool has_more = false, has_old = delete_old(retention, now_unix_s);
    if (store_batch_sweep(retention->store, now_unix_s, AT_ONCE, &has_more, &error) == OK)
        return has_old || has_more;
    log_warn("event=sweep error=\"%s\", retrying", error.text);
    return false;
}

enum err retention_delete(struct retention *retention, struct str batch_id, int64_t now_unix_s,
                          struct store_freed *ret_freed, bool *ret_has_more, struct error *error) {
    char id[STORE_ID_BYTES] = "";
    struct error later;
    *ret_has_more = false;
    enum err err = store_batch_delete(retention->store, batch_id, now_unix_s, ret_freed, error);
    if (err != OK) return err;
    memcpy(id, batch_id.at, batch_id.bytes);
    note(retention, id, DELETED_BY_REQUEST, ret_freed);
    if (store_forget_answers(retention->store, id, &later) != OK)
        log_warn("batch=%s event=cache_forget error=\"%s\", retrying", id, later.text);
    /* It is deleted. What one piece does not remove, or a full disk keeps, goes with a sweep. */
    if (store_batch_sweep(retention->store, now_unix_s, 1, ret_has_more, &later) != OK)
        log_warn("batch=%s event=sweep error=\"%s\", retrying", id, later.text);
    return OK;
}

void retention_note(const struct retention *retention, struct store_batch *row) {
    int64_t end_unix_s = store_batch_end_unix_s(row);
    if (retention->keep_days && end_unix_s)
        row->delete_unix_s = end_unix_s + (int64_t)retention->keep_days * DAY_S;
}
