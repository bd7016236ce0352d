/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* verify: whether the files of a model are still the bytes that were fetched.
 *
 * Each store gives a file's sum by a name: in the Hugging Face cache the name of the blob that a
 * snapshot's link leads to, in Ollama's store the name of the blob itself.
 *
 * Thread: main.
 * Memory: none kept. */

#include "base/err.h"
#include "hub/pull_sum.h"

struct verified {
    const char *path;
    char sum[PULL_SUM_BYTES];    /* the sum of the file as it is now */
    char wanted[PULL_SUM_BYTES]; /* the sum by its name; empty: the name gives none */
    bool is_good;
    enum err err;    /* not OK: the file cannot be read */
    const char *why; /* the sentence of `err` */
};

struct verify_options {
    const char *name; /* a name for --model, or of a repository in the cache */
    void *context;
    void (*file)(void *context, const struct verified *file);
    bool (*progress)(void *context, uint64_t bytes); /* NULL allowed; false ends it */
};

/* Calls `file` for each file of the model. ERR_CORRUPT: at least one was not good; ERR_CANCELLED:
 * `progress` returned false; the errors of catalog_choose: the name means no model. */
enum err verify_model(const struct verify_options *options, struct error *error) MUST_CHECK;
