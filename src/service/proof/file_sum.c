/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/file_sum.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define NOTED_BYTES_MIN ((uint64_t)1 << 20) /* smaller files are read as quickly as their notes */
#define NOTE_BYTES_MAX ((size_t)256)
#define RECENT_NS ((int64_t)3000000000)

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    return S_ISSOCK(mode) ? "a socket" : "a device";
}

enum err file_facts_find(const char *path, struct file_facts *ret_facts, struct error *error) {
    struct stat status;
    if (stat(path, &status) != 0) {
        if (errno == ENOENT) return err_set(error, ERR_NOT_FOUND, "there is no such file");
        return err_from_errno(error, errno, "it cannot be read");
    }
    if (!S_ISREG(status.st_mode))
        return err_set(error, ERR_INVALID, "it is %s, and no file", kind_of(status.st_mode));
    *ret_facts = (struct file_facts){.bytes = (uint64_t)status.st_size,
                                     .changed_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 +
                                                   status.st_mtim.tv_nsec,
                                     .inode = status.st_ino};
    return OK;
}

bool file_facts_read(const char *path, struct file_facts *ret_facts) {
    struct error error;
    return file_facts_find(path, ret_facts, &error) == OK;
}

bool file_facts_are_same(const struct file_facts *a, const struct file_facts *b) {
    return a->bytes == b->bytes && a->changed_ns == b->changed_ns && a->inode == b->inode;
}

enum err file_sum(const char *path, char ret_hex[DIGEST_HEX_BYTES], const volatile bool *stop,
                  struct error *error) {
    struct digest digest;
    int fd;
    size_t count = 1;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    char *piece = mem_alloc(PIECE_BYTES);
    digest_begin(&digest, DIGEST_SHA256);
    while (err == OK && count > 0) {
        if (stop && *stop) {
            err = err_set(error, ERR_CANCELLED, "stopped");
            break;
        }
        err = os_read(fd, piece, PIECE_BYTES, &count, error);
        if (err == OK) digest_add(&digest, piece, count);
    }
    if (err == OK)
        digest_end_hex(&digest, ret_hex);
    else
        digest_release(&digest);
    free(piece);
    os_close(fd);
    return err;
}

/* --- notes --- */

/* Where a file's note is, and what it has before and behind the sum if it counts. */
struct note {
    char path[PATH_MAX];
    char key[DIGEST_HEX_BYTES]; /* the sum of the file's own path */
    char facts[96];
};

static bool name_note(const char *path, const struct file_facts *facts, struct note *ret_note) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char whole[PATH_MAX];
    struct digest digest;
    if (!realpath(path, whole)) return false;
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, whole, strlen(whole));
    digest_end_hex(&digest, ret_note->key);
    snprintf(ret_note->facts, sizeof ret_note->facts, " %" PRIu64 " %" PRId64 " %" PRIu64 "\n",
             facts->bytes, facts->changed_ns, facts->inode);
    bool has_cache = cache && *cache;
    if (!has_cache && !(home && *home)) return false;
    return snprintf(ret_note->path, PATH_MAX, "%s%s/quern/sums/%.3s", has_cache ? cache : home,
                    has_cache ? "" : "/.cache", ret_note->key) < PATH_MAX;
}

static bool is_sum(const char *text) {
    return strspn(text, "0123456789abcdef") == DIGEST_HEX_BYTES - 1;
}

static bool read_note(const struct note *note, char ret_hex[DIGEST_HEX_BYTES]) {
    char *text;
    size_t bytes;
    struct error ignored;
    if (os_read_file(note->path, NOTE_BYTES_MAX, &text, &bytes, &ignored) != OK) return false;
    bool counts = bytes > (size_t)2 * DIGEST_HEX_BYTES &&
                  strncmp(text, note->key, DIGEST_HEX_BYTES - 1) == 0 &&
                  text[DIGEST_HEX_BYTES - 1] == ' ' && is_sum(text + DIGEST_HEX_BYTES) &&
                  strcmp(text + 2 * DIGEST_HEX_BYTES - 1, note->facts) == 0;
    if (counts)
        snprintf(ret_hex, DIGEST_HEX_BYTES, "%.*s", DIGEST_HEX_BYTES - 1, text + DIGEST_HEX_BYTES);
    free(text);
    return counts;
}

/* Notes the sum; without a note the next run reads the file again. */
static void write_note(const struct note *note, const char *hex) {
    char made[PATH_MAX + 32], folder[PATH_MAX], text[NOTE_BYTES_MAX];
    struct error ignored;
    snprintf(folder, sizeof folder, "%s", note->path);
    *strrchr(folder, '/') = '\0';
    snprintf(made, sizeof made, "%s.%ld", note->path, (long)getpid());
    int bytes = snprintf(text, sizeof text, "%s %s%s", note->key, hex, note->facts);
    if (os_mkdirs(folder, &ignored) != OK) return;
    if (os_write_file(made, 0600, text, (size_t)bytes, &ignored) != OK ||
        os_rename(made, note->path, &ignored) != OK)
        (void)unlink(made);
}

enum err file_sum_noted(const char *path, char ret_hex[DIGEST_HEX_BYTES], const volatile bool *stop,
                        struct error *error) {
    struct file_facts before, after;
    struct note note;
    if (!file_facts_read(path, &before)) return file_sum(path, ret_hex, stop, error);
    bool has_name = before.bytes >= NOTED_BYTES_MIN && name_note(path, &before, &note);
    if (has_name && read_note(&note, ret_hex)) return OK;
    enum err err = file_sum(path, ret_hex, stop, error);
    if (err != OK || !has_name) return err;
    bool is_old = clock_unix_s() * 1000000000 - before.changed_ns > RECENT_NS;
    if (is_old && file_facts_read(path, &after) && file_facts_are_same(&before, &after))
        write_note(&note, ret_hex);
    return OK;
}
