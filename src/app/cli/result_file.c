/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/result_file.h"

#include "base/file_lock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/whole_file.h"
#include "server/offline_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MARK_NAME "user.quern.batch"
#define PENDING_BYTES ((size_t)1 << 20)
#define PIECE_BYTES 65536

static void write_sum(const struct result_wish *wish, char ret_sum[17]) {
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    sha256_init(&hash);
    sha256_add(&hash, wish->server, strlen(wish->server) + 1);
    sha256_add(&hash, wish->batch_id, strlen(wish->batch_id));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(ret_sum, 17, "%.16s", hex);
}

static bool has_mark(const char *path, const char *sum) {
    char mark[32];
    ssize_t bytes = getxattr(path, MARK_NAME, mark, sizeof mark);
    return bytes == (ssize_t)strlen(sum) && memcmp(mark, sum, (size_t)bytes) == 0;
}

enum err result_file_check(const struct result_wish *wish, bool *ret_is_finished,
                           struct error *error) {
    char sum[17];
    bool exists = false;
    *ret_is_finished = false;
    enum err err = whole_file_check(wish->path, &exists, error);
    if (err != OK || !exists) return err;
    write_sum(wish, sum);
    *ret_is_finished = !wish->overwrite && has_mark(wish->path, sum);
    if (wish->overwrite || *ret_is_finished) return OK;
    return err_set(error, ERR_CONFLICT,
                   "%s exists and is not known as the result of %.100s; name another file, or "
                   "--overwrite it",
                   wish->path, wish->batch_id);
}

/* The bytes up to the end of the last whole line. */
static enum err whole_bytes(int fd, uint64_t bytes, uint64_t *ret_bytes, struct error *error) {
    char piece[PIECE_BYTES];
    while (bytes > 0) {
        size_t count = bytes < sizeof piece ? (size_t)bytes : sizeof piece;
        enum err err = os_pread_all(fd, piece, count, bytes - count, error);
        if (err != OK) return err;
        const char *end = memrchr(piece, '\n', count);
        if (end) {
            *ret_bytes = bytes - count + (uint64_t)(end - piece) + 1;
            return OK;
        }
        bytes -= count;
    }
    *ret_bytes = 0;
    return OK;
}

/* Cuts the file behind the kept lines and goes there. */
static enum err cut(struct result_file *file, struct error *error) {
    enum err err = os_ftruncate(file->fd, file->kept_bytes, error);
    if (err == OK && lseek(file->fd, (off_t)file->kept_bytes, SEEK_SET) < 0)
        err = err_from_errno(error, errno, "cannot write %s", file->part);
    return err;
}

enum err result_file_restart(struct result_file *file, struct error *error) {
    file->kept_bytes = 0;
    return cut(file, error);
}

static enum err keep_lines(struct result_file *file, bool continues, struct error *error) {
    uint64_t bytes = 0;
    enum err err = file_lock(file->fd, file->part, false, error);
    if (err == ERR_CONFLICT) return err_set(error, err, "another quern writes %s", file->part);
    if (err == OK) err = os_file_bytes(file->fd, &bytes, error);
    if (err == OK && continues) err = whole_bytes(file->fd, bytes, &file->kept_bytes, error);
    return err == OK ? cut(file, error) : err;
}

enum err result_file_open(struct result_file *ret_file, const struct result_wish *wish,
                          bool continues, struct error *error) {
    struct result_file *file = ret_file;
    *file = (struct result_file){.path = wish->path, .fd = -1, .may_replace = wish->overwrite};
    buf_init(&file->pending, BUF_UNLIMITED);
    write_sum(wish, file->sum);
    int bytes = snprintf(file->part, sizeof file->part, "%s.%s.part", wish->path, file->sum);
    if (bytes >= (int)sizeof file->part)
        return err_set(error, ERR_INVALID, "the name of the output file is too long");
    enum err err = os_open(&file->fd, file->part, O_RDWR | O_CREAT | O_NOFOLLOW, 0666, error);
    if (err == OK) err = keep_lines(file, continues, error);
    if (err != OK) result_file_close(file, true);
    return err;
}

enum err result_file_place(const struct result_file *file, uint64_t output_bytes,
                           struct results_place *ret_place, struct error *error) {
    char last = '\n';
    uint64_t kept = file->kept_bytes;
    *ret_place =
        (struct results_place){.output_bytes = kept, .has_kept = true, .kept_fd = file->fd};
    if (kept < output_bytes || output_bytes == 0) {
        if (output_bytes == 0) {
            ret_place->output_bytes = 0;
            ret_place->error_bytes = kept;
        }
        return OK;
    }
    /* A last line without an LF has got one. */
    enum err err = os_pread_all(file->fd, &last, 1, output_bytes - 1, error);
    uint64_t passed = output_bytes + (last == '\n' ? 0 : 1);
    ret_place->output_bytes = output_bytes;
    ret_place->error_bytes = kept > passed ? kept - passed : 0;
    ret_place->error_at = passed;
    return err;
}

enum err result_file_flush(struct result_file *file, struct error *error) {
    if (file->pending.bytes == 0) return OK;
    enum err err = os_write_all(file->fd, file->pending.at, file->pending.bytes, error);
    buf_clear(&file->pending);
    return err == OK ? OK : err_prefix(error, "%s", file->part);
}

enum err result_file_take(void *context, struct str line, enum results_kind kind,
                          struct error *error) {
    struct result_file *file = context;
    (void)kind;
    buf_add_str(&file->pending, line);
    buf_add_byte(&file->pending, '\n');
    file->lines++;
    return file->pending.bytes < PENDING_BYTES ? OK : result_file_flush(file, error);
}

enum err result_file_finish(struct result_file *file, bool is_whole, struct error *error) {
    enum err err = result_file_flush(file, error);
    if (err == OK) err = os_fsync(file->fd, error);
    if (err != OK) return err;
    /* Where the file system has no attributes, a later call fetches the file anew. */
    if (is_whole) (void)fsetxattr(file->fd, MARK_NAME, file->sum, strlen(file->sum), 0);
    err = whole_file_place(file->part, file->path, file->may_replace, error);
    if (err == ERR_CONFLICT) return offline_output_came(file->path, error);
    return err == OK ? os_unlink(file->part, error) : err;
}

void result_file_close(struct result_file *file, bool keeps) {
    struct error ignored;
    if (file->fd >= 0 &&
        (keeps ? result_file_flush(file, &ignored) : os_unlink(file->part, &ignored)) != OK)
        log_warn("event=part_not_closed error=\"%s\"", ignored.text);
    os_close(file->fd);
    file->fd = -1;
    buf_release(&file->pending);
}
