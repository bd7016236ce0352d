/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* verify: whether the files of a model are still the bytes that were fetched. A store tells a
 * file's sum by its name: the Hugging Face cache in what a snapshot's link leads to, Ollama's store
 * in the blob itself.
 *
 * Thread: main.  Memory: none kept. */

#include "base/err.h"
#include "hub/pull_sum.h"

struct verified {
    const char *path;
    char sum[PULL_SUM_BYTES];    /* of what is there */
    char wanted[PULL_SUM_BYTES]; /* empty: nobody has told one */
    bool is_good;
    enum err err; /* not OK: it cannot be read */
    const char *why;
};

struct verify_options {
    const char *name; /* as --model takes it, or the name of a repository in the cache */
    void *context;
    void (*file)(void *context, const struct verified *file);
    bool (*progress)(void *context, uint64_t bytes); /* NULL allowed; false ends it */
};

/* Tells each file of the model. ERR_NOT_FOUND when there is none; ERR_CORRUPT when one was not
 * good; ERR_CANCELLED. */
enum err verify_model(const struct verify_options *options, struct error *error) MUST_CHECK;
