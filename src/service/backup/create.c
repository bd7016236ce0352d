/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/create.h"

#include "backup/object.h"
#include "backup/open_files.h"
#include "backup/prune.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"
#include "keys/key_file.h"
#include "store/batches.h"
#include "store/segment_reader.h"
#include "store/snapshot.h"
#include "store/state_marks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define ATTEMPTS_MAX 100
#define MOVED_LINE_BYTES (PATH_MAX + 64)

struct take {
    const struct backup_options *options;
    struct backup_folder folder;
    struct snapshot *live;        /* the server's database */
    struct backup_manifest known; /* objects of the newest generation and of earlier attempts */
    struct backup_manifest taken;
    struct snapshot *copy; /* copy for this attempt */
    char *gone;            /* ids of files whose rows the copy loses, STORE_ID_BYTES each */
    size_t gone_count;
    size_t gone_capacity;
    struct open_files held;
    bool vanished; /* the server removed a file that the copy of the database names */
    struct backup_created result;
};

PRINTF_LIKE(2, 3)
static void damaged(struct take *take, const char *format, ...) {
    char sentence[ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    take->result.damaged++;
    if (take->options->report) take->options->report(take->options->context, sentence);
}

static enum err vanished(struct take *take, const char *path, struct error *error) {
    take->vanished = true;
    return err_set(error, ERR_UNAVAILABLE, "%s was removed while the backup was taken", path);
}

/* Takes an open file into the generation. */
static enum err take_bytes(struct take *take, const char *path, int fd, bool grows,
                           struct backup_object **ret_object, struct error *error) {
    const struct backup_object *known = backup_manifest_find(&take->known, path);
    struct backup_source source = {.fd = fd, .path = path, .stamp = backup_stamp(fd)};
    struct backup_object object;
    bool is_same = known && source.stamp && known->stamp == source.stamp;
    enum err err = OK;
    if (is_same)
        source.bytes = known->bytes;
    else if (grows)
        err = segment_measure(fd, &source.bytes, error);
    else
        err = os_file_bytes(fd, &source.bytes, error);
    if (ret_object) *ret_object = NULL;
    if (err != OK || (grows && source.bytes == 0)) return err;
    err = backup_object_take(&take->folder, &source, known, take->taken.generation, &object,
                             &take->result.copied_bytes, error);
    if (err != OK) return err;
    struct backup_object *added = backup_manifest_add(&take->taken, path);
    *added = object;
    if (ret_object) *ret_object = added;
    return OK;
}

/* --- logs of unfinished batches --- */

/* Takes the logs of the batches that have not ended in the copy of the database. */
static enum err take_logs(struct take *take, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < take->held.count && err == OK; i++) {
        const struct open_file *file = &take->held.files[i];
        bool unfinished = false;
        if (!str_starts_with(str_from(file->path), STR("batches/"))) continue;
        err = snapshot_is_unfinished(take->copy, file->batch_id, &unfinished, error);
        if (err == OK && unfinished)
            err = take_bytes(take, file->path, file->fd, file->grows, NULL, error);
    }
    return err;
}

/* --- all other files --- */

/* Takes a file that may be missing. */
static enum err take_if_there(struct take *take, const char *path, bool *ret_there,
                              struct error *error) {
    int fd;
    enum err err = backup_state_open(take->options->state_dir, path, &fd, error);
    *ret_there = err == OK;
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    err = take_bytes(take, path, fd, false, NULL, error);
    os_close(fd);
    return err;
}

/* Takes the order of results of an ended batch; there may be two for a moment (store/erased.h). */
static enum err take_order(void *context, const struct snapshot_batch *batch, struct error *error) {
    const struct take *take = context;
    char path[BACKUP_FILE_BYTES], name[BACKUP_PATH_BYTES];
    bool there;
    if (!batch->is_finished) return OK;
    int bytes = snprintf(path, sizeof path, "%s/batches/%s", take->options->state_dir, batch->id);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *entry; err == OK && (entry = readdir(dir));) {
        if (!store_order_is_name(str_from(entry->d_name))) continue;
        bytes = snprintf(name, sizeof name, "batches/%s/%s", batch->id, entry->d_name);
        if (bytes < (int)sizeof name) err = take_if_there(context, name, &there, error);
    }
    closedir(dir);
    return err;
}

/* The row has other bytes than the disk: those of an earlier generation are kept if they are
 * right. */
static void keep_good_bytes(struct take *take, const struct snapshot_file *file,
                            struct backup_object *object) {
    const struct backup_object *known = backup_manifest_find(&take->known, object->path);
    struct error ignored;
    if (known && memcmp(known->sha256, file->sha256, SHA256_BYTES) == 0 &&
        backup_object_read(&take->folder, known, -1, &ignored) == OK) {
        damaged(take,
                "%s: the state directory has lost its bytes (I1); the backup keeps those of "
                "generation %" PRIu64,
                object->path, known->generation);
        *object = *known;
    } else {
        damaged(take, "%s: its bytes are not what was stored (I1)", object->path);
    }
}

/* A file is missing. If the server has removed it, the copy of the database does so as well, unless
 * something else in the copy needs it. If the server has its row, the disk has lost it. */
static enum err miss_file(struct take *take, const struct snapshot_file *file, const char *path,
                          struct error *error) {
    bool exists = false, needed = file->is_part;
    enum err err = snapshot_file_exists(take->live, file, &exists, error);
    if (err == OK && exists) damaged(take, "%s: its bytes are gone from the disk (I1)", path);
    if (err == OK && !needed) err = snapshot_needs_input(take->copy, file->id, &needed, error);
    if (err != OK || exists) return err;
    if (needed) return vanished(take, path, error);
    take->gone = vec_grow(take->gone, take->gone_count, &take->gone_capacity, STORE_ID_BYTES);
    memcpy(take->gone + take->gone_count++ * STORE_ID_BYTES, file->id, STORE_ID_BYTES);
    return OK;
}

static enum err take_file(void *context, const struct snapshot_file *file, struct error *error) {
    struct take *take = context;
    struct backup_object *object = NULL;
    char path[BACKUP_PATH_BYTES];
    int fd;
    backup_file_path(file->id, file->is_part, path);
    enum err err = backup_state_open(take->options->state_dir, path, &fd, error);
    const struct open_file *held = err == ERR_NOT_FOUND ? open_files_find(&take->held, path) : NULL;
    if (err == ERR_NOT_FOUND && !held) return miss_file(take, file, path, error);
    if (err != OK && !held) return err;
    err = take_bytes(take, path, held ? held->fd : fd, false, &object, error);
    if (!held) os_close(fd);
    if (err == OK && object && memcmp(object->sha256, file->sha256, SHA256_BYTES) != 0)
        keep_good_bytes(take, file, object);
    return err;
}

/* Takes the keys and their mark. The mark is older than the first key, so that a mark without keys
 * may also be a key that is being made: the keys are looked for once more after it. */
static enum err take_keys(struct take *take, struct error *error) {
    bool has_mark = false, has_keys = false;
    enum err err = take_if_there(take, KEY_FILE_MARK, &has_mark, error);
    if (err == OK) err = take_if_there(take, KEY_FILE_NAME, &has_keys, error);
    for (int i = 0; err == OK && has_mark && !has_keys && i < 10; i++) {
        clock_sleep_ms(20);
        err = take_if_there(take, KEY_FILE_NAME, &has_keys, error);
    }
    return err;
}

/* --- the whole --- */

/* Checks the copy of the database, makes it durable and counts it among the objects. */
static enum err take_database(struct take *take, const char *file, struct error *error) {
    struct snapshot_summary summary = {0};
    struct backup_object object = {.path = "meta.db", .generation = take->taken.generation};
    struct snapshot *copy = NULL;
    int fd;
    enum err err = OK;
    if (take->gone_count) err = snapshot_forget_files(file, take->gone, take->gone_count, error);
    if (err == OK) err = snapshot_open(&copy, file, error);
    if (err == OK) err = snapshot_check(copy, error);
    if (err == OK) err = snapshot_summary(copy, &summary, error);
    snapshot_close(copy);
    if (err == OK) err = os_open(&fd, file, O_RDWR | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    err = os_fsync(fd, error);
    if (err == OK) err = os_file_bytes(fd, &object.bytes, error);
    os_close(fd);
    if (err == OK) err = os_fsync_parent(file, error);
    if (err == OK) err = sha256_file(file, object.sha256, error);
    if (err != OK) return err;
    *backup_manifest_add(&take->taken, object.path) = object;
    take->taken.schema = summary.schema;
    take->taken.batches = summary.batches;
    take->taken.unfinished = summary.unfinished;
    return OK;
}

static enum err attempt(struct take *take, struct error *error) {
    char file[BACKUP_FILE_BYTES];
    bool has_notes;
    take->vanished = false;
    take->result.attempts++;
    take->result.damaged = 0;
    take->taken.count = take->gone_count = 0;
    backup_object_file(&take->folder, "meta.db", take->taken.generation, file);
    enum err err = backup_make_parents(take->folder.dir, file, error);
    /* Open files stay when a batch ends and takes its log away. A batch that has not ended in the
     * copy of the database, which is younger, had all of its log when it was opened. */
    if (err == OK) err = open_files_open(&take->held, take->options->state_dir, take->live, error);
    if (err == OK) err = snapshot_take(take->live, file, error);
    if (err == OK) err = snapshot_open(&take->copy, file, error);
    if (err == OK) err = take_logs(take, error);
    if (err == OK) err = snapshot_each_file(take->copy, take_file, take, error);
    if (err == OK) err = snapshot_each_batch(take->copy, take_order, take, error);
    snapshot_close(take->copy);
    take->copy = NULL;
    open_files_close(&take->held);
    if (err == OK) err = take_database(take, file, error);
    /* A note is durable before the lines that it is about, so that it is younger than the copy. */
    if (err == OK) err = take_if_there(take, STORE_NOTES_NAME, &has_notes, error);
    return err == OK ? take_keys(take, error) : err;
}

/* What an attempt copied needs no copy in the next one. */
static void know_more(struct take *take) {
    for (size_t i = 0; i < take->taken.count; i++)
        *backup_manifest_add(&take->known, take->taken.objects[i].path) = take->taken.objects[i];
    backup_manifest_sort(&take->known);
}

static enum err take_generation(struct take *take, struct error *error) {
    enum err err;
    while ((err = attempt(take, error)) != OK) {
        if (!take->vanished || take->result.attempts >= ATTEMPTS_MAX) break;
        know_more(take);
    }
    if (err == OK) backup_manifest_sort(&take->taken);
    return err;
}

/* Logs are held open, and a batch has a segment per 64 MiB. */
static void raise_open_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return;
}

static bool is_inside(const char *dir, const char *other) {
    size_t bytes = strlen(other);
    return strncmp(dir, other, bytes) == 0 && (dir[bytes] == '/' || dir[bytes] == '\0');
}

/* The real path of a folder, or of the nearest one above it that exists. */
static bool real_folder(const char *dir, char ret_path[PATH_MAX]) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path) return false;
    while (!realpath(path, ret_path)) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT) return false;
        if (slash == path)
            path[1] = '\0';
        else if (slash)
            *slash = '\0';
        else
            snprintf(path, sizeof path, ".");
    }
    return true;
}

/* Refuses a backup folder within the state directory, and the reverse. */
static enum err check_apart(const struct backup_options *options, struct error *error) {
    char state[PATH_MAX], dir[PATH_MAX];
    struct stat status;
    if (!realpath(options->state_dir, state)) {
        if (errno != ENOENT)
            return err_from_errno(error, errno, "cannot look at %s", options->state_dir);
        return err_set(error, ERR_NOT_FOUND, "%s is not a state directory of quern",
                       options->state_dir);
    }
    if (!real_folder(options->dir, dir)) return OK; /* opening it tells why */
    bool exists = stat(options->dir, &status) == 0;
    if (!is_inside(dir, state) && !(exists && is_inside(state, dir))) return OK;
    return err_set(error, ERR_INVALID,
                   "the backup folder %s and the state directory %s are not apart: a disk that is "
                   "lost would take both",
                   options->dir, options->state_dir);
}

/* Loads what the newest generation knows. A manifest that cannot be read costs a full copy. */
static void load_known(struct take *take) {
    struct error error;
    if (take->folder.count == 0) return;
    uint64_t newest = take->folder.generations[take->folder.count - 1];
    if (backup_folder_load(&take->folder, newest, &take->known, &error) != OK) {
        if (take->options->report) take->options->report(take->options->context, error.text);
        take->known = (struct backup_manifest){0};
    }
}

/* Writes the line of the origin's mark. */
static void moved_line(const struct take *take, uint64_t generation,
                       char ret_line[MOVED_LINE_BYTES]) {
    char dir[PATH_MAX];
    if (!realpath(take->folder.dir, dir)) snprintf(dir, sizeof dir, "%s", take->folder.dir);
    snprintf(ret_line, MOVED_LINE_BYTES, "moved to %s, generation %" PRIu64, dir, generation);
}

/* Closes the state directory before the generation is complete: one that is marked as moved has an
 * origin that does not start. */
static enum err close_origin(struct take *take, struct error *error) {
    char line[MOVED_LINE_BYTES];
    moved_line(take, take->taken.generation, line);
    return state_mark_set(take->options->state_dir, STATE_MOVED, line, error);
}

/* Finds the generation of an earlier move of the directory into this folder. A second one could be
 * restored elsewhere. */
static bool find_move(const struct take *take, struct backup_manifest *ret_manifest) {
    char line[MOVED_LINE_BYTES] = "", *marked;
    struct error ignored;
    struct backup_manifest manifest = {0};
    uint64_t generation = 0;
    if (state_mark_read(take->options->state_dir, STATE_MOVED, &marked, &ignored) != OK)
        return false;
    const char *number = strrchr(marked, ' ');
    if (number && str_to_u64(str_from(number + 1), &generation)) moved_line(take, generation, line);
    bool is_here = strcmp(line, marked) == 0 &&
                   backup_folder_load(&take->folder, generation, &manifest, &ignored) == OK;
    free(marked);
    if (is_here && manifest.is_moved)
        *ret_manifest = manifest;
    else
        backup_manifest_release(&manifest);
    return is_here && manifest.is_moved;
}

static enum err run(struct take *take, struct error *error) {
    const struct backup_options *options = take->options;
    enum err err = backup_folder_open(&take->folder, options->dir, BACKUP_WRITE, error);
    if (err != OK) return err;
    if (options->move && find_move(take, &take->taken)) return OK;
    load_known(take);
    uint64_t newest = take->folder.count ? take->folder.generations[take->folder.count - 1] : 0;
    if (take->folder.unfinished > newest) newest = take->folder.unfinished;
    take->taken.generation = newest + 1;
    take->taken.is_moved = options->move;
    take->taken.begun_unix_s = clock_unix_s();
    snprintf(take->taken.version, sizeof take->taken.version, "%s", options->version);
    raise_open_files();
    /* The rest of a generation that did not end may be what filled the disk. */
    if (take->folder.unfinished) err = backup_prune(&take->folder, 0, &take->result.removed, error);
    if (err == OK) err = backup_folder_begin(&take->folder, take->taken.generation, error);
    if (err == OK) err = take_generation(take, error);
    if (err == OK && options->move) err = close_origin(take, error);
    take->taken.ended_unix_s = clock_unix_s();
    if (err == OK) err = backup_folder_commit(&take->folder, &take->taken, error);
    bool is_over = options->keep && take->folder.count > options->keep;
    if (err != OK || !(is_over || take->result.attempts > 1 || take->result.damaged)) return err;
    err = backup_prune(&take->folder, options->keep, &take->result.removed, error);
    return err == OK ? OK
                     : err_prefix(error,
                                  "generation %" PRIu64 " is complete, but not all of the "
                                  "old ones could be removed",
                                  take->taken.generation);
}

enum err backup_create(const struct backup_options *options, struct backup_created *ret_taken,
                       struct error *error) {
    struct take take = {.options = options, .folder = {.lock_fd = -1}};
    int lock_fd = -1;
    enum err err = check_apart(options, error);
    /* A plain backup of a directory whose batches went elsewhere would let them run twice. */
    if (err == OK && !options->move) err = state_marks_check(options->state_dir, error);
    if (err == OK && options->move) err = state_lock(options->state_dir, true, &lock_fd, error);
    if (err == OK) err = snapshot_open_live(&take.live, options->state_dir, error);
    if (err == OK) err = run(&take, error);
    snapshot_close(take.live);
    take.result.generation = take.taken.generation;
    take.result.batches = take.taken.batches;
    take.result.unfinished = take.taken.unfinished;
    take.result.files = take.taken.count;
    take.result.bytes = backup_manifest_bytes(&take.taken);
    backup_folder_close(&take.folder);
    backup_manifest_release(&take.known);
    backup_manifest_release(&take.taken);
    free(take.gone);
    os_close(lock_fd);
    if (err == OK) *ret_taken = take.result;
    return err;
}
