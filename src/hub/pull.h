/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull: fetches a model from a Hugging Face hub into the cache that all of Hugging Face's tools
 * share, so that they find it and catalog.h does.
 *
 * Only the files the model needs; what is there already is not fetched; what a broken try left is
 * taken up. Two pulls of the same at once are safe: one waits for the other.
 *
 * Thread: main, before others start.  Memory: none kept. */

#include "hub/pull_fetch.h"
#include "protocol/names.h"

struct pull_options {
    const char *name;            /* ORG/NAME[:QUANTISATION], or a name of the tables */
    const char *revision;        /* a branch, a tag or a commit; NULL: main */
    const char *const *includes; /* patterns of files in the place of our choice */
    size_t include_count;
    uint32_t connections;      /* 0: 8 */
    const volatile bool *stop; /* NULL allowed */
    void *context;
    void (*progress)(void *context, const struct pull_progress *progress); /* NULL allowed */
    void (*note)(void *context, const char *sentence);                     /* NULL allowed */
};

struct pull_summary {
    char repository[MODEL_NAME_BYTES];
    char commit[PULL_COMMIT_BYTES];
    char folder[PATH_MAX]; /* of the snapshot */
    uint32_t files;
    uint64_t bytes;         /* of all its files */
    uint64_t bytes_there;   /* whole, before */
    uint64_t bytes_resumed; /* in unfinished files, before */
    uint64_t bytes_fetched;
    double seconds;
};

/* ERR_INVALID and ERR_NOT_FOUND: the name, the token or the choice is wrong, or the model is gated;
 * ERR_UNAVAILABLE, ERR_IO, ERR_CORRUPT: the network, the disk or the hub; ERR_CANCELLED: stopped.
 * Each with one sentence. */
enum err pull_run(const struct pull_options *options, struct pull_summary *ret_summary,
                  struct error *error) MUST_CHECK;
