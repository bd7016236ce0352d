/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* audit: who changed what in a state directory: a trail of JSON objects, one per line.
 *
 *   audit.jsonl            the newest entries
 *   audit.1.jsonl …        older ones, up to audit.15.jsonl, each of about 1 MiB
 *   audit.lock             locked while an entry is added
 *
 * An entry is durable before its change is made, so that no change lacks one after a kill; a change
 * that then fails has a second entry with the outcome "failed". Only the making of a key comes
 * before its entry, which has the key's id. Entries are added and never changed; the oldest file
 * goes when a sixteenth is full, so that the trail has the newest 15 to 16 MiB, some 60,000
 * entries. A line that a kill has cut off is skipped by readers.
 *
 * It is no table of meta.db for the reason of key_file.h: `quern key` and `quern restore` add
 * entries, too, while a server may run. An entry holds ids and no secret.
 *
 * Thread: any; processes take turns by the lock.
 * Memory: a reader holds one file, at most 2 MiB, at a time. */

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

#define AUDIT_FILES 16
#define AUDIT_FILE_BYTES ((uint64_t)1 << 20)

/* Texts may be NULL for none. */
struct audit_entry {
    int64_t unix_s;
    const char *action;     /* "batch.delete" */
    const char *subject;    /* id of what is changed */
    const char *actor;      /* id of the acting key; or "server", "uid 0" */
    const char *owner;      /* whose key it is; empty: the default owner */
    const char *peer;       /* address of the client */
    const char *request_id; /* as in the log */
    const char *outcome;    /* NULL: it is about to be made, or was made */
    const char *detail;     /* one sentence */
};

/* Adds an entry, durably. */
enum err audit_add(const char *state_dir, const struct audit_entry *entry,
                   struct error *error) MUST_CHECK;

/* Takes the JSON of one entry, newest first; false ends the walk. */
typedef bool (*audit_fn)(void *context, struct str line);
/* Calls `take` for the entries of a directory. No entry was ever added: none, and OK. */
enum err audit_each(const char *state_dir, audit_fn take, void *context,
                    struct error *error) MUST_CHECK;
