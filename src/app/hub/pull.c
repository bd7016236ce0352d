/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/os.h"
#include "hub/catalog.h"
#include "hub/pull_choose.h"
#include "hub/pull_partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_DEFAULT 8
#define LOCK_POLL_MS 100
#define SPACE_LEFT_BYTES ((uint64_t)64 << 20) /* stays free, for other users of the disk */

struct missing {
    const struct pull_file *file;
    int lock; /* a descriptor; -1: not locked */
};

struct pull {
    const struct pull_options *options;
    struct pull_hub hub;
    struct pull_source source;
    struct pull_listing listing;
    struct pull_store store;
    struct missing *missing; /* (missing_count), each digest once */
    size_t missing_count;
    struct pull_summary summary;
};

static void note(const struct pull *pull, const char *sentence) {
    if (pull->options->note) pull->options->note(pull->options->context, sentence);
}

static bool is_stopped(const struct pull *pull) {
    return pull->options->stop && *pull->options->stop;
}

/* --- what is missing --- */

static int compare_digests(const void *a, const void *b) {
    const struct missing *left = a, *right = b;
    return strcmp(left->file->digest, right->file->digest);
}

/* Small files first, so that a refusal costs nothing. */
static int compare_sizes(const void *a, const void *b) {
    const struct pull_file *left = ((const struct missing *)a)->file;
    const struct pull_file *right = ((const struct missing *)b)->file;
    if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1;
    return strcmp(left->path, right->path);
}

/* Lists the missing files by digest: two pulls that lock files in the same order never wait for
 * each other in a circle. */
static void find_missing(struct pull *pull) {
    const struct pull_listing *listing = &pull->listing;
    struct missing *missing = calloc(listing->count + 1, sizeof *missing);
    size_t count = 0;
    if (!missing) no_memory();
    for (size_t i = 0; i < listing->count; i++) {
        const struct pull_file *file = &listing->files[i];
        if (!file->is_wanted) continue;
        pull->summary.files++;
        pull->summary.bytes += file->bytes;
        if (pull_store_has(&pull->store, file->digest, file->bytes))
            pull->summary.bytes_there += file->bytes;
        else
            missing[count++] = (struct missing){file, -1};
    }
    qsort(missing, count, sizeof *missing, compare_digests);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_digests(&missing[i], &missing[i - 1]) != 0)
            missing[pull->missing_count++] = missing[i];
    pull->missing = missing;
}

static void unlock(struct pull *pull, size_t index) {
    os_close(pull->missing[index].lock);
    pull->missing[index].lock = -1;
}

static enum err lock_one(struct pull *pull, struct missing *missing, bool *is_waiting,
                         struct error *error) {
    for (;;) {
        enum err err = pull_store_lock(&pull->store, missing->file->digest, &missing->lock, error);
        if (err != OK || missing->lock >= 0) return err;
        if (!*is_waiting) note(pull, "another program fetches files of this model; waiting for it");
        *is_waiting = true;
        if (is_stopped(pull)) return err_set(error, ERR_CANCELLED, "stopped");
        clock_sleep_ms(LOCK_POLL_MS);
    }
}

/* Locks the missing files and looks again: another program may have fetched some meanwhile. */
static enum err lock_missing(struct pull *pull, struct error *error) {
    bool is_waiting = false;
    size_t count = 0;
    for (size_t i = 0; i < pull->missing_count; i++) {
        enum err err = lock_one(pull, &pull->missing[i], &is_waiting, error);
        if (err != OK) return err;
    }
    for (size_t i = 0; i < pull->missing_count; i++) {
        const struct pull_file *file = pull->missing[i].file;
        char blob[PATH_MAX];
        enum err err = pull_store_blob_path(&pull->store, file->digest, blob, error);
        if (err != OK) return err;
        if (pull_store_has(&pull->store, file->digest, file->bytes)) {
            pull->summary.bytes_there += file->bytes;
            unlock(pull, i);
            continue;
        }
        pull->summary.bytes_resumed += pull_partial_left(blob, file->bytes);
        struct missing kept = pull->missing[i];
        pull->missing[i].lock = -1;
        pull->missing[count++] = kept;
    }
    pull->missing_count = count;
    qsort(pull->missing, count, sizeof *pull->missing, compare_sizes);
    return OK;
}

/* Whether the disk has room for the bytes that are still missing. */
static enum err check_space(const struct pull *pull, struct error *error) {
    uint64_t free_bytes, wanted = 0;
    for (size_t i = 0; i < pull->missing_count; i++) wanted += pull->missing[i].file->bytes;
    wanted -= pull->summary.bytes_resumed;
    if (wanted == 0) return OK;
    enum err err = os_free_bytes(pull->store.root, &free_bytes, error);
    if (err != OK) return err;
    if (free_bytes >= wanted && free_bytes - wanted >= SPACE_LEFT_BYTES) return OK;
    return err_set(error, ERR_UNAVAILABLE,
                   "%.250s has %.2f GB free, and %.2f GB are still to come; make room, or set "
                   "HF_HUB_CACHE to another disk",
                   pull->store.root, (double)free_bytes / 1e9, (double)wanted / 1e9);
}

/* --- the steps --- */

static enum err read_name(struct pull *pull, struct str *ret_quantisation, struct error *error) {
    const struct pull_options *options = pull->options;
    const char *revision = options->revision ? options->revision : "main";
    enum err err =
        catalog_repository(options->name, pull->summary.repository, ret_quantisation, error);
    if (err != OK) return err;
    if (!pull_is_repository(str_from(pull->summary.repository)))
        return err_set(error, ERR_INVALID, "'%.100s' is no name of a repository: ORG/NAME",
                       pull->summary.repository);
    if (!pull_is_revision(str_from(revision)))
        return err_set(error, ERR_INVALID, "--revision '%.100s' is no branch, tag or commit",
                       revision);
    pull->source.hub = &pull->hub;
    pull->source.repository = pull->summary.repository;
    pull->source.revision = revision;
    return OK;
}

static enum err plan(struct pull *pull, struct error *error) {
    const struct pull_options *options = pull->options;
    struct pull_wish wish = {.includes = options->includes,
                             .include_count = options->include_count};
    enum err err = read_name(pull, &wish.quantisation, error);
    if (err == OK && pull->hub.is_offline)
        err = err_set(error, ERR_UNAVAILABLE, "HF_HUB_OFFLINE is set: nothing is fetched");
    if (err == OK) err = pull_api_list(&pull->source, &pull->listing, options->stop, error);
    if (err != OK) return err;
    memcpy(pull->summary.commit, pull->source.commit, sizeof pull->summary.commit);
    err = pull_choose(&pull->listing, &wish, error);
    return err == OK ? OK : err_prefix(error, "%.150s", pull->summary.repository);
}

static void on_file_done(void *context, size_t index) {
    unlock(context, index);
}

static void on_note(void *context, const char *sentence) {
    note(context, sentence);
}

static void on_progress(void *context, const struct pull_progress *progress) {
    const struct pull *pull = context;
    if (pull->options->progress) pull->options->progress(pull->options->context, progress);
}

static enum err fetch(struct pull *pull, struct error *error) {
    uint32_t connections = pull->options->connections;
    struct pull_progress progress = {.bytes = 0};
    const struct pull_file **files = mem_new(pull->missing_count + 1, sizeof *files);
    for (size_t i = 0; i < pull->missing_count; i++) files[i] = pull->missing[i].file;
    const struct pull_fetch_options options = {.source = &pull->source,
                                               .store = &pull->store,
                                               .files = files,
                                               .count = pull->missing_count,
                                               .connections =
                                                   connections ? connections : CONNECTIONS_DEFAULT,
                                               .stop = pull->options->stop,
                                               .context = pull,
                                               .progress = on_progress,
                                               .note = on_note,
                                               .file_done = on_file_done};
    enum err err = pull_fetch(&options, &progress, error);
    pull->summary.bytes_fetched = progress.bytes_fetched;
    free(files);
    return err;
}

/* Makes the links, and last the reference: until then no reader sees the model. */
static enum err publish(struct pull *pull, struct error *error) {
    const char *commit = pull->source.commit;
    for (size_t i = 0; i < pull->listing.count; i++) {
        const struct pull_file *file = &pull->listing.files[i];
        if (!file->is_wanted) continue;
        enum err err = pull_store_link(&pull->store, commit, file->path, file->digest, error);
        if (err != OK) return err;
    }
    if (strcmp(pull->source.revision, commit) == 0) return OK;
    return pull_store_refer(&pull->store, pull->source.revision, commit, error);
}

static enum err run(struct pull *pull, struct error *error) {
    enum err err = plan(pull, error);
    if (err == OK)
        err = pull_store_open(&pull->store, pull->hub.cache, pull->summary.repository, error);
    if (err != OK) return err;
    find_missing(pull);
    err = pull_store_snapshot(&pull->store, pull->source.commit, pull->summary.folder, error);
    if (err != OK) return err;
    err = lock_missing(pull, error);
    if (err == OK) err = check_space(pull, error);
    if (err == OK && pull->missing_count > 0) err = fetch(pull, error);
    if (err == OK) err = publish(pull, error);
    return err;
}

enum err pull_run(const struct pull_options *options, struct pull_summary *ret_summary,
                  struct error *error) {
    int64_t start_ns = clock_monotonic_ns();
    struct pull *pull = mem_new(1, sizeof *pull);
    pull->options = options;
    pull_listing_init(&pull->listing);
    enum err err = pull_hub_read(&pull->hub, error);
    if (err == OK) err = run(pull, error);
    for (size_t i = 0; i < pull->missing_count; i++) unlock(pull, i);
    pull->summary.seconds = (double)(clock_monotonic_ns() - start_ns) / 1e9;
    *ret_summary = pull->summary;
    pull_hub_release(&pull->hub);
    pull_listing_release(&pull->listing);
    free(pull->missing);
    free(pull);
    return err;
}
