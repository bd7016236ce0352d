/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/sync.h"
#include "copy/lead_note.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS INT64_C(1000000)
#define CLOSE_MS 5000

enum err copy_open(struct copy **ret_copy, const struct copy_options *options,
                   struct error *error) {
    struct copy *copy = mem_new(1, sizeof *copy);
    copy->asked_to_stop = options->stop;
    copy->piece_bytes = PIECE_BYTES;
    snprintf(copy->state_dir, sizeof copy->state_dir, "%s", options->state_dir);
    id_hex(copy->nonce, sizeof copy->nonce, "", ENTRY_NONCE_BYTES - 1);
    if (gethostname(copy->host, sizeof copy->host - 1) != 0 || !*copy->host)
        snprintf(copy->host, sizeof copy->host, "unknown");
    pthread_mutex_init(&copy->lock, NULL);
    pthread_mutex_init(&copy->files_lock, NULL);
    sync_cond_init(&copy->work);
    sync_cond_init(&copy->stored);
    gathered_init(&copy->gathered);
    map_init(&copy->row_of);
    copy_mirror_init(copy);
    enum err err = bucket_open(&copy->bucket, options->place, &copy->stop, error);
    if (err == OK)
        *ret_copy = copy;
    else
        copy_close(copy);
    return err == OK ? OK : err_prefix(error, "--copy-to");
}

/* --- leading --- */

/* Looks whether the entry that was written is the end of the chain. It may stand in a gap: a base
 * came since the end was found, and what was at the end is removed. */
static enum err check_end(const struct copy *copy, uint64_t number, struct error *error) {
    struct chain_end end;
    enum err err = chain_find(copy->bucket, copy->asked_to_stop, &end, error);
    if (err != OK) return err;
    if (end.number == number && strcmp(end.header.nonce, copy->nonce) == 0) return OK;
    return err_set(error, ERR_CONFLICT, "--copy-to: the server on '%s' leads", end.header.host);
}

/* Writes the entry once more, which the storage must refuse. One that does not know If-None-Match
 * would take it, and with it the entries of two servers. */
static enum err check_refusal(struct copy *copy, uint64_t number, struct str entry,
                              struct error *error) {
    char name[ENTRY_NAME_BYTES];
    chain_log_name(number, name);
    for (;;) {
        enum err err = bucket_write(copy->bucket, name, entry, true, error);
        if (err == ERR_CONFLICT) return OK;
        if (err == OK)
            return err_set(error, ERR_INVALID,
                           "--copy-to: the storage wrote over an object in spite of "
                           "'If-None-Match: *', so it cannot keep two servers apart: name a "
                           "storage with conditional writes");
        if (!chain_may_pass(err)) return err;
        if (!chain_pause(copy->asked_to_stop)) return err_set(error, ERR_CANCELLED, "stopped");
    }
}

enum err copy_lead(struct copy *copy, const struct chain_end *end, struct error *error) {
    struct entry_header header;
    struct buf entry;
    /* A standby has no right to what led before it: its entry has to be the next one. */
    bool goes_on = end->number == 0 || lead_note_has(copy->state_dir, end->header.nonce);
    enum err err = lead_note_begin(copy->state_dir, goes_on, copy->nonce, error);
    if (err != OK) return err;
    pthread_mutex_lock(&copy->lock);
    copy->base = end->base;
    copy->base_count = end->base_count;
    copy_head(copy, end->number + 1, &header);
    pthread_mutex_unlock(&copy->lock);
    buf_init(&entry, BUF_UNLIMITED);
    entry_begin(&entry, &header);
    entry_end(&entry);
    err = copy_put_entry(copy, end->number + 1, buf_str(&entry), error);
    if (err == OK) err = check_end(copy, end->number + 1, error);
    if (err == OK) err = check_refusal(copy, end->number + 1, buf_str(&entry), error);
    buf_release(&entry);
    if (err == OK) err = lead_note_end(copy->state_dir, copy->nonce, error);
    if (err != OK) return err;
    copy_note_lead(copy, end->number + 1);
    pthread_mutex_lock(&copy->lock);
    copy->leader = end->number + 1;
    copy->next = end->number + 2;
    copy->sent_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&copy->lock);
    log_info("event=copy_leads entry=%" PRIu64, copy->leader);
    return copy_start_sender(copy, error);
}

/* Refuses to go on with a state directory that another server has followed. */
static enum err check_right(const struct copy *copy, const struct chain_end *end,
                            struct error *error) {
    if (end->number == 0 || lead_note_has(copy->state_dir, end->header.nonce)) return OK;
    return err_set(error, ERR_CONFLICT,
                   "--copy-to: the copy belongs to the server that runs or ran on '%s', and not to "
                   "%s. To go on from the copy, give --standby and an empty --state-dir; else name "
                   "another place",
                   end->header.host, copy->state_dir);
}

static enum err note_row(void *context, const struct entry_record *record, struct error *error) {
    struct copy *copy = context;
    (void)error;
    if (record->kind != ENTRY_OBJECT) return OK;
    const struct entry_object object = entry_object_of(record);
    pthread_mutex_lock(&copy->lock);
    copy_note_object(copy, record->path, record->value, &object, 0);
    pthread_mutex_unlock(&copy->lock);
    return OK;
}

/* Learns which large files the storage has, and what a new base makes needless. */
enum err copy_learn(struct copy *copy, const struct chain_end *end, struct error *error) {
    struct walked walked = {0};
    if (end->base == 0) {
        copy->walked_from = end->number + 1;
        return OK;
    }
    enum err err =
        copy_walk(copy->bucket, end, copy->asked_to_stop, note_row, copy, &walked, error);
    if (err != OK) return err;
    copy->walked_from = walked.first;
    copy->base_at = walked.base;
    for (size_t i = 0; i < walked.lead_count; i++) copy_note_lead(copy, walked.leads[i]);
    free(walked.leads);
    return OK;
}

/* The first entry is never removed, since a server began to lead with it. A copy of an early
 * release may lack it. */
static enum err learn_name(struct copy *copy, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct entry_header header;
    struct buf bytes;
    buf_init(&bytes, ENTRY_BYTES_MAX);
    chain_log_name(1, name);
    enum err err = chain_read(copy->bucket, name, 1, copy->asked_to_stop, &bytes, &header, error);
    buf_release(&bytes);
    if (err == OK) memcpy(copy->name, header.nonce, sizeof copy->name);
    return err == ERR_NOT_FOUND ? OK : err;
}

const char *copy_name(const struct copy *copy) {
    return copy->name;
}

enum err copy_name_option(enum err err, struct error *error) {
    return err == OK || strncmp(error->text, "--", 2) == 0 ? err : err_prefix(error, "--copy-to");
}

enum err copy_attach(struct copy *copy, struct store *store, struct error *error) {
    struct chain_end end;
    enum err err = OK;
    bool has_taken_over = copy->leader != 0;
    if (!has_taken_over) {
        err = chain_find(copy->bucket, copy->asked_to_stop, &end, error);
        if (err == OK) err = check_right(copy, &end, error);
        if (err == OK) err = copy_learn(copy, &end, error);
        if (err == OK) err = copy_lead(copy, &end, error);
    }
    if (err == OK) err = learn_name(copy, error);
    pthread_mutex_lock(&copy->lock);
    copy->store = store;
    pthread_mutex_unlock(&copy->lock);
    if (err == OK) err = store_mirror_set(store, &copy->mirror, error);
    if (err == OK) err = copy_make_base(copy, error);
    return copy_name_option(err, error);
}

/* --- asking --- */

void copy_status(struct copy *copy, struct copy_status *ret_status) {
    pthread_mutex_lock(&copy->lock);
    *ret_status = copy->status;
    ret_status->is_fenced = copy->is_fenced;
    ret_status->waiting_bytes = gathered_bytes(&copy->gathered) + copy->sending_bytes;
    if (copy->waiting_ns)
        ret_status->behind_ms = (clock_monotonic_ns() - copy->waiting_ns) / NS_PER_MS;
    ret_status->is_away = copy->is_fenced || ret_status->behind_ms > COPY_AWAY_MS;
    pthread_mutex_unlock(&copy->lock);
}

void copy_close(struct copy *copy) {
    if (!copy) return;
    pthread_mutex_lock(&copy->lock);
    copy->is_closing = true;
    copy->close_ns = clock_monotonic_ns() + CLOSE_MS * NS_PER_MS;
    pthread_cond_broadcast(&copy->work);
    pthread_mutex_unlock(&copy->lock);
    if (copy->has_sender) pthread_join(copy->sender, NULL);
    copy->stop = true;
    if (copy->has_baser) pthread_join(copy->baser, NULL);
    bucket_close(copy->bucket);
    gathered_release(&copy->gathered);
    map_release(&copy->row_of);
    free(copy->rows);
    free(copy->leads);
    free(copy->under_way);
    pthread_cond_destroy(&copy->stored);
    pthread_cond_destroy(&copy->work);
    pthread_mutex_destroy(&copy->files_lock);
    pthread_mutex_destroy(&copy->lock);
    free(copy);
}
