/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/copy_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)64 << 20) /* keys have at most 16 MiB */

bool copy_is_small(const char *name) {
    return !strchr(name, '/') && entry_path_is_good(str_from(name));
}

static struct small_file *known_of(struct copy *copy, const char *name) {
    for (size_t i = 0; i < copy->small_count; i++)
        if (strcmp(copy->small[i].name, name) == 0) return &copy->small[i];
    if (copy->small_count == SMALL_FILES_MAX || strlen(name) >= sizeof copy->small->name)
        return NULL;
    struct small_file *known = &copy->small[copy->small_count++];
    snprintf(known->name, sizeof known->name, "%s", name);
    return known;
}

/* Tells the file, or what was appended to it since the last look. */
static enum err tell(struct copy *copy, const char *name, int fd, const struct small_file *was,
                     const struct small_file *now, struct error *error) {
    bool has_grown = was->inode == now->inode && was->bytes > 0 && now->bytes > was->bytes &&
                     strncmp(name, "audit", 5) == 0;
    uint64_t from = has_grown ? was->bytes : 0;
    size_t count = (size_t)(now->bytes - from);
    if (now->bytes > FILE_BYTES_MAX)
        return err_set(error, ERR_LIMIT, "%s has %llu bytes", name, (unsigned long long)now->bytes);
    char *text = mem_alloc(count + 1);
    enum err err = os_pread_all(fd, text, count, from, error);
    if (err == OK) {
        pthread_mutex_lock(&copy->lock);
        entry_add(&copy->gathered.records, has_grown ? ENTRY_WRITE : ENTRY_REPLACE, name, from,
                  (struct str){text, count});
        copy_note(copy, false);
        pthread_mutex_unlock(&copy->lock);
    }
    free(text);
    return err;
}

static enum err look(struct copy *copy, const char *name, struct error *error) {
    char file[PATH_MAX + 64];
    struct stat status;
    int fd;
    struct small_file *known = known_of(copy, name);
    if (!known) return OK;
    snprintf(file, sizeof file, "%s/%s", copy->state_dir, name);
    enum err err = os_open(&fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, error);
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        struct small_file now = *known;
        now.inode = status.st_ino;
        now.bytes = (uint64_t)status.st_size;
        now.changed_ns = status.st_mtim.tv_sec * INT64_C(1000000000) + status.st_mtim.tv_nsec;
        if (memcmp(&now, known, sizeof now) != 0) err = tell(copy, name, fd, known, &now, error);
        if (err == OK) *known = now;
    }
    os_close(fd);
    return err;
}

void copy_look_at_files(struct copy *copy) {
    struct error error;
    DIR *dir = os_opendir(copy->state_dir);
    if (!dir) return;
    pthread_mutex_lock(&copy->files_lock);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (copy_is_small(entry->d_name) && look(copy, entry->d_name, &error) != OK)
            log_warn("event=not_copied error=\"%s\"; it is tried again", error.text);
    pthread_mutex_unlock(&copy->files_lock);
    closedir(dir);
}
