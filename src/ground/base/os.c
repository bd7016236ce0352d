/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"

#include "base/mem.h"
#include "base/os_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Names of the calls in a plan, in the order of enum call. */
enum call {
    CALL_OPEN,
    CALL_READ,
    CALL_PREAD,
    CALL_WRITE,
    CALL_PWRITE,
    CALL_FSYNC,
    CALL_FDATASYNC,
    CALL_FALLOCATE,
    CALL_FTRUNCATE,
    CALL_RENAME,
    CALL_UNLINK,
    CALL_ANY, /* counts all of the above */
    CALL_COUNT
};
static const char *const call_names[CALL_COUNT] = {"open",      "read",   "pread",     "write",
                                                   "pwrite",    "fsync",  "fdatasync", "fallocate",
                                                   "ftruncate", "rename", "unlink",    "any"};

/* Two faults of a plan that are no errno. */
#define FAULT_KILL (-1) /* the process dies before the call */
#define FAULT_TEAR (-2) /* the process dies after half of a write */

struct fault {
    long long at; /* the call that fails, counted from 1; 0 for none */
    int errno_value;
    bool always;
    atomic_llong calls;
};
static struct fault faults[CALL_COUNT];

/* The fault that the plan has for this call; 0 for none. */
static int fault_due(enum call call) {
    struct fault *fault = &faults[call];
    if (fault->at == 0) return 0;
    long long now = atomic_fetch_add(&fault->calls, 1) + 1;
    if (now != fault->at && !(fault->always && now > fault->at)) return 0;
    return fault->errno_value;
}

/* True, with errno set, if the plan lets this call fail. */
static bool fault_is_due(enum call call) {
    int due = fault_due(CALL_ANY);
    if (due == 0) due = fault_due(call);
    if (due == 0) return false;
    if (due < 0) raise(SIGKILL);
    errno = due;
    return true;
}

/* As fault_is_due, for a write, which a plan can tear as well. */
static bool write_fault_is_due(enum call call, int fd, const void *bytes, size_t count,
                               int64_t offset) {
    int due = fault_due(CALL_ANY);
    if (due == 0) due = fault_due(call);
    if (due == 0) return false;
    if (due == FAULT_TEAR) {
        ssize_t put =
            offset < 0 ? write(fd, bytes, count / 2) : pwrite(fd, bytes, count / 2, (off_t)offset);
        (void)put;
    }
    if (due < 0) raise(SIGKILL);
    errno = due;
    return true;
}

static int errno_by_name(const char *name) {
    static const struct {
        const char *name;
        int value;
    } known[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC},   {"EDQUOT", EDQUOT},  {"EINTR", EINTR},
                 {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE},   {"ENFILE", ENFILE},  {"ENOMEM", ENOMEM},
                 {"EROFS", EROFS},   {"KILL", FAULT_KILL}, {"TEAR", FAULT_TEAR}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].value;
    return 0;
}

enum err os_fault_plan(const char *plan, struct error *error) {
    while (*plan) {
        char call[16], name[16], mode[8] = "";
        long long at;
        int used = 0;
        if (sscanf(plan, "%15[a-z]:%lld:%15[A-Z]%n", call, &at, name, &used) != 3 || at < 1)
            return err_set(error, ERR_INVALID, "fault plan: '%s' is not CALL:N:ERRNO[:always]",
                           plan);
        plan += used;
        if (sscanf(plan, ":%7[a-z]%n", mode, &used) == 1) plan += used;
        if (*plan == ',') plan++;
        int found = -1;
        for (int i = 0; i < CALL_COUNT; i++)
            if (strcmp(call, call_names[i]) == 0) found = i;
        if (found < 0 || errno_by_name(name) == 0 || (*mode && strcmp(mode, "always") != 0))
            return err_set(error, ERR_INVALID, "fault plan: '%s:%lld:%s' names nothing known", call,
                           at, name);
        faults[found].at = at;
        faults[found].errno_value = errno_by_name(name);
        faults[found].always = *mode != '\0';
    }
    return OK;
}

enum err os_open_at(int *ret_fd, int dir_fd, const char *path, int flags, mode_t mode,
                    struct error *error) {
    int fd;
    bool waits = (flags & (O_ACCMODE | O_NONBLOCK | O_DIRECTORY)) == O_RDONLY &&
                 os_pipe_may_wait(dir_fd, path);
    if (waits) flags |= O_NONBLOCK;
    do fd = fault_is_due(CALL_OPEN) ? -1 : openat(dir_fd, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW))
        return err_set(error, ERR_INVALID, "%s is a link, which quern does not follow here", path);
    if (fd < 0) return err_from_errno(error, errno, "cannot open %s", path);
    enum err err = waits ? os_pipe_wait(fd, error) : OK;
    if (err == OK)
        *ret_fd = fd;
    else
        os_close(fd);
    return err;
}

enum err os_open(int *ret_fd, const char *path, int flags, mode_t mode, struct error *error) {
    return os_open_at(ret_fd, AT_FDCWD, path, flags, mode, error);
}

static enum err unlink_at(int dir_fd, const char *path, struct error *error) {
    if ((fault_is_due(CALL_UNLINK) || unlinkat(dir_fd, path, 0) != 0) && errno != ENOENT)
        return err_from_errno(error, errno, "cannot remove %s", path);
    return OK;
}

enum err os_create_at(int *ret_fd, int dir_fd, const char *name, mode_t mode, struct error *error) {
    enum err err = unlink_at(dir_fd, name, error);
    if (err != OK) return err;
    return os_open_at(ret_fd, dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode, error);
}

enum err os_create(int *ret_fd, const char *path, mode_t mode, struct error *error) {
    return os_create_at(ret_fd, AT_FDCWD, path, mode, error);
}

void os_close(int fd) {
    if (fd >= 0) close(fd);
}

enum err os_read(int fd, void *ret_bytes, size_t count, size_t *ret_count, struct error *error) {
    ssize_t got;
    enum err err = OK;
    for (;;) {
        got = fault_is_due(CALL_READ) ? -1 : read(fd, ret_bytes, count);
        if (got < 0 && errno == EINTR)
            err = os_pipe_interrupted(fd, error);
        else if (got < 0 && errno == EAGAIN)
            err = os_pipe_wait(fd, error);
        else
            break;
        if (err != OK) return err;
    }
    if (got < 0) return err_from_errno(error, errno, "cannot read");
    *ret_count = (size_t)got;
    return OK;
}

enum err os_pread_all(int fd, void *ret_bytes, size_t count, uint64_t offset, struct error *error) {
    char *at = ret_bytes;
    while (count > 0) {
        ssize_t got = fault_is_due(CALL_PREAD) ? -1 : pread(fd, at, count, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_from_errno(error, errno, "cannot read");
        if (got == 0)
            return err_set(error, ERR_CORRUPT, "the file ends %zu bytes early, at offset %llu",
                           count, (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return OK;
}

enum err os_write_all(int fd, const void *bytes, size_t count, struct error *error) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t put = write_fault_is_due(CALL_WRITE, fd, at, count, -1) ? -1 : write(fd, at, count);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_from_errno(error, errno, "cannot write");
        at += put;
        count -= (size_t)put;
    }
    return OK;
}

enum err os_pwrite_all(int fd, const void *bytes, size_t count, uint64_t offset,
                       struct error *error) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t put = write_fault_is_due(CALL_PWRITE, fd, at, count, (int64_t)offset)
                          ? -1
                          : pwrite(fd, at, count, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_from_errno(error, errno, "cannot write");
        at += put;
        offset += (uint64_t)put;
        count -= (size_t)put;
    }
    return OK;
}

/* Want of memory is no excuse: the pages may be gone. */
static enum err sync_failed(struct error *error) {
    enum err err = err_from_errno(error, errno, "cannot sync");
    if (err != ERR_EXHAUSTED) return err;
    if (error) error->code = ERR_IO;
    return ERR_IO;
}

enum err os_fsync(int fd, struct error *error) {
    if (fault_is_due(CALL_FSYNC) || fsync(fd) != 0) return sync_failed(error);
    return OK;
}

enum err os_fdatasync(int fd, struct error *error) {
    if (fault_is_due(CALL_FDATASYNC) || fdatasync(fd) != 0) return sync_failed(error);
    return OK;
}

enum err os_open_dir(int *ret_fd, const char *path, struct error *error) {
    return os_open(ret_fd, path, O_RDONLY | O_DIRECTORY, 0, error);
}

static enum err sync_and_close(enum err opened, int fd, struct error *error) {
    if (opened != OK) return opened;
    enum err err = os_fsync(fd, error);
    os_close(fd);
    return err;
}

enum err os_fsync_dir(const char *path, struct error *error) {
    int fd = -1;
    enum err err = os_open_dir(&fd, path, error);
    return sync_and_close(err, fd, error);
}

enum err os_open_parent(int *ret_fd, const char *file, struct error *error) {
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (!slash || slash == file) return os_open_dir(ret_fd, slash ? "/" : ".", error);
    if ((size_t)(slash - file) >= sizeof folder)
        return err_set(error, ERR_INVALID, "cannot open the folder of a %zu-byte name",
                       strlen(file));
    memcpy(folder, file, (size_t)(slash - file));
    folder[slash - file] = '\0';
    return os_open_dir(ret_fd, folder, error);
}

enum err os_fsync_parent(const char *file, struct error *error) {
    int fd = -1;
    enum err err = os_open_parent(&fd, file, error);
    return sync_and_close(err, fd, error);
}

enum err os_fallocate(int fd, uint64_t offset, uint64_t bytes, struct error *error) {
    int failed;
    do
        failed =
            fault_is_due(CALL_FALLOCATE) ? errno : posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    while (failed == EINTR);
    if (failed != 0)
        return err_from_errno(error, failed, "cannot reserve %llu bytes",
                              (unsigned long long)bytes);
    return OK;
}

enum err os_ftruncate(int fd, uint64_t bytes, struct error *error) {
    int failed;
    do failed = fault_is_due(CALL_FTRUNCATE) ? -1 : ftruncate(fd, (off_t)bytes);
    while (failed != 0 && errno == EINTR);
    if (failed != 0)
        return err_from_errno(error, errno, "cannot cut to %llu bytes", (unsigned long long)bytes);
    return OK;
}

enum err os_rename_at(int dir_fd, const char *from, const char *to, struct error *error) {
    if (fault_is_due(CALL_RENAME) || renameat(dir_fd, from, dir_fd, to) != 0)
        return err_from_errno(error, errno, "cannot rename %s to %s", from, to);
    return OK;
}

enum err os_rename(const char *from, const char *to, struct error *error) {
    return os_rename_at(AT_FDCWD, from, to, error);
}

DIR *os_opendir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) os_close(fd);
    return folder;
}

enum err os_link(const char *from, const char *to, struct error *error) {
    if (!fault_is_due(CALL_RENAME) && link(from, to) == 0) return OK;
    if (errno == EEXIST) return err_set(error, ERR_CONFLICT, "%s exists", to);
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
        return err_set(error, ERR_DENIED, "cannot link %s to %s: %s", from, to, strerror(errno));
    return err_from_errno(error, errno, "cannot link %s to %s", from, to);
}

enum err os_unlink(const char *path, struct error *error) {
    return unlink_at(AT_FDCWD, path, error);
}

static enum err make_dirs(const char *path, mode_t mode, struct error *error) {
    char part[PATH_MAX];
    size_t bytes = strlen(path);
    if (bytes == 0 || bytes >= sizeof part)
        return err_set(error, ERR_INVALID, "cannot make a directory of a %zu-byte name", bytes);
    for (size_t i = 1; i <= bytes; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST)
            return err_from_errno(error, errno, "cannot make directory %s", part);
    }
    return OK;
}

enum err os_mkdirs(const char *path, struct error *error) {
    return make_dirs(path, 0700, error);
}

enum err os_mkdirs_shared(const char *path, struct error *error) {
    return make_dirs(path, 0777, error);
}

/* Makes one folder, and its name durable; of the last one also if it exists. */
static enum err make_durable(const char *path, bool is_last, struct error *error) {
    int fd = -1;
    bool is_new = access(path, F_OK) != 0;
    enum err err = is_new ? make_dirs(path, 0700, error) : OK;
    if (err != OK || (!is_new && !is_last)) return err;
    err = os_open_parent(&fd, path, error);
    if (err != OK && errno == EACCES && !is_new) return OK;
    return sync_and_close(err, fd, error);
}

enum err os_mkdirs_durable(const char *path, struct error *error) {
    char part[PATH_MAX];
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    if (bytes == 0 || bytes >= sizeof part) return make_dirs(path, 0700, error);
    for (size_t i = 1; i <= bytes; i++) {
        if ((i < bytes && path[i] != '/') || path[i - 1] == '/') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        enum err err = make_durable(part, i == bytes, error);
        if (err != OK) return err;
    }
    return OK;
}

uint64_t os_data_end(int fd, uint64_t bytes) {
    uint64_t end = 0;
    while (end < bytes) {
        off_t data = lseek(fd, (off_t)end, SEEK_DATA);
        if (data < 0) return errno == ENXIO ? end : bytes;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole <= data) return bytes;
        end = (uint64_t)hole;
    }
    return bytes;
}

enum err os_file_bytes(int fd, uint64_t *ret_bytes, struct error *error) {
    struct stat status;
    if (fstat(fd, &status) != 0) return err_from_errno(error, errno, "cannot stat");
    *ret_bytes = (uint64_t)status.st_size;
    return OK;
}

enum err os_free_bytes(const char *path, uint64_t *ret_bytes, struct error *error) {
    struct statvfs status;
    if (statvfs(path, &status) != 0) return err_from_errno(error, errno, "cannot stat %s", path);
    *ret_bytes = (uint64_t)status.f_bavail * status.f_frsize;
    return OK;
}

enum err os_read_opened(int fd, const char *path, size_t bytes_max, char **ret_bytes,
                        size_t *ret_count, struct error *error) {
    uint64_t bytes;
    char *whole = NULL;
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode))
        return os_pipe_read_all(fd, path, bytes_max, ret_bytes, ret_count, error);
    enum err err = os_file_bytes(fd, &bytes, error);
    if (err == OK && bytes > bytes_max)
        err = err_set(error, ERR_LIMIT, "%s has %llu bytes, over the limit of %zu", path,
                      (unsigned long long)bytes, bytes_max);
    if (err == OK) {
        whole = mem_alloc((size_t)bytes + 1);
        err = os_pread_all(fd, whole, (size_t)bytes, 0, error);
    }
    if (err != OK) {
        free(whole);
        return err;
    }
    whole[bytes] = '\0';
    *ret_bytes = whole;
    *ret_count = (size_t)bytes;
    return OK;
}

enum err os_read_file(const char *path, size_t bytes_max, char **ret_bytes, size_t *ret_count,
                      struct error *error) {
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    err = os_read_opened(fd, path, bytes_max, ret_bytes, ret_count, error);
    os_close(fd);
    return err;
}

void os_drop_mark(char *text, size_t *bytes) {
    if (*bytes < 3 || memcmp(text, "\xEF\xBB\xBF", 3) != 0) return;
    *bytes -= 3;
    memmove(text, text + 3, *bytes + 1);
}

enum err os_write_file(const char *path, mode_t mode, const void *bytes, size_t count,
                       struct error *error) {
    int fd;
    enum err err = os_create(&fd, path, mode, error);
    if (err != OK) return err;
    err = os_write_all(fd, bytes, count, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err;
}

uint64_t os_peak_rss_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

uint64_t os_rss_bytes(pid_t pid) {
    char path[40];
    unsigned long long all = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &all, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t os_processor_wait_ns(pid_t pid) {
    char path[320];
    uint64_t longest = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks) return 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        unsigned long long ran, waited;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, task->d_name);
        FILE *file = *task->d_name == '.' ? NULL : fopen(path, "re");
        if (!file) continue;
        if (fscanf(file, "%llu %llu", &ran, &waited) == 2 && waited > longest) longest = waited;
        fclose(file);
    }
    closedir(tasks);
    return longest;
}
