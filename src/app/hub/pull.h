/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull: fetches a model from a Hugging Face hub into the cache that all of Hugging Face's tools
 * share, so that these tools and the catalog find it.
 *
 * It fetches only the files that the model needs and the cache lacks, and goes on with the
 * unfinished files of an earlier pull. Two pulls of one model at once are safe: one waits for the
 * other.
 *
 * Thread: main, before others start.
 * Memory: none kept. */

#include "hub/pull_fetch.h"
#include "protocol/names.h"

struct pull_options {
    const char *name;            /* ORG/NAME[:QUANTISATION], or a name in the tables of names */
    const char *revision;        /* a branch, a tag or a commit (default main) */
    const char *const *includes; /* patterns of paths, in place of pull_choose's own choice */
    size_t include_count;
    uint32_t connections;      /* requests at once (default 8) */
    const volatile bool *stop; /* NULL allowed */
    void *context;
    void (*progress)(void *context, const struct pull_progress *progress); /* NULL allowed */
    void (*note)(void *context, const char *sentence);                     /* NULL allowed */
};

struct pull_summary {
    char repository[MODEL_NAME_BYTES];
    char commit[PULL_COMMIT_BYTES];
    char folder[PATH_MAX]; /* the snapshot */
    uint32_t files;
    uint64_t bytes;         /* size of all files of the model */
    uint64_t bytes_there;   /* the part in files that were whole before */
    uint64_t bytes_resumed; /* the part in files that were unfinished before */
    uint64_t bytes_fetched;
    double seconds;
};

/* ERR_INVALID, ERR_NOT_FOUND: the name or the choice is wrong. ERR_DENIED: the token is wrong, or
 * the model is gated. ERR_UNAVAILABLE, ERR_IO, ERR_CORRUPT: the network, the disk or the hub
 * failed. ERR_CANCELLED: *stop became true. */
enum err pull_run(const struct pull_options *options, struct pull_summary *ret_summary,
                  struct error *error) MUST_CHECK;
