/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_fetch: fetches the missing files of a repository into its cache: several requests at a time,
 * each for a part of a file, tried again when they break, the sums checked while the bytes come.
 *
 * Whatever ends it, what came is kept and the next try goes on from there.
 *
 * Thread: main.  Memory: none kept. */

#include "hub/pull_api.h"
#include "hub/pull_store.h"

#define PULL_CONNECTIONS_MAX 32

struct pull_progress {
    uint64_t bytes, bytes_done; /* of the missing files; done in earlier calls, too */
    uint64_t bytes_fetched;     /* in this call, what came twice counted twice */
    uint32_t files, files_done;
    double seconds;
    const char *file; /* the first that is not all there; NULL: sums are being checked */
};

struct pull_fetch_options {
    const struct pull_source *source;
    const struct pull_store *store;
    const struct pull_file *const *files; /* (count), each digest once, all locked by the caller */
    size_t count;
    uint32_t connections;      /* 1..PULL_CONNECTIONS_MAX */
    const volatile bool *stop; /* NULL allowed */
    void *context;
    void (*progress)(void *context,
                     const struct pull_progress *progress); /* a few times a second */
    void (*note)(void *context, const char *sentence);      /* something that was overcome */
    void (*file_done)(void *context, size_t index);         /* the file is there */
};

/* ERR_CANCELLED: stopped. ERR_UNAVAILABLE: the hub, the network or the disk does not allow it now.
 * ERR_CORRUPT: a file came twice and its sum was never right. */
enum err pull_fetch(const struct pull_fetch_options *options, struct pull_progress *ret_progress,
                    struct error *error) MUST_CHECK;
