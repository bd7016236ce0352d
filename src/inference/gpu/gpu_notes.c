/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_notes.h"

#include "base/log.h"
#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)4 << 20) /* limit for a file: 1,024 choices of products are 0.2 MiB */
#define FILE_MODE 0600

/* The path of the notes, or of the file that will become them. */
static bool path_of(const struct gpu_table *table, const char *dir, const char *card_uuid,
                    const char *end, char ret_path[PATH_MAX]) {
    if (!dir || !card_uuid || !*card_uuid || strchr(card_uuid, '/')) return false;
    const int length = snprintf(ret_path, PATH_MAX, "%s/%s-%s%s", dir, table->kind, card_uuid, end);
    return length > 0 && length < PATH_MAX;
}

void gpu_notes_recall(const struct gpu_table *table, struct gpu *gpu, const char *dir,
                      const char *card_uuid) {
    char path[PATH_MAX], *notes = NULL;
    size_t bytes;
    struct error error = {0};
    if (!table->recall || !path_of(table, dir, card_uuid, ".notes", path)) return;
    const enum err err = os_read_file(path, BYTES_MAX, &notes, &bytes, &error);
    if (err == OK) table->recall(gpu, notes, bytes);
    if (err != OK && err != ERR_NOT_FOUND)
        log_warn("event=device_notes file=%s error=\"%s\"", path, error.text);
    free(notes);
}

/* A file of another name becomes the notes, so that nobody reads a part of them. */
static enum err write_file(const char *path, const char *next, const char *notes, size_t bytes,
                           struct error *error) {
    int fd = -1;
    enum err err = os_create(&fd, next, FILE_MODE, error);
    if (err == OK) err = os_write_all(fd, notes, bytes, error);
    os_close(fd);
    return err == OK ? os_rename(next, path, error) : err;
}

void gpu_notes_keep(const struct gpu_table *table, struct gpu *gpu, const char *dir,
                    const char *card_uuid) {
    char path[PATH_MAX], next[PATH_MAX];
    const char *notes;
    size_t bytes;
    struct error error = {0};
    if (!table->tell || !path_of(table, dir, card_uuid, ".notes", path) ||
        !path_of(table, dir, card_uuid, ".notes.tmp", next) || !table->tell(gpu, &notes, &bytes))
        return;
    if (write_file(path, next, notes, bytes, &error) != OK)
        log_warn("event=device_notes file=%s error=\"%s\"", path, error.text);
}
