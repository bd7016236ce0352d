/* SPDX-License-Identifier: Apache-2.0 */
#include "vfs.h"

#include "calls.h"
#include "faults.h"
#include "threads.h"
#include "world.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS_MAX 64
#define PATH_BYTES 256
#define SHARED_MAX 8

/* The shared memory of a database; its connections are those of one process. */
struct shared {
    uint32_t inode; /* 0: free */
    unsigned users;
    void *regions[REGIONS_MAX];
};

struct vfs_file {
    sqlite3_file base;
    struct vfs_file *next;          /* open files of this process */
    int level;                      /* lock of the file */
    unsigned locked_shared, locked; /* locks of the shared memory, bit i for lock i */
    struct shared *shared;          /* NULL: not mapped */
    uint32_t inode;
    bool syncs_folder; /* its first sync syncs its folder */
    bool is_temporary;
    char path[PATH_BYTES];
};

static struct vfs_file *all_files;
static struct shared all_shared[SHARED_MAX];

static struct vfs_file *own(sqlite3_file *file) {
    return (struct vfs_file *)(void *)file;
}

static int last_errno;

static int failed_with(int failed, int code) {
    last_errno = failed < 0 ? -failed : failed;
    return last_errno == ENOSPC ? SQLITE_FULL : code;
}

static uint32_t folder_of(const char *path) {
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return disk_find(&world->disk, folder);
}

static int sync_folder(const char *path) {
    uint32_t folder = folder_of(path);
    if (!folder) return SQLITE_OK;
    int failed = faults_sync("fsync of the folder", folder);
    if (failed) return failed_with(failed, SQLITE_IOERR_DIR_FSYNC);
    disk_sync(&world->disk, folder, true);
    return SQLITE_OK;
}

/* --- one file --- */

static int file_close(sqlite3_file *file) {
    struct vfs_file *self = own(file), **at = &all_files;
    while (*at != self) at = &(*at)->next;
    *at = self->next;
    world->disk.inodes[self->inode].opens--;
    if (self->is_temporary) disk_unlink(&world->disk, self->path);
    disk_drop(&world->disk, self->inode);
    return SQLITE_OK;
}

static int file_read(sqlite3_file *file, void *ret_bytes, int count, sqlite3_int64 offset) {
    ssize_t got =
        disk_read(&world->disk, own(file)->inode, ret_bytes, (size_t)count, (uint64_t)offset);
    if (got == count) return SQLITE_OK;
    memset((char *)ret_bytes + got, 0, (size_t)(count - got));
    return SQLITE_IOERR_SHORT_READ;
}

static int file_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
    struct vfs_file *self = own(file);
    size_t part = faults_tear((size_t)count);
    if (part < (size_t)count) disk_write(&world->disk, self->inode, bytes, part, (uint64_t)offset);
    int failed = faults_next("write", self->inode, NULL, (uint64_t)offset, (uint64_t)count);
    if (failed) return failed_with(failed, SQLITE_IOERR_WRITE);
    faults_touch(self->inode);
    ssize_t put = disk_write(&world->disk, self->inode, bytes, (size_t)count, (uint64_t)offset);
    return put < 0 ? failed_with((int)put, SQLITE_IOERR_WRITE) : SQLITE_OK;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 bytes) {
    struct vfs_file *self = own(file);
    int failed = faults_next("truncate", self->inode, NULL, (uint64_t)bytes, 0);
    if (!failed) failed = disk_truncate(&world->disk, self->inode, (uint64_t)bytes);
    faults_touch(self->inode);
    return failed ? failed_with(failed, SQLITE_IOERR_TRUNCATE) : SQLITE_OK;
}

static int file_sync(sqlite3_file *file, int flags) {
    struct vfs_file *self = own(file);
    (void)flags;
    int failed = faults_sync("fdatasync", self->inode);
    if (failed) return failed_with(failed, SQLITE_IOERR_FSYNC);
    disk_sync(&world->disk, self->inode, false);
    if (!self->syncs_folder) return SQLITE_OK;
    self->syncs_folder = false;
    return sync_folder(self->path);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *ret_bytes) {
    *ret_bytes = (sqlite3_int64)world->disk.inodes[own(file)->inode].seen.bytes;
    return SQLITE_OK;
}

/* --- locks: two connections of one process, the server's and that of a backup --- */

/* The highest lock that another connection has. */
static int others_level(const struct vfs_file *self) {
    int level = SQLITE_LOCK_NONE;
    for (const struct vfs_file *at = all_files; at; at = at->next)
        if (at != self && at->inode == self->inode && at->level > level) level = at->level;
    return level;
}

static int file_lock(sqlite3_file *file, int level) {
    struct vfs_file *self = own(file);
    int others = others_level(self);
    if (self->level >= level) return SQLITE_OK;
    if (others >= (level == SQLITE_LOCK_SHARED ? SQLITE_LOCK_PENDING : SQLITE_LOCK_RESERVED))
        return SQLITE_BUSY;
    if (level == SQLITE_LOCK_EXCLUSIVE && others >= SQLITE_LOCK_SHARED) {
        self->level = SQLITE_LOCK_PENDING;
        return SQLITE_BUSY;
    }
    self->level = level;
    return SQLITE_OK;
}

static int file_unlock(sqlite3_file *file, int level) {
    struct vfs_file *self = own(file);
    if (self->level > level) self->level = level;
    return SQLITE_OK;
}

static int file_check_lock(sqlite3_file *file, int *ret_is_locked) {
    struct vfs_file *self = own(file);
    *ret_is_locked =
        self->level >= SQLITE_LOCK_RESERVED || others_level(self) >= SQLITE_LOCK_RESERVED;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *file, int operation, void *argument) {
    (void)file, (void)operation, (void)argument;
    return SQLITE_NOTFOUND;
}

static int file_sector(sqlite3_file *file) {
    (void)file;
    return 4096; /* as "unix" says */
}

static int file_characteristics(sqlite3_file *file) {
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE; /* likewise */
}

static struct shared *shared_of(uint32_t inode) {
    struct shared *free_one = NULL;
    for (int i = 0; i < SHARED_MAX; i++) {
        if (all_shared[i].inode == inode) return &all_shared[i];
        if (all_shared[i].inode == 0) free_one = &all_shared[i];
    }
    if (free_one) free_one->inode = inode;
    return free_one;
}

static int file_shm_map(sqlite3_file *file, int region, int bytes, int extend,
                        void volatile **ret_at) {
    struct vfs_file *self = own(file);
    if (region >= REGIONS_MAX) return SQLITE_IOERR_SHMSIZE;
    if (!self->shared) {
        self->shared = shared_of(self->inode);
        if (!self->shared) return SQLITE_IOERR_SHMOPEN;
        self->shared->users++;
    }
    void **at = &self->shared->regions[region];
    if (!*at && extend) *at = calloc(1, (size_t)bytes);
    *ret_at = *at;
    return SQLITE_OK;
}

static int file_shm_lock(sqlite3_file *file, int offset, int count, int flags) {
    struct vfs_file *self = own(file);
    unsigned mask = ((1u << count) - 1) << offset, shared = 0, exclusive = 0;
    if (flags & SQLITE_SHM_UNLOCK) {
        self->locked &= ~mask;
        self->locked_shared &= ~mask;
        return SQLITE_OK;
    }
    for (const struct vfs_file *at = all_files; at; at = at->next) {
        if (at == self || at->inode != self->inode) continue;
        shared |= at->locked_shared;
        exclusive |= at->locked;
    }
    if (mask & (flags & SQLITE_SHM_SHARED ? exclusive : shared | exclusive)) return SQLITE_BUSY;
    if (flags & SQLITE_SHM_SHARED)
        self->locked_shared |= mask;
    else
        self->locked |= mask;
    return SQLITE_OK;
}

static void file_shm_barrier(sqlite3_file *file) {
    (void)file;
}

static int file_shm_unmap(sqlite3_file *file, int removes) {
    struct vfs_file *self = own(file);
    struct shared *shared = self->shared;
    (void)removes;
    self->shared = NULL;
    self->locked = self->locked_shared = 0;
    if (!shared || --shared->users > 0) return SQLITE_OK;
    for (int i = 0; i < REGIONS_MAX; i++) free(shared->regions[i]);
    *shared = (struct shared){0};
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* --- all files --- */

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename path, sqlite3_file *file, int flags,
                    int *ret_flags) {
    static unsigned temporary;
    struct vfs_file *self = own(file);
    (void)vfs;
    *self = (struct vfs_file){.is_temporary = !path};
    if (path)
        snprintf(self->path, sizeof self->path, "%s", path);
    else
        snprintf(self->path, sizeof self->path, RIG_ROOT "/temporary-%u", temporary++);
    self->inode = disk_find(&world->disk, self->path);
    if (!self->inode) {
        if (!(flags & SQLITE_OPEN_CREATE)) return failed_with(ENOENT, SQLITE_CANTOPEN);
        int failed = faults_next("create", 0, self->path, 0, 0);
        int64_t made = failed ? -failed : disk_make(&world->disk, self->path, DISK_FILE, 0600);
        if (made < 0) return failed_with((int)made, SQLITE_CANTOPEN);
        self->inode = (uint32_t)made;
        self->syncs_folder =
            flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL);
    }
    faults_name(self->inode, self->path);
    world->disk.inodes[self->inode].opens++;
    self->base.pMethods = &methods;
    self->next = all_files;
    all_files = self;
    if (ret_flags) *ret_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int syncs) {
    (void)vfs;
    if (!disk_find(&world->disk, path)) return SQLITE_IOERR_DELETE_NOENT;
    int failed = faults_next("unlink", 0, path, 0, 0);
    if (!failed) failed = disk_unlink(&world->disk, path);
    if (failed) return failed_with(failed, SQLITE_IOERR_DELETE);
    return syncs ? sync_folder(path) : SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *ret_may) {
    (void)vfs, (void)flags;
    uint32_t inode = disk_find(&world->disk, path);
    *ret_may = inode != 0;
    if (flags == SQLITE_ACCESS_EXISTS && inode && world->disk.inodes[inode].seen.bytes == 0)
        *ret_may = 0; /* as "unix" does */
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int bytes, char *ret_path) {
    (void)vfs;
    snprintf(ret_path, (size_t)bytes, "%s", path);
    return SQLITE_OK;
}

static int vfs_random(sqlite3_vfs *vfs, int count, char *ret_bytes) {
    (void)vfs;
    struct rng rng = world_rng('q');
    rng.state += world->call;
    for (int i = 0; i < count; i++) ret_bytes[i] = (char)(rng_next(&rng) >> 40);
    return count;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us) {
    (void)vfs;
    threads_pass_ns((int64_t)us * 1000);
    return us;
}

static int vfs_time_ms(sqlite3_vfs *vfs, sqlite3_int64 *ret_ms) {
    (void)vfs;
    *ret_ms = INT64_C(210866760000000) + INT64_C(1800000000000) + world->now_ns / 1000000 +
              world->wall_ms;
    return SQLITE_OK;
}

static int vfs_time(sqlite3_vfs *vfs, double *ret_days) {
    sqlite3_int64 ms;
    vfs_time_ms(vfs, &ms);
    *ret_days = (double)ms / 86400000.0;
    return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *vfs, int count, char *ret_text) {
    (void)vfs, (void)count, (void)ret_text;
    return last_errno;
}

void vfs_prepare(void) {
    if (sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) != SQLITE_OK) abort();
    if (sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) != SQLITE_OK) abort();
}

void vfs_register(void) {
    all_files = NULL;
    memset(all_shared, 0, sizeof all_shared);
    static sqlite3_vfs vfs = {
        .iVersion = 2,
        .szOsFile = sizeof(struct vfs_file),
        .mxPathname = PATH_BYTES,
        .zName = "rig",
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_random,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time_ms,
    };
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK) abort();
}
