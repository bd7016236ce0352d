/* SPDX-License-Identifier: Apache-2.0 */
#include "store/audit.h"

#include "base/buf.h"
#include "base/os.h"
#include "json/json.h"
#include "json/span.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY_BYTES_MAX ((size_t)16 << 10)
#define READ_BYTES_MAX ((size_t)2 << 20)
#define NAME_BYTES 32

/* The directory, held open for the reason of key_file.c. */
struct trail {
    int dir_fd, lock_fd, fd;
    uint64_t bytes; /* size of the newest file */
    uint64_t seq;   /* number of the newest entry; 0: none */
    bool is_torn;   /* the newest file does not end in a line end */
};

static void name_file(unsigned at, char ret_name[NAME_BYTES]) {
    if (at == 0)
        snprintf(ret_name, NAME_BYTES, "audit.jsonl");
    else
        snprintf(ret_name, NAME_BYTES, "audit.%u.jsonl", at);
}

static void close_trail(struct trail *trail) {
    os_close(trail->fd);
    os_close(trail->lock_fd);
    os_close(trail->dir_fd);
}

/* Gives what root has made to the owner of the directory: the server. */
static enum err give_away(const struct trail *trail, int fd, struct error *error) {
    struct stat status;
    if (geteuid() != 0 || fstat(trail->dir_fd, &status) != 0 || status.st_uid == 0) return OK;
    if (fchown(fd, status.st_uid, status.st_gid) == 0) return OK;
    return err_from_errno(error, errno,
                          "cannot give the audit trail to the owner of the directory");
}

static enum err open_own(struct trail *trail, const char *name, int *ret_fd, struct error *error) {
    struct stat status;
    enum err err = os_open_at(ret_fd, trail->dir_fd, name,
                              O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600, error);
    if (err != OK) return err;
    if (fstat(*ret_fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1)
        return err_set(error, ERR_INVALID, "%s is no plain file", name);
    return status.st_size == 0 ? give_away(trail, *ret_fd, error) : OK;
}

/* --- reading --- */

/* Reads a file of the trail; ERR_NOT_FOUND if it does not exist. The caller frees *ret_text. */
static enum err read_file(const char *state_dir, unsigned at, char **ret_text, size_t *ret_bytes,
                          struct error *error) {
    char path[PATH_MAX], name[NAME_BYTES];
    name_file(at, name);
    if (snprintf(path, sizeof path, "%s/%s", state_dir, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    return os_read_file(path, READ_BYTES_MAX, ret_text, ret_bytes, error);
}

/* The entry that ends before *end, which moves to its start; empty at the front. */
static struct str line_before(const char *text, size_t *end) {
    while (*end > 0) {
        size_t last = *end - (text[*end - 1] == '\n'), from = last;
        while (from > 0 && text[from - 1] != '\n') from--;
        struct str line = {text + from, last - from};
        bool is_whole = *end > last;
        *end = from;
        if (is_whole && line.bytes > 0 && json_span_read(line, NULL) && line.at[0] == '{')
            return line;
    }
    return (struct str){NULL, 0};
}

enum err audit_each(const char *state_dir, audit_fn take, void *context, struct error *error) {
    bool goes_on = true;
    for (unsigned at = 0; at < AUDIT_FILES && goes_on; at++) {
        char *text = NULL;
        size_t end = 0;
        struct str line;
        enum err err = read_file(state_dir, at, &text, &end, error);
        if (err == ERR_NOT_FOUND && at > 0) break;
        if (err != OK && err != ERR_NOT_FOUND) return err;
        while (err == OK && goes_on && (line = line_before(text, &end)).at)
            goes_on = take(context, line);
        free(text);
    }
    return OK;
}

/* --- adding --- */

static bool take_seq(void *context, struct str line) {
    uint64_t seq;
    if (!str_to_u64(json_span_get(line, "seq"), &seq)) return true;
    *(uint64_t *)context = seq;
    return false;
}

static enum err open_trail(const char *state_dir, struct trail *ret_trail, struct error *error) {
    struct trail trail = {-1, -1, -1, 0, 0, false};
    struct stat status;
    char last = '\n';
    enum err err = os_open(&trail.dir_fd, state_dir, O_RDONLY | O_DIRECTORY, 0, error);
    if (err == OK) err = open_own(&trail, "audit.lock", &trail.lock_fd, error);
    if (err == OK && flock(trail.lock_fd, LOCK_EX) != 0)
        err = err_from_errno(error, errno, "cannot lock %s/audit.lock", state_dir);
    if (err == OK) err = open_own(&trail, "audit.jsonl", &trail.fd, error);
    if (err == OK && fstat(trail.fd, &status) != 0)
        err = err_from_errno(error, errno, "cannot look at the audit trail");
    if (err == OK) {
        trail.bytes = (uint64_t)status.st_size;
        trail.is_torn = status.st_size > 0 && pread(trail.fd, &last, 1, status.st_size - 1) == 1 &&
                        last != '\n';
        err = audit_each(state_dir, take_seq, &trail.seq, error);
    }
    if (err == OK)
        *ret_trail = trail;
    else
        close_trail(&trail);
    return err;
}

/* Begins a new file, and lets the oldest go. A kill in between leaves a gap in the numbers of the
 * files, which the next turn closes. */
static enum err turn(struct trail *trail, struct error *error) {
    char from[NAME_BYTES], to[NAME_BYTES];
    enum err err = OK;
    for (unsigned at = AUDIT_FILES - 1; at > 0 && err == OK; at--) {
        name_file(at - 1, from);
        name_file(at, to);
        if (faccessat(trail->dir_fd, from, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            err = os_rename_at(trail->dir_fd, from, to, error);
    }
    os_close(trail->fd);
    trail->fd = -1;
    trail->is_torn = false;
    return err == OK ? open_own(trail, "audit.jsonl", &trail->fd, error) : err;
}

static void add_text(struct buf *line, const char *name, const char *text) {
    if (!text || !*text) return;
    buf_printf(line, ",\"%s\":", name);
    json_write_string(line, str_from(text));
}

static void write_entry(struct buf *line, uint64_t seq, const struct audit_entry *entry) {
    buf_printf(line, "{\"object\":\"audit_entry\",\"seq\":%" PRIu64 ",\"created_at\":%" PRId64, seq,
               entry->unix_s);
    add_text(line, "action", entry->action);
    add_text(line, "subject", entry->subject);
    add_text(line, "actor", entry->actor);
    add_text(line, "owner", entry->owner && *entry->owner ? entry->owner : "default");
    add_text(line, "peer", entry->peer);
    add_text(line, "request_id", entry->request_id);
    add_text(line, "outcome", entry->outcome);
    add_text(line, "detail", entry->detail);
    buf_add_text(line, "}\n");
}

enum err audit_add(const char *state_dir, const struct audit_entry *entry, struct error *error) {
    struct trail trail;
    struct buf line;
    enum err err = open_trail(state_dir, &trail, error);
    if (err != OK) return err;
    if (trail.bytes >= AUDIT_FILE_BYTES) err = turn(&trail, error);
    buf_init(&line, ENTRY_BYTES_MAX);
    if (trail.is_torn) buf_add_byte(&line, '\n');
    write_entry(&line, trail.seq + 1, entry);
    if (err == OK && line.overflowed)
        err = err_set(error, ERR_LIMIT, "an entry of the audit trail is too long");
    if (err == OK) err = os_write_all(trail.fd, line.at, line.bytes, error);
    if (err == OK) err = os_fsync(trail.fd, error);
    if (err == OK && (trail.bytes == 0 || trail.bytes >= AUDIT_FILE_BYTES))
        err = os_fsync(trail.dir_fd, error);
    buf_release(&line);
    close_trail(&trail);
    return err;
}
