/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* chain: the log of a copy: entries 1, 2, 3, … of which each is written once, by whoever is first.
 *
 *     log/NUMBER       an entry (entry.h); the last one says who leads, and where the last base is
 *     base/COUNT       number of an entry with a BASE record; never removed, so that the newest one
 *                      is found by doubling and halving, without a list
 *     data/…           pieces of bases and of large files
 *
 * A storage lets one of two writers of a name win. So an entry that another server has written
 * ends the lead of everyone else, whatever their clocks say and however long they slept: the next
 * entry of theirs is refused, and what it would have told is never acknowledged. base/ is only a
 * hint: the log decides.
 *
 * A name that was removed can be written again. So two rules: an entry with which a server began to
 * lead is never removed, since it stands where its predecessor would write next; and who has
 * written such an entry looks for the end once more, and leads only if it is that entry and not one
 * in a gap below a base.
 *
 * Thread: any; the caller's structs.
 * Memory: one entry at a time.
 * Invariant: entries below the newest base's first may be gone, except those with which servers
 *     began to lead; none above is missing. */

#include "copy/bucket.h"
#include "copy/entry.h"

struct chain_end {
    uint64_t number;            /* the last entry; 0: there is none */
    uint64_t base;              /* number of the last entry with a BASE record; 0: none */
    uint64_t base_count;        /* names below base/ */
    struct entry_header header; /* that of the last entry */
};

void chain_log_name(uint64_t number, char ret_name[ENTRY_NAME_BYTES]);
/* Reads the object and checks it as an entry with that number. Tries again while the storage is
 * away, until *stop. */
enum err chain_read(struct bucket *bucket, const char *name, uint64_t number,
                    const volatile bool *stop, struct buf *ret_bytes,
                    struct entry_header *ret_header, struct error *error) MUST_CHECK;
enum err chain_find(struct bucket *bucket, const volatile bool *stop, struct chain_end *ret_end,
                    struct error *error) MUST_CHECK;
/* Notes that entry `number` has a base, under the first free name from *count + 1 on, and moves
 * *count there. One attempt. */
enum err chain_note_base(struct bucket *bucket, uint64_t *count, uint64_t number,
                         struct error *error) MUST_CHECK;
/* Whether a failed call may be good later. */
bool chain_may_pass(enum err err);
/* Waits a moment between two attempts; false when *stop. */
bool chain_pause(const volatile bool *stop);
