/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* disk: a file system that forgets, for the rig.
 *
 * Each file has the blocks that its readers see and the blocks that the platter has; each name of a
 * folder has the same two sides. A sync makes both equal, for one file or for one folder. A power
 * cut decides by a seed, for each sector of 512 bytes, each length, each mode and each name, which
 * side is left: so writes are torn, come in any order or not at all, and a rename may be undone. A
 * truncation took place or did not. No sync orders anything but its own file or folder, which is
 * less than ext4 and XFS promise.
 *
 * Knows no descriptor, no process and no fault; those are in calls.c and faults.h.
 *
 * Thread: one.
 * Memory: one struct of a fixed size, which lives in memory that the processes of a run share.
 * Invariant: what was synced is on both sides. */

#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_BLOCK_BYTES 4096u
#define DISK_SECTOR_BYTES 512u
#define DISK_NAME_BYTES 80u
#define DISK_FILE_BLOCKS 2048u /* 8 MiB per file */
#define DISK_INODES 768u
#define DISK_NAMES 1536u
#define DISK_BLOCKS 24576u
#define DISK_ROOT 1u

enum disk_kind { DISK_FREE, DISK_FILE, DISK_FOLDER };

/* One side of a file. */
struct disk_side {
    uint64_t bytes;
    uint32_t mode;
    uint32_t blocks[DISK_FILE_BLOCKS]; /* 0: a hole; 1: taken and never written */
};

struct disk_inode {
    enum disk_kind kind;
    uint32_t opens;                 /* descriptors of the running process */
    uint32_t names;                 /* names that readers see */
    uint32_t block_end;             /* no side has a block from here on */
    uint32_t dirty_from, dirty_end; /* blocks in which the sides may differ */
    uint64_t taken;                 /* blocks that count against the capacity */
    int64_t changed_ns;             /* when readers saw it change last; the caller's */
    struct disk_side seen, kept;
};

/* A name in a folder; 0 stands for none. */
struct disk_name {
    uint32_t folder;
    uint32_t seen, kept; /* the inode on each side */
    char text[DISK_NAME_BYTES];
};

struct disk {
    uint32_t inode_end, name_end, block_end; /* used so far */
    uint32_t free_block;                     /* list through the first bytes of the blocks */
    uint64_t taken, capacity;                /* blocks */
    struct disk_inode inodes[DISK_INODES];
    struct disk_name names[DISK_NAMES];
    unsigned char blocks[DISK_BLOCKS][DISK_BLOCK_BYTES];
};

void disk_format(struct disk *disk, uint64_t capacity_blocks);
/* Copies what is used; `ret_disk` may have any content. */
void disk_copy(struct disk *ret_disk, const struct disk *from);

/* The inode of a path "/a/b"; 0: there is none. */
uint32_t disk_find(struct disk *disk, const char *path);
/* Makes a file or folder. Returns its inode, or a negative errno. */
int64_t disk_make(struct disk *disk, const char *path, enum disk_kind kind, uint32_t mode);
/* These return 0 or a negative errno. */
int disk_unlink(struct disk *disk, const char *path);
int disk_rmdir(struct disk *disk, const char *path);
int disk_rename(struct disk *disk, const char *from, const char *to);
int disk_link(struct disk *disk, const char *from, const char *to);
/* A last name or descriptor has gone: what readers saw is no longer counted. */
void disk_drop(struct disk *disk, uint32_t inode);
/* The name at place `*at` or behind it of a folder; NULL at the end. *at becomes the next place. */
const char *disk_entry(struct disk *disk, uint32_t folder, uint32_t *at);

/* Bytes read or written, or a negative errno. A write that meets a full disk writes nothing. */
ssize_t disk_read(struct disk *disk, uint32_t inode, void *ret_bytes, size_t count,
                  uint64_t offset);
ssize_t disk_write(struct disk *disk, uint32_t inode, const void *bytes, size_t count,
                   uint64_t offset);
int disk_truncate(struct disk *disk, uint32_t inode, uint64_t bytes);
int disk_allocate(struct disk *disk, uint32_t inode, uint64_t offset, uint64_t bytes);
/* The first offset from `offset` on that is data, or is none; UINT64_MAX: there is none. */
uint64_t disk_seek(struct disk *disk, uint32_t inode, uint64_t offset, bool data);
/* Makes both sides equal; without `with_mode` the mode stays, as with fdatasync. */
void disk_sync(struct disk *disk, uint32_t inode, bool with_mode);

/* How much of what is not synced a power cut leaves. */
enum disk_luck { DISK_DRAWN, DISK_NOTHING, DISK_EVERYTHING };
/* The power is cut: all that is not synced is left or lost. */
void disk_cut(struct disk *disk, struct rng *rng, enum disk_luck luck);
/* A sync of one file has failed: its pages are dropped, as if the power had been cut for it. */
void disk_fail_sync(struct disk *disk, uint32_t inode, struct rng *rng);
/* The process has died: no descriptor is left. Frees what has no name. */
void disk_collect(struct disk *disk);
