/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"

#include <string.h>

void gathered_init(struct gathered *gathered) {
    *gathered = (struct gathered){0};
    buf_init(&gathered->records, BUF_UNLIMITED);
    buf_init(&gathered->pages, BUF_UNLIMITED);
    map_init(&gathered->page_at);
}

void gathered_release(struct gathered *gathered) {
    buf_release(&gathered->records);
    buf_release(&gathered->pages);
    map_release(&gathered->page_at);
}

uint64_t gathered_bytes(const struct gathered *gathered) {
    return gathered->records.bytes + gathered->pages.bytes;
}

void gathered_write(const struct gathered *gathered, const struct entry_header *header,
                    struct buf *ret_entry) {
    entry_begin(ret_entry, header);
    buf_add_str(ret_entry, buf_str(&gathered->records));
    if (gathered->page_bytes) {
        size_t at = entry_begin_pages(ret_entry, gathered->page_bytes);
        buf_add_str(ret_entry, buf_str(&gathered->pages));
        entry_end_pages(ret_entry, at, gathered->page_count);
    }
    entry_end(ret_entry);
}

void copy_note(struct copy *copy, bool is_result) {
    copy->gathered.has_any = true;
    copy->told++;
    if (!is_result) copy->told_rows = copy->told;
    if (copy->waiting_ns == 0) copy->waiting_ns = clock_monotonic_ns();
    pthread_cond_signal(&copy->work);
}

void copy_head(struct copy *copy, uint64_t number, struct entry_header *ret_header) {
    *ret_header = (struct entry_header){.number = number,
                                        .leader = copy->leader ? copy->leader : number,
                                        .base = copy->base,
                                        .unix_ms = clock_unix_ms()};
    memcpy(ret_header->nonce, copy->nonce, sizeof ret_header->nonce);
    memcpy(ret_header->host, copy->host, sizeof ret_header->host);
}

void copy_note_lead(struct copy *copy, uint64_t number) {
    copy->leads =
        vec_grow(copy->leads, copy->lead_count, &copy->lead_capacity, sizeof *copy->leads);
    copy->leads[copy->lead_count++] = number;
}

bool copy_wait(struct copy *copy, bool also_results, int64_t until_ns) {
    pthread_mutex_lock(&copy->lock);
    uint64_t wanted = also_results ? copy->told : copy->told_rows;
    if (!also_results && wanted > copy->copied && wanted > copy->asked) {
        copy->asked = wanted; /* a client waits: the next entry is due at once */
        pthread_cond_signal(&copy->work);
    }
    while (copy->copied < wanted && !copy->is_fenced)
        if (!sync_wait_until(&copy->stored, &copy->lock, until_ns)) break;
    bool is_stored = copy->copied >= wanted && !copy->is_fenced;
    pthread_mutex_unlock(&copy->lock);
    return is_stored;
}

bool copy_is_fenced(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    bool is_fenced = copy->is_fenced;
    pthread_mutex_unlock(&copy->lock);
    return is_fenced;
}

bool copy_is_fresh(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    int64_t age_ns = clock_monotonic_ns() - copy->stored_ns;
    bool is_fresh =
        !copy->is_fenced && copy->stored_ns && age_ns < COPY_FRESH_MS * INT64_C(1000000);
    pthread_mutex_unlock(&copy->lock);
    return is_fresh;
}

bool copy_is_ending(struct copy *copy) {
    pthread_mutex_lock(&copy->lock);
    bool is_ending = copy->is_fenced || copy->is_closing || copy->stop || *copy->asked_to_stop;
    pthread_mutex_unlock(&copy->lock);
    return is_ending;
}
