/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_writer: the one thread that appends records to all logs.
 *
 * It appends the queued records, syncs when 256 KiB wait or 10 ms have passed, and only then
 * reports them as durable. So many small records share one sync.
 *
 * It gives the beats of the process to a service manager (base/service.h): a server whose results
 * no longer reach the disk is started again.
 *
 * Thread: seglog_put from any; open and close from one; it has a thread of its own.
 * Memory: at most about 64 MiB of queued records.
 * Invariant: a record is reported once, after its sync. */

#include "store/seglog.h"

struct seglog_writer;

/* A record that has become durable. A duplicate is reported too: its line has a durable record. */
struct seglog_done {
    uint64_t cookie; /* the one given to seglog_put */
};

/* Called on the writer thread after every group. */
typedef void (*seglog_done_fn)(void *context, const struct seglog_done *done, size_t count);

enum err seglog_writer_open(struct seglog_writer **ret_writer, struct store *store,
                            seglog_done_fn done, void *context, struct error *error) MUST_CHECK;
/* Writes the queued records first. While the disk is full they are given up, and their lines run
 * again. NULL is allowed. */
void seglog_writer_close(struct seglog_writer *writer);
/* Queues a copy of the record. Waits only while 64 MiB are queued. */
void seglog_put(struct seglog_writer *writer, struct seglog *log,
                const struct seglog_record *record, uint64_t cookie);
/* Bytes that are queued and not yet durable. */
uint64_t seglog_writer_backlog_bytes(struct seglog_writer *writer);
