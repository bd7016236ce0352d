/* SPDX-License-Identifier: Apache-2.0 */

/* What is needless is found by a list of what there is, not by a memory of what was: so whatever a
 * kill, a lost request or a late one has left is removed by the next sweep. Needless are
 *
 *     log/     an entry below the base's first with which no server began to lead
 *     data/    an object of this leader, older than the base, or of an earlier leader, that neither
 *              the base nor the log after it names
 *
 * Objects of a later leader are never touched: a server that was followed and does not know it yet
 * may sweep. Whatever its follower learned from the chain is named here, too, since it followed
 * behind the entry with this base. */

#include "copy/copy_internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_BYTES_MAX ((size_t)16 << 20) /* what is left over waits for the next sweep */
#define FAILURES_MAX 16u                   /* removals that failed, before the sweep ends */
#define PAGES_MAX 1000000u                 /* a storage whose list has no end */

struct sweep {
    struct copy *copy;
    const struct swept *than;
    struct map named;             /* leader and serial of objects */
    struct buf needless, unknown; /* names, each with a NUL; unknown: they may be leads */
    uint32_t failures;
};

/* --- what is named --- */

static void name_object(struct sweep *sweep, const struct entry_object *object) {
    const uint64_t key[2] = {object->leader, object->serial};
    map_put(&sweep->named, (struct str){(const char *)key, sizeof key}, 1);
}

static bool is_named(const struct sweep *sweep, const struct entry_object *object) {
    const uint64_t key[2] = {object->leader, object->serial};
    return map_get(&sweep->named, (struct str){(const char *)key, sizeof key}, NULL);
}

/* Forgets the objects that neither the base nor the log after it names, and notes the others. */
static void forget_unseen(struct sweep *sweep) {
    struct copy *copy = sweep->copy;
    size_t kept = 0;
    pthread_mutex_lock(&copy->lock);
    map_release(&copy->row_of);
    map_init(&copy->row_of);
    for (size_t i = 0; i < copy->row_count; i++) {
        const struct object_row row = copy->rows[i];
        bool is_newer = row.at.leader == copy->leader && row.at.serial >= sweep->than->serial;
        if (!row.is_seen && !is_newer && row.told_in < sweep->than->first) continue;
        name_object(sweep, &row.at);
        map_put(&copy->row_of, str_from(row.path), kept);
        copy->rows[kept++] = row;
    }
    copy->row_count = kept;
    name_object(sweep, &copy->base_at);
    pthread_mutex_unlock(&copy->lock);
}

/* --- names --- */

/* The name without what a folder's file has until it is whole (bucket_folder.c). */
static bool strip_unfinished(const char *name, char ret_name[BUCKET_NAME_BYTES]) {
    const char *end = strstr(name, BUCKET_UNFINISHED);
    size_t bytes = end ? (size_t)(end - name) : strlen(name);
    memcpy(ret_name, name, bytes);
    ret_name[bytes] = '\0';
    return end != NULL;
}

static bool read_entry_name(const char *name, uint64_t *ret_number) {
    char again[ENTRY_NAME_BYTES];
    if (strncmp(name, "log/", 4) != 0) return false;
    *ret_number = strtoull(name + 4, NULL, 10);
    chain_log_name(*ret_number, again);
    return strcmp(name, again) == 0;
}

static bool read_piece_name(const char *name, struct entry_object *ret_object) {
    char again[ENTRY_NAME_BYTES], *end;
    struct entry_object object = {0};
    if (strncmp(name, "data/", 5) != 0) return false;
    object.leader = strtoull(name + 5, &end, 10);
    if (*end == '/') object.serial = strtoull(end + 1, &end, 10);
    uint64_t piece = *end == '.' ? strtoull(end + 1, NULL, 10) : 0;
    entry_piece_name(&object, piece, again);
    *ret_object = object;
    return strcmp(name, again) == 0;
}

static bool is_lead(const struct copy *copy, uint64_t number) {
    for (size_t i = 0; i < copy->lead_count; i++)
        if (copy->leads[i] == number) return true;
    return false;
}

static bool object_is_needless(const struct sweep *sweep, const struct entry_object *object) {
    const struct copy *copy = sweep->copy;
    if (object->leader > copy->leader || is_named(sweep, object)) return false;
    return object->leader < copy->leader || object->serial < sweep->than->under_way;
}

/* Where the name of the entry goes. Which of those below `walked_from` are leads is not known. */
static struct buf *judge_entry(struct sweep *sweep, uint64_t number) {
    if (number >= sweep->than->first || is_lead(sweep->copy, number)) return NULL;
    return number >= sweep->copy->walked_from ? &sweep->needless : &sweep->unknown;
}

/* Gathers the name if it is needless. Names that no copy has are those of somebody else. */
static void judge(void *context, const char *name) {
    struct sweep *sweep = context;
    char whole[BUCKET_NAME_BYTES];
    struct entry_object object;
    struct buf *into = NULL;
    uint64_t number;
    if (sweep->needless.bytes + sweep->unknown.bytes > NAMES_BYTES_MAX) return;
    if (strlen(name) >= sizeof whole) return;
    bool is_unfinished = strip_unfinished(name, whole);
    if (read_entry_name(whole, &number))
        into = is_unfinished ? &sweep->needless : judge_entry(sweep, number);
    else if (read_piece_name(whole, &object))
        into = is_unfinished || object_is_needless(sweep, &object) ? &sweep->needless : NULL;
    if (into) buf_add(into, name, strlen(name) + 1);
}

/* --- removing --- */

/* Adds the entries with which no server began to lead, and remembers the others. */
static void judge_unknown(struct sweep *sweep) {
    struct copy *copy = sweep->copy;
    struct buf bytes;
    buf_init(&bytes, ENTRY_BYTES_MAX);
    for (size_t at = 0; at < sweep->unknown.bytes && !copy->stop;) {
        const char *name = sweep->unknown.at + at;
        struct entry_header header;
        struct error error;
        uint64_t number;
        at += strlen(name) + 1;
        if (!read_entry_name(name, &number)) continue;
        enum err err = chain_read(copy->bucket, name, number, &copy->stop, &bytes, &header, &error);
        if (err != OK) continue;
        if (header.leader == number)
            copy_note_lead(copy, number);
        else
            buf_add(&sweep->needless, name, strlen(name) + 1);
    }
    buf_release(&bytes);
    buf_clear(&sweep->unknown);
}

static void remove_needless(struct sweep *sweep) {
    struct copy *copy = sweep->copy;
    struct error error;
    judge_unknown(sweep);
    for (size_t at = 0; at < sweep->needless.bytes && !copy->stop;) {
        const char *name = sweep->needless.at + at;
        at += strlen(name) + 1;
        if (sweep->failures >= FAILURES_MAX) break;
        if (bucket_remove(copy->bucket, name, &error) == OK) continue;
        sweep->failures++;
        log_debug("event=copy_not_removed error=\"%s\"", error.text);
    }
    buf_clear(&sweep->needless);
}

static void sweep_folder(struct sweep *sweep, const char *folder) {
    struct copy *copy = sweep->copy;
    char token[BUCKET_TOKEN_BYTES] = "";
    struct error error;
    for (uint32_t page = 0; page < PAGES_MAX && !copy->stop; page++) {
        enum err err = bucket_list(copy->bucket, folder, judge, sweep, token, &error);
        if (chain_may_pass(err) && ++sweep->failures < FAILURES_MAX && chain_pause(&copy->stop))
            continue;
        if (err != OK && !copy->stop)
            log_warn("event=copy_not_listed error=\"%s\"; what no base needs any more stays until "
                     "the next one",
                     error.text);
        if (err != OK) return;
        remove_needless(sweep);
        if (!*token || sweep->failures >= FAILURES_MAX) return;
    }
}

void copy_sweep(struct copy *copy, const struct swept *than) {
    struct sweep sweep = {.copy = copy, .than = than};
    map_init(&sweep.named);
    buf_init(&sweep.needless, BUF_UNLIMITED);
    buf_init(&sweep.unknown, BUF_UNLIMITED);
    forget_unseen(&sweep);
    sweep_folder(&sweep, "log");
    sweep_folder(&sweep, "data");
    buf_release(&sweep.unknown);
    buf_release(&sweep.needless);
    map_release(&sweep.named);
}
