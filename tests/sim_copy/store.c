/* SPDX-License-Identifier: Apache-2.0 */

/* The store of the simulated servers, in the place of store/: a database whose pages and rows the
 * ledger knows, segments, files and keys, told in the order that store/mirror.h promises. The state
 * directory is a real one, so that base.c, small.c and restore.c work as they are. */

#include "../rig/threads.h"

#include "base/mem.h"
#include "base/os.h"
#include "server.h"
#include "sim.h"
#include "storage.h"
#include "store/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAME_HEADER_BYTES 24u

static void write_at(const char *path, const void *bytes, size_t count, uint64_t at) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, bytes, count, (off_t)at) != (ssize_t)count) abort();
    close(fd);
}

static void make_folders(const char *path) {
    char parent[200];
    struct error error;
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = '\0';
    if (os_mkdirs(parent, &error) != OK) abort();
}

static const char *inside(const struct server *server, const char *path) {
    return path + strlen(server->dir) + 1;
}

/* --- the database --- */

static void put_be32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* Writes the pages that the transaction changed, and tells them. The lock is held. */
static void write_pages(struct server *server, const struct state *before) {
    unsigned char frames[LEDGER_PAGES_MAX * (FRAME_HEADER_BYTES + LEDGER_PAGE_BYTES)] = {0};
    const struct state *state = &server->state;
    char path[160], page[LEDGER_PAGE_BYTES];
    size_t bytes = 0, last = 0;
    snprintf(path, sizeof path, "%s/meta.db", server->dir);
    for (uint32_t i = 0; i < state->page_count; i++) {
        if (i > 0 && i < before->page_count && state->page_of[i] == before->page_of[i]) continue;
        ledger_page(state, i, page);
        write_at(path, page, sizeof page, i * LEDGER_PAGE_BYTES);
        last = bytes;
        put_be32(frames + bytes, i + 1);
        memcpy(frames + bytes + FRAME_HEADER_BYTES, page, sizeof page);
        bytes += FRAME_HEADER_BYTES + LEDGER_PAGE_BYTES;
    }
    put_be32(frames + last + 4, state->page_count);
    threads_may_switch(); /* SQLite has committed, and nothing is told yet */
    if (server->mirror)
        server->mirror->pages(server->mirror->context, LEDGER_PAGE_BYTES,
                              (struct str){(const char *)frames, bytes});
}

/* Adds a file: bytes, their copy, then the row. */
static bool place_file(struct server *server, uint32_t file) {
    static char bytes[LEDGER_LARGE_BYTES];
    char path[160];
    struct error error;
    ledger_file_path(server->dir, file, path);
    make_folders(path);
    uint32_t count = ledger_file(file, bytes);
    write_at(path, bytes, count, 0);
    if (chmod(path, 0400) != 0) abort();
    return server->mirror->placed(server->mirror->context, inside(server, path), &error) == OK;
}

static uint32_t draw_file(struct server *server, struct rng *rng) {
    bool is_large = sim->plan.has_large && rng_below(rng, 4) != 0;
    uint32_t number = (server->index * 100 + server->life) * 1000 + server->next_file++;
    return number * 2 + is_large;
}

uint32_t store_commit_simulated(struct server *server, struct rng *rng) {
    uint32_t fresh = 0, gone = 0;
    uint32_t most = sim->plan.has_large ? 2 : LEDGER_FILES_MAX; /* they go soon */
    if (rng_below(rng, sim->plan.has_large ? 2 : 4) == 0) {
        fresh = draw_file(server, rng);
        if (!place_file(server, fresh)) return 0;
    }
    pthread_mutex_lock(&server->lock);
    const struct state before = server->state;
    struct state *state = &server->state;
    if (fresh && state->file_count == most) {
        gone = state->files[0];
        memmove(state->files, state->files + 1, --state->file_count * sizeof *state->files);
        state->files[state->file_count] = 0;
    }
    if (fresh) state->files[state->file_count++] = fresh;
    ledger_commit(server->served, state);
    uint32_t commit = state->commit;
    write_pages(server, &before);
    pthread_mutex_unlock(&server->lock);
    char path[160];
    ledger_file_path(server->dir, gone, path);
    if (gone) unlink(path);
    return commit;
}

void store_open_simulated(struct server *server) {
    char path[160];
    snprintf(path, sizeof path, "%s/meta.db", server->dir);
    server->state = (struct state){0};
    ledger_segment_path(server->dir, 1, path);
    make_folders(path);
    server->served = ledger_serve(server->dir);
    snprintf(path, sizeof path, "%s/meta.db", server->dir);
    if (access(path, F_OK) == 0) {
        ledger_check(server->dir, 0, &server->state);
        return;
    }
    ledger_commit(server->served, &server->state);
    write_pages(server, &(struct state){0});
}

/* --- results and keys --- */

uint32_t store_append_simulated(struct server *server, struct rng *rng) {
    struct served *served = ledger_served(server->served);
    uint32_t segment_bytes = ledger_segment_bytes();
    uint32_t count = 8 + (uint32_t)rng_below(rng, LEDGER_LINE_BYTES);
    if (sim->plan.has_large) count *= 8;
    if (served->text_bytes > 200000) count = 8;
    uint32_t at = served->text_bytes % segment_bytes, index = served->text_bytes / segment_bytes;
    if (count > segment_bytes - at) count = segment_bytes - at;
    char *text = served->text + served->text_bytes;
    for (uint32_t i = 0; i < count; i++) text[i] = (char)('a' + rng_below(rng, 26));
    char path[160];
    ledger_segment_path(server->dir, index + 1, path);
    write_at(path, text, count, at);
    threads_may_switch();
    server->mirror->written(server->mirror->context, inside(server, path), at,
                            (struct str){text, count});
    served->text_bytes += count;
    return served->text_bytes;
}

uint32_t store_keys_simulated(struct server *server) {
    static uint32_t version;
    char path[160], fresh[160], text[32];
    int bytes = snprintf(text, sizeof text, "%u of %u\n", ++version, server->index);
    snprintf(path, sizeof path, "%s/keys.jsonl", server->dir);
    snprintf(fresh, sizeof fresh, "%s/keys.jsonl.new", server->dir);
    write_at(fresh, text, (size_t)bytes, 0);
    if (rename(fresh, path) != 0) abort();
    return version;
}

/* --- in the place of the store --- */

enum err __wrap_store_mirror_set(struct store *store, const struct store_mirror *mirror,
                                 struct error *error);
enum err __wrap_store_mirror_set(struct store *store, const struct store_mirror *mirror,
                                 struct error *error) {
    struct server *server = (struct server *)(void *)store;
    (void)error;
    pthread_mutex_lock(&server->lock);
    server->mirror = mirror;
    pthread_mutex_unlock(&server->lock);
    return OK;
}

enum err __wrap_store_database_settle(struct store *store, void (*at_rest)(void *context),
                                      void *context, struct error *error);
enum err __wrap_store_database_settle(struct store *store, void (*at_rest)(void *context),
                                      void *context, struct error *error) {
    struct server *server = (struct server *)(void *)store;
    (void)error;
    pthread_mutex_lock(&server->lock);
    at_rest(context);
    pthread_mutex_unlock(&server->lock);
    return OK;
}

/* A page at a time, so that what is read may be of several moments, between which clients go on. */
enum err __wrap_store_database_read(struct store *store, uint64_t at, size_t count,
                                    struct buf *ret_bytes, struct error *error);
enum err __wrap_store_database_read(struct store *store, uint64_t at, size_t count,
                                    struct buf *ret_bytes, struct error *error) {
    struct server *server = (struct server *)(void *)store;
    char path[160], page[LEDGER_PAGE_BYTES];
    (void)error;
    (void)count;
    snprintf(path, sizeof path, "%s/meta.db", server->dir);
    for (;; at += sizeof page) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) abort();
        ssize_t bytes = pread(fd, page, sizeof page, (off_t)at);
        close(fd);
        if (bytes <= 0) return OK;
        buf_add(ret_bytes, page, (size_t)bytes);
        threads_may_switch();
        if (sim->plan.read_ms) threads_sleep_ns(sim->plan.read_ms * 1000000);
    }
}

enum err __wrap_segment_measure(int fd, uint64_t *ret_bytes, struct error *error);
enum err __wrap_segment_measure(int fd, uint64_t *ret_bytes, struct error *error) {
    return os_file_bytes(fd, ret_bytes, error);
}

enum err __wrap_state_lock(const char *dir, bool read_only, int *ret_fd, struct error *error);
enum err __wrap_state_lock(const char *dir, bool read_only, int *ret_fd, struct error *error) {
    (void)read_only;
    return os_open_dir(ret_fd, dir, error);
}

int __wrap_syncfs(int fd);
int __wrap_syncfs(int fd) {
    (void)fd;
    return 0;
}

enum err __wrap_bucket_open(struct bucket **ret_bucket, const char *place,
                            const volatile bool *stop, struct error *error);
enum err __wrap_bucket_open(struct bucket **ret_bucket, const char *place,
                            const volatile bool *stop, struct error *error) {
    uint32_t group = threads_group();
    (void)place, (void)error;
    storage_connect(ret_bucket, group ? group - 1 : STORAGE_CLEAR, stop);
    return OK;
}

/* --- what a restore asks of the database --- */

struct snapshot {
    struct state state;
};

enum err __wrap_snapshot_open(struct snapshot **ret_snapshot, const char *path,
                              struct error *error);
enum err __wrap_snapshot_open(struct snapshot **ret_snapshot, const char *path,
                              struct error *error) {
    char page[LEDGER_PAGE_BYTES] = {0};
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = os_pread_all(fd, page, sizeof page, 0, error);
    os_close(fd);
    if (err != OK) return err;
    struct snapshot *snapshot = mem_new(1, sizeof *snapshot);
    memcpy(&snapshot->state, page + 24, sizeof snapshot->state);
    *ret_snapshot = snapshot;
    return OK;
}

enum err __wrap_snapshot_check(struct snapshot *snapshot, struct error *error);
enum err __wrap_snapshot_check(struct snapshot *snapshot, struct error *error) {
    if (snapshot->state.file_count <= LEDGER_FILES_MAX) return OK;
    return err_set(error, ERR_CORRUPT, "no database");
}

enum err __wrap_snapshot_summary(struct snapshot *snapshot, struct snapshot_summary *ret_summary,
                                 struct error *error);
enum err __wrap_snapshot_summary(struct snapshot *snapshot, struct snapshot_summary *ret_summary,
                                 struct error *error) {
    (void)snapshot, (void)error;
    *ret_summary = (struct snapshot_summary){.batches = 1};
    return OK;
}

enum err __wrap_snapshot_each_file(struct snapshot *snapshot, snapshot_file_fn each, void *context,
                                   struct error *error);
enum err __wrap_snapshot_each_file(struct snapshot *snapshot, snapshot_file_fn each, void *context,
                                   struct error *error) {
    enum err err = OK;
    for (uint32_t i = 0; err == OK && i < snapshot->state.file_count; i++) {
        char path[160];
        struct snapshot_file file = {0};
        ledger_file_path("", snapshot->state.files[i], path);
        snprintf(file.id, sizeof file.id, "%.50s", strrchr(path, '/') + 1);
        err = each(context, &file, error);
    }
    return err;
}

enum err __wrap_snapshot_each_batch(struct snapshot *snapshot, snapshot_batch_fn each,
                                    void *context, struct error *error);
enum err __wrap_snapshot_each_batch(struct snapshot *snapshot, snapshot_batch_fn each,
                                    void *context, struct error *error) {
    const struct snapshot_batch batch = {.id = "batch_1"};
    (void)snapshot;
    return each(context, &batch, error);
}

void __wrap_snapshot_close(struct snapshot *snapshot);
void __wrap_snapshot_close(struct snapshot *snapshot) {
    free(snapshot);
}
