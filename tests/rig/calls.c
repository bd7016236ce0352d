/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include "faults.h"
#include "sockets.h"
#include "threads.h"
#include "world.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OPENS_MAX 256
#define LISTINGS_MAX 8
#define PATH_BYTES 256

struct open_file {
    uint32_t inode; /* 0: the descriptor is free */
    uint64_t at;
    char path[PATH_BYTES];
};

/* An open folder, with the names that it had when it was opened. */
struct listing {
    bool is_open;
    int fd;
    uint32_t at, count;
    char (*names)[DISK_NAME_BYTES];
    struct dirent entry;
};

static struct open_file opens[OPENS_MAX];
static struct listing listings[LISTINGS_MAX];
static char listed[LISTINGS_MAX][DISK_NAMES][DISK_NAME_BYTES];

void calls_begin(void) {
    memset(opens, 0, sizeof opens);
    memset(listings, 0, sizeof listings);
}

unsigned calls_open(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < OPENS_MAX; i++) count += opens[i].inode != 0;
    return count;
}

static bool is_ours(const char *path) {
    return strncmp(path, RIG_ROOT, sizeof RIG_ROOT - 1) == 0 &&
           (path[sizeof RIG_ROOT - 1] == '/' || path[sizeof RIG_ROOT - 1] == '\0');
}

static struct open_file *file_of(int fd) {
    if (fd < CALLS_FIRST) return NULL;
    struct open_file *file = fd < CALLS_FIRST + OPENS_MAX ? &opens[fd - CALLS_FIRST] : NULL;
    if (!file || !file->inode) world_fail("a descriptor is used that is not open: %d", fd);
    return file;
}

/* 0, or -1 with errno set. */
static int answer(int failed) {
    if (failed == 0) return 0;
    errno = failed < 0 ? -failed : failed;
    return -1;
}

/* --- opening --- */

int __real_openat64(int folder, const char *path, int flags, mode_t mode);
int __wrap_openat64(int folder, const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);

static int open_inode(uint32_t inode, const char *path) {
    for (int i = 0; i < OPENS_MAX; i++) {
        if (opens[i].inode) continue;
        opens[i] = (struct open_file){.inode = inode};
        snprintf(opens[i].path, sizeof opens[i].path, "%s", path);
        world->disk.inodes[inode].opens++;
        return CALLS_FIRST + i;
    }
    return answer(EMFILE);
}

static int open_ours(const char *path, int flags, mode_t mode) {
    uint32_t inode = disk_find(&world->disk, path);
    if (inode && (flags & O_CREAT) && (flags & O_EXCL)) return answer(EEXIST);
    if (inode && (flags & O_DIRECTORY) && world->disk.inodes[inode].kind != DISK_FOLDER)
        return answer(ENOTDIR);
    if (!inode && !(flags & O_CREAT)) return answer(ENOENT);
    if (!inode) {
        int failed = faults_next("create", 0, path, 0, 0);
        if (failed) return answer(failed);
        int64_t made = disk_make(&world->disk, path, DISK_FILE, mode & 0777);
        if (made < 0) return answer((int)made);
        inode = (uint32_t)made;
    }
    faults_name(inode, path);
    return open_inode(inode, path);
}

/* A name below an open folder. */
static int open_below(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_BYTES];
    int bytes = snprintf(path, sizeof path, "%s/%s", file_of(folder)->path, name);
    if (bytes >= (int)sizeof path) return answer(ENAMETOOLONG);
    threads_may_switch();
    return open_ours(path, flags, mode);
}

int __wrap_openat64(int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (*path != '/' && folder >= CALLS_FIRST) return open_below(folder, path, flags, mode);
    if (!is_ours(path)) return __real_openat64(folder, path, flags, mode);
    threads_may_switch();
    return open_ours(path, flags, mode);
}

/* What openat becomes without a mode. */
int __wrap___openat64_2(int folder, const char *path, int flags);
int __wrap___openat64_2(int folder, const char *path, int flags) {
    return __wrap_openat64(folder, path, flags);
}

int __wrap_open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return __wrap_openat64(AT_FDCWD, path, flags, mode);
}

int __wrap_close(int fd) {
    struct open_file *file = file_of(fd);
    if (!file) {
        int failed = __real_close(fd);
        sockets_moved();
        return failed;
    }
    world->disk.inodes[file->inode].opens--;
    disk_drop(&world->disk, file->inode);
    file->inode = 0;
    return 0;
}

/* --- bytes --- */

ssize_t __real_read(int fd, void *ret_bytes, size_t count);
ssize_t __wrap_read(int fd, void *ret_bytes, size_t count);
ssize_t __real_pread64(int fd, void *ret_bytes, size_t count, off_t offset);
ssize_t __wrap_pread64(int fd, void *ret_bytes, size_t count, off_t offset);
ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t count, off_t offset);

ssize_t __wrap_pread64(int fd, void *ret_bytes, size_t count, off_t offset) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_pread64(fd, ret_bytes, count, offset);
    threads_may_switch();
    return disk_read(&world->disk, file->inode, ret_bytes, count, (uint64_t)offset);
}

ssize_t __wrap_read(int fd, void *ret_bytes, size_t count) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_read(fd, ret_bytes, count);
    ssize_t got = __wrap_pread64(fd, ret_bytes, count, (off_t)file->at);
    if (got > 0) file->at += (uint64_t)got;
    return got;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t count, off_t offset) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_pwrite64(fd, bytes, count, offset);
    threads_may_switch();
    size_t part = faults_tear(count);
    if (part < count) disk_write(&world->disk, file->inode, bytes, part, (uint64_t)offset);
    int failed = faults_next("write", file->inode, NULL, (uint64_t)offset, count);
    if (failed) return answer(failed);
    faults_touch(file->inode);
    ssize_t put = disk_write(&world->disk, file->inode, bytes, count, (uint64_t)offset);
    return put < 0 ? answer((int)put) : put;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t count) {
    struct open_file *file = file_of(fd);
    if (!file) {
        ssize_t written = __real_write(fd, bytes, count);
        sockets_moved();
        return written;
    }
    ssize_t put = __wrap_pwrite64(fd, bytes, count, (off_t)file->at);
    if (put > 0) file->at += (uint64_t)put;
    return put;
}

int __real_ftruncate64(int fd, off_t bytes);
int __wrap_ftruncate64(int fd, off_t bytes);
int __wrap_ftruncate64(int fd, off_t bytes) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_ftruncate64(fd, bytes);
    threads_may_switch();
    int failed = faults_next("truncate", file->inode, NULL, (uint64_t)bytes, 0);
    if (!failed) failed = disk_truncate(&world->disk, file->inode, (uint64_t)bytes);
    faults_touch(file->inode);
    return answer(failed);
}

int __real_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_posix_fallocate64(fd, offset, bytes);
    threads_may_switch();
    int failed = faults_next("fallocate", file->inode, NULL, (uint64_t)offset, (uint64_t)bytes);
    if (!failed)
        failed = disk_allocate(&world->disk, file->inode, (uint64_t)offset, (uint64_t)bytes);
    faults_touch(file->inode);
    return failed < 0 ? -failed : failed;
}

off_t __real_lseek64(int fd, off_t offset, int whence);
off_t __wrap_lseek64(int fd, off_t offset, int whence);
off_t __wrap_lseek64(int fd, off_t offset, int whence) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_lseek64(fd, offset, whence);
    assert(whence == SEEK_DATA || whence == SEEK_HOLE);
    uint64_t at = disk_seek(&world->disk, file->inode, (uint64_t)offset, whence == SEEK_DATA);
    return at == UINT64_MAX ? answer(ENXIO) : (off_t)at;
}

/* A mapping has the bytes of its moment: quern maps only files that no longer change. */
void *__real_mmap64(void *at, size_t count, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t count, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t count, int protection, int flags, int fd, off_t offset) {
    struct open_file *file = fd < 0 ? NULL : file_of(fd);
    if (!file) return __real_mmap64(at, count, protection, flags, fd, offset);
    assert(!(protection & PROT_WRITE));
    void *copy =
        __real_mmap64(NULL, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) disk_read(&world->disk, file->inode, copy, count, (uint64_t)offset);
    return copy;
}

/* --- syncs --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static int sync_file(struct open_file *file, bool with_mode) {
    threads_may_switch();
    int failed = faults_sync(with_mode ? "fsync" : "fdatasync", file->inode);
    if (!failed) disk_sync(&world->disk, file->inode, with_mode);
    threads_may_switch();
    return answer(failed);
}

int __wrap_fsync(int fd) {
    struct open_file *file = file_of(fd);
    return file ? sync_file(file, true) : __real_fsync(fd);
}

int __wrap_fdatasync(int fd) {
    struct open_file *file = file_of(fd);
    return file ? sync_file(file, false) : __real_fdatasync(fd);
}

/* --- names --- */

int __real_unlinkat(int folder, const char *path, int flags);
int __wrap_unlinkat(int folder, const char *path, int flags);
int __wrap_unlinkat(int folder, const char *path, int flags) {
    if (!is_ours(path)) return __real_unlinkat(folder, path, flags);
    threads_may_switch();
    if (!disk_find(&world->disk, path)) return answer(ENOENT);
    int failed = faults_next("unlink", 0, path, 0, 0);
    return answer(failed ? failed : disk_unlink(&world->disk, path));
}

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to) {
    if (!is_ours(from)) return __real_renameat(from_folder, from, to_folder, to);
    threads_may_switch();
    uint32_t inode = disk_find(&world->disk, from);
    int failed = faults_next("rename to", inode, to, 0, 0);
    return answer(failed ? failed : disk_rename(&world->disk, from, to));
}

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to) {
    if (!is_ours(from)) return __real_link(from, to);
    threads_may_switch();
    int failed = faults_next("link to", 0, to, 0, 0);
    return answer(failed ? failed : disk_link(&world->disk, from, to));
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode) {
    if (strcmp(path, RIG_ROOT) == 0) return answer(EEXIST);
    if (!is_ours(path)) return __real_mkdir(path, mode);
    threads_may_switch();
    if (disk_find(&world->disk, path)) return answer(EEXIST);
    int failed = faults_next("mkdir", 0, path, 0, 0);
    int64_t made = failed ? 0 : disk_make(&world->disk, path, DISK_FOLDER, mode);
    return answer(failed ? failed : made < 0 ? (int)made : 0);
}

int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __wrap_rmdir(const char *path) {
    if (!is_ours(path)) return __real_rmdir(path);
    threads_may_switch();
    int failed = faults_next("rmdir", 0, path, 0, 0);
    return answer(failed ? failed : disk_rmdir(&world->disk, path));
}

/* --- facts of files --- */

static struct timespec time_of(int64_t ns) {
    int64_t unix_ns = ns + UNIX_S * INT64_C(1000000000);
    return (struct timespec){unix_ns / 1000000000, unix_ns % 1000000000};
}

static void write_facts(uint32_t at, struct stat *ret_facts) {
    const struct disk_inode *inode = &world->disk.inodes[at];
    *ret_facts = (struct stat){
        .st_dev = 1,
        .st_ino = at,
        .st_mtim = time_of(inode->changed_ns),
        .st_ctim = time_of(inode->changed_ns),
        .st_nlink = inode->names,
        .st_mode = inode->seen.mode | (inode->kind == DISK_FOLDER ? S_IFDIR : S_IFREG),
        .st_uid = geteuid(),
        .st_size = (off_t)inode->seen.bytes,
        .st_blksize = DISK_BLOCK_BYTES,
    };
}

int __real_stat64(const char *path, struct stat *ret_facts);
int __wrap_stat64(const char *path, struct stat *ret_facts);
int __wrap_stat64(const char *path, struct stat *ret_facts) {
    if (!is_ours(path)) return __real_stat64(path, ret_facts);
    uint32_t inode = disk_find(&world->disk, path);
    if (!inode) return answer(ENOENT);
    write_facts(inode, ret_facts);
    return 0;
}

/* No path has a link in it. */
char *__real___realpath_chk(const char *path, char *ret_path, size_t bytes);
char *__wrap___realpath_chk(const char *path, char *ret_path, size_t bytes);
char *__wrap_realpath(const char *path, char *ret_path);
char *__wrap___realpath_chk(const char *path, char *ret_path, size_t bytes) {
    if (!is_ours(path)) return __real___realpath_chk(path, ret_path, bytes);
    if (!disk_find(&world->disk, path)) return answer(ENOENT), NULL;
    snprintf(ret_path, bytes, "%s", path);
    return ret_path;
}

char *__wrap_realpath(const char *path, char *ret_path) {
    return __wrap___realpath_chk(path, ret_path, PATH_MAX);
}

int __wrap_lstat64(const char *path, struct stat *ret_facts);
int __wrap_lstat64(const char *path, struct stat *ret_facts) {
    return __wrap_stat64(path, ret_facts);
}

int __real_fstat64(int fd, struct stat *ret_facts);
int __wrap_fstat64(int fd, struct stat *ret_facts);
int __wrap_fstat64(int fd, struct stat *ret_facts) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_fstat64(fd, ret_facts);
    write_facts(file->inode, ret_facts);
    return 0;
}

int __wrap_statvfs64(const char *path, struct statvfs *ret_facts);
int __wrap_statvfs64(const char *path, struct statvfs *ret_facts) {
    (void)path;
    faults_tend();
    const struct disk *disk = &world->disk;
    uint64_t left = disk->capacity > disk->taken ? disk->capacity - disk->taken : 0;
    *ret_facts = (struct statvfs){.f_bsize = DISK_BLOCK_BYTES,
                                  .f_frsize = DISK_BLOCK_BYTES,
                                  .f_blocks = world->capacity,
                                  .f_bfree = left,
                                  .f_bavail = left};
    return 0;
}

static int change_mode(uint32_t inode, mode_t mode) {
    int failed = faults_next("chmod", inode, NULL, mode, 0);
    if (!failed) world->disk.inodes[inode].seen.mode = mode & 07777;
    return answer(failed);
}

int __real_chmod(const char *path, mode_t mode);
int __wrap_chmod(const char *path, mode_t mode);
int __wrap_chmod(const char *path, mode_t mode) {
    if (!is_ours(path)) return __real_chmod(path, mode);
    uint32_t inode = disk_find(&world->disk, path);
    return inode ? change_mode(inode, mode) : answer(ENOENT);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode) {
    struct open_file *file = file_of(fd);
    return file ? change_mode(file->inode, mode) : __real_fchmod(fd, mode);
}

/* A process holds its locks until it dies, and only one lives at a time. */
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    return file_of(fd) ? 0 : __real_flock(fd, operation);
}

/* --- folders --- */

DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);
struct dirent *__real_readdir64(DIR *folder);
struct dirent *__wrap_readdir64(DIR *folder);
int __real_closedir(DIR *folder);
int __wrap_closedir(DIR *folder);

static struct listing *listing_of(DIR *folder) {
    for (size_t i = 0; i < LISTINGS_MAX; i++)
        if ((void *)folder == (void *)&listings[i]) return &listings[i];
    return NULL;
}

DIR *__wrap_fdopendir(int fd) {
    struct open_file *file = file_of(fd);
    if (!file) return __real_fdopendir(fd);
    size_t number = 0;
    while (listings[number].is_open) number++;
    assert(number < LISTINGS_MAX);
    struct listing *listing = &listings[number];
    *listing = (struct listing){.is_open = true, .fd = fd, .names = listed[number]};
    uint32_t at = 0;
    for (const char *name; (name = disk_entry(&world->disk, file->inode, &at));)
        memcpy(listing->names[listing->count++], name, strlen(name) + 1);
    return (DIR *)(void *)listing;
}

struct dirent *__wrap_readdir64(DIR *folder) {
    struct listing *listing = listing_of(folder);
    if (!listing) return __real_readdir64(folder);
    if (listing->at == listing->count) return NULL;
    const char *name = listing->names[listing->at++];
    memcpy(listing->entry.d_name, name, strlen(name) + 1);
    return &listing->entry;
}

int __wrap_closedir(DIR *folder) {
    struct listing *listing = listing_of(folder);
    if (!listing) return __real_closedir(folder);
    listing->is_open = false;
    return __wrap_close(listing->fd);
}
