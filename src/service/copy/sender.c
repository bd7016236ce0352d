/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"

#include <stdio.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define EVERY_NS (200 * NS_PER_MS) /* between the begins of two entries that are not full */
#define FULL_BYTES ((uint64_t)1 << 20)
#define BEAT_NS (3000 * NS_PER_MS) /* an entry without changes tells a standby of life */
#define LOOK_NS (1000 * NS_PER_MS) /* between two looks at small files */
/* An entry counts so much towards the next base, because a restore reads a small one in the time of
 * so many bytes: without that, a server that was idle for 10 days has 288,000 of them. */
#define LEAST_BYTES ((uint64_t)64 << 10)
#define SLOWEST_NS (1000 * NS_PER_MS) /* longer ones waited for a storage that was away */

static void fence(struct copy *copy, const struct error *error) {
    log_error("event=copy_fenced error=\"%s\"; this server acknowledges nothing more and ends",
              error->text);
    copy->is_fenced = true;
    snprintf(copy->status.sentence, sizeof copy->status.sentence, "%.390s", error->text);
    pthread_cond_broadcast(&copy->stored);
}

/* Whether someone waits for the next entry. The lock is held. */
static bool is_urgent(const struct copy *copy) {
    return copy->asked > copy->copied || copy->is_closing;
}

/* The lock is held. */
static void count_entry(struct copy *copy, size_t bytes, int64_t took_ns) {
    struct log_growth *log = &copy->log;
    if (took_ns > SLOWEST_NS) took_ns = SLOWEST_NS;
    log->bytes += bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    log->entries++;
    log->entry_ns = log->entry_ns ? log->entry_ns + (took_ns - log->entry_ns) / 16 : took_ns;
}

/* Sends what was gathered, or a sign of life; false if it was given up. The lock is held, and let
 * go meanwhile. */
static bool send_one(struct copy *copy) {
    struct gathered taken = copy->gathered;
    struct entry_header header;
    struct buf entry;
    struct error error;
    uint64_t told = copy->told, number = copy->next;
    gathered_init(&copy->gathered);
    buf_init(&entry, BUF_UNLIMITED);
    copy_head(copy, number, &header);
    copy->sending_bytes = gathered_bytes(&taken);
    copy->is_sending = true;
    copy->sent_ns = clock_monotonic_ns();
    int64_t begun_ns = copy->sent_ns;
    if (!is_urgent(copy)) copy->paced_ns = begun_ns;
    pthread_mutex_unlock(&copy->lock);
    gathered_write(&taken, &header, &entry);
    gathered_release(&taken);
    enum err err = copy_put_entry(copy, number, buf_str(&entry), &error);
    pthread_mutex_lock(&copy->lock);
    copy->is_sending = false;
    copy->sending_bytes = 0;
    if (err == ERR_CONFLICT) fence(copy, &error);
    if (err == OK) {
        copy->next++;
        copy->copied = told;
        copy->stored_ns = begun_ns;
        copy->waiting_ns = copy->told > told ? begun_ns : 0;
        copy->status.entries++;
        copy->status.entry_bytes += entry.bytes;
        count_entry(copy, entry.bytes, clock_monotonic_ns() - begun_ns);
        pthread_cond_broadcast(&copy->stored);
    }
    buf_release(&entry);
    return err == OK;
}

/* When the next entry is due. The lock is held. */
static int64_t due_ns(const struct copy *copy) {
    if (!copy->gathered.has_any) return copy->sent_ns + BEAT_NS;
    bool is_full = gathered_bytes(&copy->gathered) >= FULL_BYTES;
    return is_full || is_urgent(copy) ? 0 : copy->paced_ns + EVERY_NS;
}

static void *sender_main(void *context) {
    struct copy *copy = context;
    int64_t looked_ns = 0;
    pthread_mutex_lock(&copy->lock);
    while (!copy->is_fenced && !(copy->is_closing && !copy->gathered.has_any)) {
        int64_t now_ns = clock_monotonic_ns(), due = due_ns(copy);
        if (copy->store && now_ns >= looked_ns + LOOK_NS) {
            looked_ns = now_ns;
            pthread_mutex_unlock(&copy->lock);
            copy_look_at_files(copy);
            pthread_mutex_lock(&copy->lock);
            continue;
        }
        if (now_ns < due) {
            int64_t until_ns = looked_ns + LOOK_NS < due ? looked_ns + LOOK_NS : due;
            sync_wait_until(&copy->work, &copy->lock, copy->store ? until_ns : due);
            continue;
        }
        if (copy->is_closing && now_ns >= copy->close_ns) break;
        /* An entry that was given up may be stored after all. Another one of its number would be
         * taken for it, so none follows: the server ends. */
        if (!send_one(copy)) break;
        copy_base_when_due(copy);
    }
    pthread_mutex_unlock(&copy->lock);
    return NULL;
}

enum err copy_start_sender(struct copy *copy, struct error *error) {
    int failed = pthread_create(&copy->sender, NULL, sender_main, copy);
    if (failed) return err_from_errno(error, failed, "cannot start the thread of the copy");
    pthread_setname_np(copy->sender, "copy");
    copy->has_sender = true;
    return OK;
}
