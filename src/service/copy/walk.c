/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/mem.h"

#include <stdlib.h>

struct walk {
    struct bucket *bucket;
    const volatile bool *stop;
    walk_fn each;
    void *context;
    struct buf bytes;
};

/* Calls `each` for the records of what was read; BASE records are the walk's own. */
static enum err walk_records(struct walk *walk, struct error *error) {
    struct entry_record record;
    enum err err = OK;
    for (size_t at = 0; err == OK && entry_next(buf_str(&walk->bytes), &at, &record);)
        if (record.kind != ENTRY_BASE) err = walk->each(walk->context, &record, error);
    return err;
}

static enum err walk_base(struct walk *walk, struct walked *walked, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct entry_header header;
    enum err err = OK;
    for (uint64_t i = 1; err == OK && i <= walked->base.piece_bytes; i++) {
        entry_piece_name(&walked->base, i, name);
        err = chain_read(walk->bucket, name, i, walk->stop, &walk->bytes, &header, error);
        if (err == OK) err = walk_records(walk, error);
        walked->base_bytes += walk->bytes.bytes;
    }
    return err;
}

static enum err walk_log(struct walk *walk, uint64_t last, struct walked *walked,
                         struct error *error) {
    struct ahead *ahead;
    struct entry_header header;
    enum err err = ahead_open(&ahead, walk->bucket, walked->first, last, walk->stop, error);
    if (err != OK) return err;
    for (uint64_t i = walked->first; err == OK && i <= last; i++) {
        err = ahead_take(ahead, &walk->bytes, &header, error);
        if (err == OK) err = walk_records(walk, error);
        walked->log_bytes += walk->bytes.bytes;
        if (err != OK || header.leader != i) continue;
        walked->leads = vec_grow(walked->leads, walked->lead_count, &walked->lead_capacity,
                                 sizeof *walked->leads);
        walked->leads[walked->lead_count++] = i;
    }
    ahead_close(ahead);
    return err;
}

/* Finds where the base's pieces lie and where the log begins that it needs. */
static enum err find_base(struct walk *walk, uint64_t number, struct walked *walked,
                          struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct entry_header header;
    struct entry_record record;
    chain_log_name(number, name);
    enum err err = chain_read(walk->bucket, name, number, walk->stop, &walk->bytes, &header, error);
    if (err != OK) return err;
    for (size_t at = 0; entry_next(buf_str(&walk->bytes), &at, &record);)
        if (record.kind == ENTRY_BASE) {
            walked->base = entry_object_of(&record);
            walked->first = record.value;
        }
    if (walked->first > 0 && walked->first <= number) return OK;
    return err_set(error, ERR_CORRUPT, "the copy is damaged: %s has no base", name);
}

enum err copy_walk(struct bucket *bucket, const struct chain_end *end, const volatile bool *stop,
                   walk_fn each, void *context, struct walked *ret_walked, struct error *error) {
    struct walk walk = {bucket, stop, each, context, {0}};
    struct walked walked = {0};
    if (end->base == 0)
        return err_set(error, ERR_NOT_FOUND, "there is no complete copy%s",
                       end->number ? ": its server ended before its first one was whole" : "");
    buf_init(&walk.bytes, ENTRY_BYTES_MAX);
    enum err err = find_base(&walk, end->base, &walked, error);
    if (err == OK) err = walk_base(&walk, &walked, error);
    if (err == OK) err = walk_log(&walk, end->number, &walked, error);
    buf_release(&walk.bytes);
    if (err == OK)
        *ret_walked = walked;
    else
        free(walked.leads);
    return err;
}
