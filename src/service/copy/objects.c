/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

void copy_note_object(struct copy *copy, const char *path, uint64_t bytes,
                      const struct entry_object *at, uint64_t told_in) {
    uint64_t known;
    /* The base and the log after it may name the same object: a second row of it would be unseen by
     * the next base, which would remove it. */
    if (map_get(&copy->row_of, str_from(path), &known) &&
        copy->rows[known].at.leader == at->leader && copy->rows[known].at.serial == at->serial)
        return;
    copy->rows = vec_grow(copy->rows, copy->row_count, &copy->row_capacity, sizeof *copy->rows);
    struct object_row *row = &copy->rows[copy->row_count];
    *row = (struct object_row){.bytes = bytes, .at = *at, .told_in = told_in};
    snprintf(row->path, sizeof row->path, "%s", path);
    map_put(&copy->row_of, str_from(path), copy->row_count++);
}

/* Finds where the file lies already, and marks that as seen. */
static bool find(struct copy *copy, const char *path, uint64_t bytes, uint64_t told_in,
                 struct entry_object *ret_object) {
    uint64_t index;
    pthread_mutex_lock(&copy->lock);
    bool is_there =
        map_get(&copy->row_of, str_from(path), &index) && copy->rows[index].bytes == bytes;
    if (is_there) {
        copy->rows[index].is_seen = true;
        if (told_in) copy->rows[index].told_in = told_in;
        *ret_object = copy->rows[index].at;
    }
    pthread_mutex_unlock(&copy->lock);
    return is_there;
}

static enum err put_pieces(struct copy *copy, int fd, uint64_t bytes, int64_t until_ns,
                           struct entry_object *object, struct error *error) {
    char name[ENTRY_NAME_BYTES];
    struct sha256 hash;
    char *piece = mem_alloc(copy->piece_bytes);
    enum err err = OK;
    sha256_init(&hash);
    for (uint64_t at = 0, number = 1; err == OK && at < bytes; number++) {
        size_t count = bytes - at < copy->piece_bytes ? (size_t)(bytes - at) : copy->piece_bytes;
        err = os_pread_all(fd, piece, count, at, error);
        if (err != OK) break;
        sha256_add(&hash, piece, count);
        entry_piece_name(object, number, name);
        err = copy_put_piece(copy, name, (struct str){piece, count}, until_ns, error);
        at += count;
    }
    sha256_end(&hash, object->sha256);
    free(piece);
    return err;
}

/* Gives the object its serial, and keeps its pieces from a sweep until something names them. */
static void begin_object(struct copy *copy, struct entry_object *object) {
    pthread_mutex_lock(&copy->lock);
    object->serial = copy->serial++;
    copy->under_way = vec_grow(copy->under_way, copy->under_way_count, &copy->under_way_capacity,
                               sizeof *copy->under_way);
    copy->under_way[copy->under_way_count++] = object->serial;
    pthread_mutex_unlock(&copy->lock);
}

/* The lock is held. */
static void end_object(struct copy *copy, const struct entry_object *object) {
    size_t at = 0;
    while (copy->under_way[at] != object->serial) at++;
    copy->under_way[at] = copy->under_way[--copy->under_way_count];
}

enum err copy_object(struct copy *copy, const char *path, int fd, uint64_t bytes, uint64_t told_in,
                     int64_t until_ns, struct entry_object *ret_object, struct error *error) {
    if (find(copy, path, bytes, told_in, ret_object)) return OK;
    struct entry_object object = {.leader = copy->leader, .piece_bytes = copy->piece_bytes};
    begin_object(copy, &object);
    enum err err = put_pieces(copy, fd, bytes, until_ns, &object, error);
    pthread_mutex_lock(&copy->lock);
    end_object(copy, &object);
    if (err == OK) copy_note_object(copy, path, bytes, &object, told_in);
    pthread_mutex_unlock(&copy->lock);
    if (err == OK) *ret_object = object;
    return err;
}

static enum err tell_inline(struct copy *copy, const char *path, int fd, size_t bytes,
                            struct error *error) {
    char *text = mem_alloc(bytes + 1);
    enum err err = os_pread_all(fd, text, bytes, 0, error);
    if (err == OK) {
        pthread_mutex_lock(&copy->lock);
        entry_add(&copy->gathered.records, ENTRY_REPLACE, path, 0, (struct str){text, bytes});
        copy_note(copy, false);
        pthread_mutex_unlock(&copy->lock);
    }
    free(text);
    return err;
}

/* Notes which entry names the object: no base that needs this entry removes it, although the file
 * may be gone before the base sees it, or the base may have stored it a second time. The lock is
 * held. */
static void note_told(struct copy *copy, const struct entry_object *object) {
    for (size_t i = copy->row_count; i-- > 0;) {
        struct object_row *row = &copy->rows[i];
        if (row->at.leader != object->leader || row->at.serial != object->serial) continue;
        row->told_in = copy->next + (copy->is_sending ? 1 : 0);
        return;
    }
}

static enum err tell_object(struct copy *copy, const char *path, int fd, uint64_t bytes,
                            int64_t until_ns, struct error *error) {
    struct entry_object object;
    enum err err = copy_object(copy, path, fd, bytes, UINT64_MAX, until_ns, &object, error);
    if (err != OK) return err;
    pthread_mutex_lock(&copy->lock);
    note_told(copy, &object);
    entry_add_object(&copy->gathered.records, path, bytes, &object);
    copy_note(copy, false);
    pthread_mutex_unlock(&copy->lock);
    return OK;
}

enum err copy_file(struct copy *copy, const char *path, int64_t until_ns, struct error *error) {
    char file[PATH_MAX + ENTRY_PATH_BYTES];
    uint64_t bytes;
    int fd;
    snprintf(file, sizeof file, "%s/%s", copy->state_dir, path);
    enum err err = os_open(&fd, file, O_RDONLY | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    err = os_file_bytes(fd, &bytes, error);
    if (err == OK && bytes <= INLINE_BYTES)
        err = tell_inline(copy, path, fd, (size_t)bytes, error);
    else if (err == OK)
        err = tell_object(copy, path, fd, bytes, until_ns, error);
    os_close(fd);
    return err;
}
