/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ledger: each state that a server has committed, and what clients were told.
 *
 * A commit has a parent, so that two servers that both committed after the same state show as two
 * branches. A client that was told of a commit must find it below whatever anyone restores later.
 *
 * A state is small: a database of a few pages, the text of one batch's segments, files. What is in
 * each follows from its numbers, so that a state directory can be read and compared.
 *
 * Thread: the simulated ones, one at a time.
 * Memory: for the life of the process; nothing is freed. */

#include "plan.h"

#define LEDGER_PAGE_BYTES 512u
#define LEDGER_PAGES_MAX 12u
#define LEDGER_FILES_MAX 8u
#define LEDGER_SMALL_BYTES 700u
#define LEDGER_LARGE_BYTES 70000u
#define LEDGER_LINE_BYTES 512u /* one result has at most */

/* What the database says. */
struct state {
    uint32_t commit; /* 0: none */
    uint32_t text_bytes;
    uint32_t page_count, page_of[LEDGER_PAGES_MAX]; /* the commits that wrote the pages */
    uint32_t file_count, files[LEDGER_FILES_MAX];   /* odd numbers are large */
};

/* A process that serves, and the text of its segments. */
struct served {
    char *text;
    uint32_t text_bytes;
    uint32_t told_bytes; /* clients know so much of it */
};

/* The bytes of page `index` (from 0) in a state. */
void ledger_page(const struct state *state, uint32_t index, char ret_page[LEDGER_PAGE_BYTES]);
/* The bytes of a file. */
uint32_t ledger_file(uint32_t file, char ret_bytes[LEDGER_LARGE_BYTES]);
void ledger_file_path(const char *dir, uint32_t file, char ret_path[160]);
/* Segment `index` of the batch (from 1), which has up to ledger_segment_bytes() bytes. */
void ledger_segment_path(const char *dir, uint32_t index, char ret_path[160]);
uint32_t ledger_segment_bytes(void);

/* A process begins to serve with what its directory has; returns its number. */
uint32_t ledger_serve(const char *dir);
struct served *ledger_served(uint32_t number);
/* Makes *state the next commit of the process, which changes it as drawn. */
void ledger_commit(uint32_t served, struct state *state);
/* Clients were told of it. */
void ledger_tell(uint32_t commit);
void ledger_tell_text(uint32_t served, uint32_t bytes);
void ledger_tell_keys(uint32_t version);
/* When they were told of something for the last time. */
int64_t ledger_told_ns(void);
uint32_t ledger_commits(void);

/* Reads a state directory, and fails if it is none that a server has had, or if it lacks what
 * clients were told until `told_ns`. */
void ledger_check(const char *dir, int64_t told_ns, struct state *ret_state);
