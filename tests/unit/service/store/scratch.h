/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scratch: a state directory of its own for one test. */

#include "../../tree.h"
#include "base/os.h"
#include "store/batches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct scratch {
    char dir[64];
    struct store *store;
    struct error error;
};

static inline enum err scratch_reopen(struct scratch *scratch) {
    struct store_options options = {
        .dir = scratch->dir, .ballast_bytes = 1 << 16, .segment_bytes = 1 << 16};
    return store_open(&scratch->store, &options, &scratch->error);
}

static inline void scratch_open(struct scratch *scratch) {
    snprintf(scratch->dir, sizeof scratch->dir, "%s/quern-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(scratch->dir));
    assert_int_equal(scratch_reopen(scratch), OK);
}

static inline void scratch_remove(struct scratch *scratch) {
    store_close(scratch->store);
    tree_remove(scratch->dir);
}

/* A file with these bytes, created at `created`. */
static inline struct store_file scratch_put(struct scratch *scratch, const char *bytes,
                                            const char *purpose, int64_t created, int64_t expires) {
    struct store_spool *spool;
    struct store_file file = {.created_unix_s = created, .expires_unix_s = expires};
    snprintf(file.purpose, sizeof file.purpose, "%s", purpose);
    snprintf(file.filename, sizeof file.filename, "x.jsonl");
    assert_int_equal(store_spool_open(&spool, scratch->store, &scratch->error), OK);
    assert_int_equal(store_spool_write(spool, bytes, strlen(bytes), &scratch->error), OK);
    assert_int_equal(store_spool_commit(spool, &file, &scratch->error), OK);
    return file;
}
