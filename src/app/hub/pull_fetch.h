/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_fetch: fetches the missing files of a repository into its cache.
 *
 * Several requests run at once, each for a part of a file, and again after a break; a thread sums
 * the bytes while they come. Whatever ends a fetch, its bytes are kept, and the next fetch goes on
 * from there.
 *
 * Thread: main.
 * Memory: none kept. */

#include "hub/pull_api.h"
#include "hub/pull_store.h"

#define PULL_CONNECTIONS_MAX 32

struct pull_progress {
    uint64_t bytes, bytes_done; /* sizes of the missing files; earlier fetches count */
    uint64_t bytes_fetched;     /* came in this call; a byte that came twice counts twice */
    uint32_t files, files_done;
    double seconds;
    const char *file; /* the first unfinished file; NULL: only sums are being checked */
};

struct pull_fetch_options {
    const struct pull_source *source;
    const struct pull_store *store;
    const struct pull_file *const *files; /* (count); each digest once; the caller has locked all */
    size_t count;
    uint32_t connections;      /* 1..PULL_CONNECTIONS_MAX */
    const volatile bool *stop; /* NULL allowed */
    void *context;
    void (*progress)(void *context,
                     const struct pull_progress *progress); /* about five times per second */
    void (*note)(void *context, const char *sentence);      /* a trouble that passed */
    void (*file_done)(void *context, size_t index);         /* the file is in the cache */
};

/* ERR_CANCELLED: *stop became true. ERR_CORRUPT: a file came twice and its sum was wrong each time.
 * ERR_UNAVAILABLE and others: the hub, the network or the disk failed. */
enum err pull_fetch(const struct pull_fetch_options *options, struct pull_progress *ret_progress,
                    struct error *error) MUST_CHECK;
