/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/signing_key.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)16384)

static enum err check_mode(int fd, const char *path, struct error *error) {
    struct stat status;
    if (fstat(fd, &status) != 0) return err_from_errno(error, errno, "cannot look at %s", path);
    if (!S_ISREG(status.st_mode)) return err_set(error, ERR_INVALID, "%s is no file", path);
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return err_set(error, ERR_INVALID, "%s belongs to user %u, who could sign with it", path,
                       (unsigned)status.st_uid);
    if ((status.st_mode & 077) == 0) return OK;
    return err_set(error, ERR_INVALID,
                   "%s can be read by others than its owner (mode %03o); chmod 600 it", path,
                   (unsigned)(status.st_mode & 0777));
}

enum err signing_key_read(struct ssh_key *ret_key, const char *path, struct error *error) {
    char *text = NULL;
    size_t bytes = 0;
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    err = check_mode(fd, path, error);
    if (err == OK) err = os_read_opened(fd, path, FILE_BYTES_MAX, &text, &bytes, error);
    os_close(fd);
    if (err != OK) return err;
    err = ssh_key_read(ret_key, (struct str){text, bytes}, error);
    sodium_memzero(text, bytes);
    free(text);
    return err == OK ? OK : err_prefix(error, "%s", path);
}

static enum err make_folder(const char *path, struct error *error) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return OK;
    *slash = '\0';
    return os_mkdirs_durable(folder, error);
}

/* Makes a key under a name of this process and links it to its own, so that no reader sees a part
 * and no maker replaces the key of another one. */
static enum err make(const char *path, struct error *error) {
    char made[PATH_MAX + 32];
    struct ssh_key key;
    struct buf text;
    enum err err = make_folder(path, error);
    if (err != OK) return err;
    snprintf(made, sizeof made, "%s.%ld", path, (long)getpid());
    ssh_key_make(&key);
    buf_init(&text, FILE_BYTES_MAX);
    ssh_key_write(&text, &key);
    ssh_key_wipe(&key);
    err = os_write_file(made, 0600, text.at, text.bytes, error);
    sodium_memzero(text.at, text.bytes);
    buf_release(&text);
    if (err == OK) {
        err = os_link(made, path, error);
        if (err == ERR_DENIED) err = os_rename(made, path, error);
        if (err == ERR_CONFLICT) err = OK;
    }
    if (err == OK) err = os_fsync_parent(path, error);
    (void)unlink(made);
    return err;
}

enum err signing_key_get(struct ssh_key *ret_key, const char *path, struct error *error) {
    enum err err = signing_key_read(ret_key, path, error);
    if (err != ERR_NOT_FOUND) return err;
    err = make(path, error);
    return err == OK ? signing_key_read(ret_key, path, error) : err;
}
