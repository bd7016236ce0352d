/* SPDX-License-Identifier: Apache-2.0 */
#include "disk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define HOLE 0u
#define UNWRITTEN 1u
#define FIRST_BLOCK 2u

static void copy_side(struct disk_side *to, const struct disk_side *from, uint32_t blocks) {
    to->bytes = from->bytes;
    to->mode = from->mode;
    memcpy(to->blocks, from->blocks, blocks * sizeof *to->blocks);
}

static void clear_inode(struct disk_inode *inode) {
    uint32_t blocks = inode->block_end;
    memset(inode->seen.blocks, 0, blocks * sizeof *inode->seen.blocks);
    memset(inode->kept.blocks, 0, blocks * sizeof *inode->kept.blocks);
    memset(inode, 0, offsetof(struct disk_inode, seen));
    inode->seen.bytes = inode->kept.bytes = 0;
    inode->seen.mode = inode->kept.mode = 0;
}

void disk_format(struct disk *disk, uint64_t capacity_blocks) {
    for (uint32_t i = 0; i < disk->inode_end; i++) clear_inode(&disk->inodes[i]);
    disk->inode_end = DISK_ROOT + 1;
    disk->name_end = 0;
    disk->block_end = FIRST_BLOCK;
    disk->free_block = 0;
    disk->taken = 0;
    disk->capacity = capacity_blocks;
    struct disk_inode *root = &disk->inodes[DISK_ROOT];
    root->kind = DISK_FOLDER;
    root->names = 1;
    root->seen.mode = root->kept.mode = 0700;
}

void disk_copy(struct disk *ret_disk, const struct disk *from) {
    for (uint32_t i = 0; i < ret_disk->inode_end; i++) clear_inode(&ret_disk->inodes[i]);
    memcpy(ret_disk, from, offsetof(struct disk, inodes));
    for (uint32_t i = 0; i < from->inode_end; i++) {
        struct disk_inode *to = &ret_disk->inodes[i];
        memcpy(to, &from->inodes[i], offsetof(struct disk_inode, seen));
        copy_side(&to->seen, &from->inodes[i].seen, to->block_end);
        copy_side(&to->kept, &from->inodes[i].kept, to->block_end);
    }
    memcpy(ret_disk->names, from->names, from->name_end * sizeof *from->names);
    memcpy(ret_disk->blocks, from->blocks, (size_t)from->block_end * DISK_BLOCK_BYTES);
}

/* --- blocks --- */

static uint32_t new_block(struct disk *disk) {
    uint32_t block = disk->free_block;
    if (block)
        memcpy(&disk->free_block, disk->blocks[block], sizeof disk->free_block);
    else
        block = disk->block_end++;
    assert(block < DISK_BLOCKS);
    return block;
}

static void free_block(struct disk *disk, uint32_t block) {
    if (block < FIRST_BLOCK) return;
    memcpy(disk->blocks[block], &disk->free_block, sizeof disk->free_block);
    disk->free_block = block;
}

static const unsigned char *bytes_of(const struct disk *disk, uint32_t block) {
    static const unsigned char zeros[DISK_BLOCK_BYTES];
    return block < FIRST_BLOCK ? zeros : disk->blocks[block];
}

static void mark_dirty(struct disk_inode *inode, uint32_t at) {
    if (inode->dirty_from == inode->dirty_end) inode->dirty_from = inode->dirty_end = at;
    if (at < inode->dirty_from) inode->dirty_from = at;
    if (at >= inode->dirty_end) inode->dirty_end = at + 1;
    if (at >= inode->block_end) inode->block_end = at + 1;
}

/* A block that readers see and the platter has is copied before it is changed. */
static unsigned char *writable(struct disk *disk, struct disk_inode *inode, uint32_t at) {
    uint32_t block = inode->seen.blocks[at];
    mark_dirty(inode, at);
    if (block < FIRST_BLOCK || block == inode->kept.blocks[at]) {
        uint32_t copy = new_block(disk);
        memcpy(disk->blocks[copy], bytes_of(disk, block), DISK_BLOCK_BYTES);
        inode->seen.blocks[at] = block = copy;
    }
    return disk->blocks[block];
}

static void set_seen(struct disk *disk, struct disk_inode *inode, uint32_t at, uint32_t block) {
    uint32_t old = inode->seen.blocks[at];
    mark_dirty(inode, at);
    if (old != inode->kept.blocks[at]) free_block(disk, old);
    inode->seen.blocks[at] = block;
}

static bool take(struct disk *disk, struct disk_inode *inode, uint64_t blocks) {
    if (disk->taken + blocks > disk->capacity) return false;
    disk->taken += blocks;
    inode->taken += blocks;
    return true;
}

/* --- names --- */

static struct disk_name *find_name(struct disk *disk, uint32_t folder, const char *text,
                                   size_t bytes) {
    for (uint32_t i = 0; i < disk->name_end; i++) {
        struct disk_name *name = &disk->names[i];
        if (name->folder == folder && strlen(name->text) == bytes &&
            memcmp(name->text, text, bytes) == 0)
            return name;
    }
    return NULL;
}

/* The folder of the path's last part, which *ret_last begins; 0: there is none. */
static uint32_t walk(struct disk *disk, const char *path, const char **ret_last) {
    uint32_t at = DISK_ROOT;
    while (*path == '/') path++;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        struct disk_name *name = find_name(disk, at, path, (size_t)(slash - path));
        if (!name || !name->seen || disk->inodes[name->seen].kind != DISK_FOLDER) return 0;
        at = name->seen;
    }
    *ret_last = path;
    return at;
}

static struct disk_name *look_up(struct disk *disk, const char *path) {
    const char *last;
    uint32_t folder = walk(disk, path, &last);
    return folder ? find_name(disk, folder, last, strlen(last)) : NULL;
}

uint32_t disk_find(struct disk *disk, const char *path) {
    struct disk_name *name = look_up(disk, path);
    return name ? name->seen : 0;
}

/* The record of a name, which may be new. */
static int name_for(struct disk *disk, const char *path, struct disk_name **ret_name) {
    const char *last;
    uint32_t folder = walk(disk, path, &last);
    if (!folder) return -ENOENT;
    size_t bytes = strlen(last);
    assert(bytes > 0 && bytes < DISK_NAME_BYTES);
    struct disk_name *name = find_name(disk, folder, last, bytes);
    for (uint32_t i = 0; !name && i < disk->name_end; i++)
        if (!disk->names[i].folder) name = &disk->names[i];
    if (!name) {
        assert(disk->name_end < DISK_NAMES);
        name = &disk->names[disk->name_end++];
        name->folder = 0;
    }
    if (!name->folder) {
        *name = (struct disk_name){.folder = folder};
        memcpy(name->text, last, bytes + 1);
    }
    *ret_name = name;
    return 0;
}

static uint32_t new_inode(struct disk *disk) {
    for (uint32_t i = DISK_ROOT + 1; i < disk->inode_end; i++)
        if (disk->inodes[i].kind == DISK_FREE) return i;
    assert(disk->inode_end < DISK_INODES);
    clear_inode(&disk->inodes[disk->inode_end]);
    return disk->inode_end++;
}

int64_t disk_make(struct disk *disk, const char *path, enum disk_kind kind, uint32_t mode) {
    struct disk_name *name;
    int failed = name_for(disk, path, &name);
    if (failed) return failed;
    if (name->seen) return -EEXIST;
    uint32_t at = new_inode(disk);
    struct disk_inode *inode = &disk->inodes[at];
    inode->kind = kind;
    inode->names = 1;
    inode->seen.mode = inode->kept.mode = mode;
    name->seen = at;
    return at;
}

void disk_drop(struct disk *disk, uint32_t at) {
    struct disk_inode *inode = &disk->inodes[at];
    if (inode->names > 0 || inode->opens > 0) return;
    disk->taken -= inode->taken;
    inode->taken = 0;
}

static int remove_name(struct disk *disk, const char *path, enum disk_kind kind) {
    struct disk_name *name = look_up(disk, path);
    if (!name || !name->seen) return -ENOENT;
    uint32_t at = name->seen;
    if (disk->inodes[at].kind != kind) return kind == DISK_FILE ? -EISDIR : -ENOTDIR;
    name->seen = 0;
    disk->inodes[at].names--;
    disk_drop(disk, at);
    return 0;
}

int disk_unlink(struct disk *disk, const char *path) {
    return remove_name(disk, path, DISK_FILE);
}

int disk_rmdir(struct disk *disk, const char *path) {
    uint32_t at = disk_find(disk, path), place = 0;
    if (at && disk_entry(disk, at, &place)) return -ENOTEMPTY;
    return remove_name(disk, path, DISK_FOLDER);
}

int disk_rename(struct disk *disk, const char *from, const char *to) {
    uint32_t at = disk_find(disk, from);
    struct disk_name *name;
    if (!at) return -ENOENT;
    int failed = name_for(disk, to, &name);
    if (failed) return failed;
    uint32_t old = name->seen;
    if (old == at) return 0;
    name->seen = at;
    if (old) {
        disk->inodes[old].names--;
        disk_drop(disk, old);
    }
    look_up(disk, from)->seen = 0;
    return 0;
}

int disk_link(struct disk *disk, const char *from, const char *to) {
    uint32_t at = disk_find(disk, from);
    struct disk_name *name;
    if (!at) return -ENOENT;
    int failed = name_for(disk, to, &name);
    if (failed) return failed;
    if (name->seen) return -EEXIST;
    name->seen = at;
    disk->inodes[at].names++;
    return 0;
}

const char *disk_entry(struct disk *disk, uint32_t folder, uint32_t *at) {
    for (; *at < disk->name_end; (*at)++) {
        const struct disk_name *name = &disk->names[*at];
        if (name->folder == folder && name->seen) return disk->names[(*at)++].text;
    }
    return NULL;
}

/* --- bytes --- */

ssize_t disk_read(struct disk *disk, uint32_t at, void *ret_bytes, size_t count, uint64_t offset) {
    const struct disk_side *side = &disk->inodes[at].seen;
    unsigned char *to = ret_bytes;
    if (offset >= side->bytes) return 0;
    if (count > side->bytes - offset) count = (size_t)(side->bytes - offset);
    for (size_t done = 0; done < count;) {
        uint64_t place = offset + done;
        size_t in = place % DISK_BLOCK_BYTES, part = DISK_BLOCK_BYTES - in;
        if (part > count - done) part = count - done;
        memcpy(to + done, bytes_of(disk, side->blocks[place / DISK_BLOCK_BYTES]) + in, part);
        done += part;
    }
    return (ssize_t)count;
}

/* Takes the holes of a range. */
static bool take_holes(struct disk *disk, struct disk_inode *inode, uint64_t offset,
                       uint64_t count) {
    uint64_t holes = 0;
    if (count == 0) return true;
    uint64_t from = offset / DISK_BLOCK_BYTES, to = (offset + count - 1) / DISK_BLOCK_BYTES;
    assert(to < DISK_FILE_BLOCKS);
    for (uint64_t i = from; i <= to; i++) holes += inode->seen.blocks[i] == HOLE;
    if (!take(disk, inode, holes)) return false;
    for (uint64_t i = from; i <= to; i++)
        if (inode->seen.blocks[i] == HOLE) set_seen(disk, inode, (uint32_t)i, UNWRITTEN);
    return true;
}

ssize_t disk_write(struct disk *disk, uint32_t at, const void *bytes, size_t count,
                   uint64_t offset) {
    struct disk_inode *inode = &disk->inodes[at];
    const unsigned char *from = bytes;
    if (!take_holes(disk, inode, offset, count)) return -ENOSPC;
    for (size_t done = 0; done < count;) {
        uint64_t place = offset + done;
        size_t in = place % DISK_BLOCK_BYTES, part = DISK_BLOCK_BYTES - in;
        if (part > count - done) part = count - done;
        memcpy(writable(disk, inode, (uint32_t)(place / DISK_BLOCK_BYTES)) + in, from + done, part);
        done += part;
    }
    if (offset + count > inode->seen.bytes) inode->seen.bytes = offset + count;
    return (ssize_t)count;
}

int disk_truncate(struct disk *disk, uint32_t at, uint64_t bytes) {
    struct disk_inode *inode = &disk->inodes[at];
    uint32_t first = (uint32_t)((bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES);
    for (uint32_t i = first; i < inode->block_end; i++) {
        if (inode->seen.blocks[i] == HOLE) continue;
        inode->taken--;
        disk->taken--;
        set_seen(disk, inode, i, HOLE);
    }
    size_t in = bytes % DISK_BLOCK_BYTES;
    if (in && bytes < inode->seen.bytes && inode->seen.blocks[first - 1] >= FIRST_BLOCK)
        memset(writable(disk, inode, first - 1) + in, 0, DISK_BLOCK_BYTES - in);
    inode->seen.bytes = bytes;
    return 0;
}

int disk_allocate(struct disk *disk, uint32_t at, uint64_t offset, uint64_t bytes) {
    struct disk_inode *inode = &disk->inodes[at];
    if (!take_holes(disk, inode, offset, bytes)) return -ENOSPC;
    if (offset + bytes > inode->seen.bytes) inode->seen.bytes = offset + bytes;
    return 0;
}

uint64_t disk_seek(struct disk *disk, uint32_t at, uint64_t offset, bool data) {
    const struct disk_side *side = &disk->inodes[at].seen;
    for (uint64_t place = offset; place < side->bytes;
         place = (place / DISK_BLOCK_BYTES + 1) * DISK_BLOCK_BYTES)
        if ((side->blocks[place / DISK_BLOCK_BYTES] >= FIRST_BLOCK) == data) return place;
    return data || offset >= side->bytes ? UINT64_MAX : side->bytes;
}

static void sync_names(struct disk *disk, uint32_t folder) {
    for (uint32_t i = 0; i < disk->name_end; i++)
        if (disk->names[i].folder == folder) disk->names[i].kept = disk->names[i].seen;
}

void disk_sync(struct disk *disk, uint32_t at, bool with_mode) {
    struct disk_inode *inode = &disk->inodes[at];
    if (inode->kind == DISK_FOLDER) sync_names(disk, at);
    for (uint32_t i = inode->dirty_from; i < inode->dirty_end; i++) {
        if (inode->seen.blocks[i] == inode->kept.blocks[i]) continue;
        free_block(disk, inode->kept.blocks[i]);
        inode->kept.blocks[i] = inode->seen.blocks[i];
    }
    inode->dirty_from = inode->dirty_end = 0;
    inode->kept.bytes = inode->seen.bytes;
    if (with_mode) inode->kept.mode = inode->seen.mode;
}

/* --- the cut --- */

static bool survives(struct rng *rng, enum disk_luck luck) {
    if (luck != DISK_DRAWN) return luck == DISK_EVERYTHING;
    return rng_next(rng) & 1;
}

/* Mixes the sectors of both sides into the block that is left. */
static void cut_block(struct disk *disk, struct disk_inode *inode, uint32_t at, struct rng *rng,
                      enum disk_luck luck) {
    uint32_t seen = inode->seen.blocks[at], kept = inode->kept.blocks[at];
    if (seen == kept) return;
    uint32_t left = new_block(disk);
    uint64_t sectors = luck == DISK_DRAWN ? rng_next(rng) : luck == DISK_NOTHING ? 0 : UINT64_MAX;
    /* One block in four is whole and one is gone, so that not all of them are torn. */
    if (luck == DISK_DRAWN && (sectors >> 60 & 3) == 0) sectors = 0;
    if (luck == DISK_DRAWN && (sectors >> 60 & 3) == 1) sectors = UINT64_MAX;
    for (uint32_t i = 0; i < DISK_BLOCK_BYTES / DISK_SECTOR_BYTES; i++) {
        uint32_t from = sectors >> i & 1 ? seen : kept;
        memcpy(disk->blocks[left] + i * DISK_SECTOR_BYTES,
               bytes_of(disk, from) + i * DISK_SECTOR_BYTES, DISK_SECTOR_BYTES);
    }
    free_block(disk, seen);
    free_block(disk, kept);
    inode->seen.blocks[at] = inode->kept.blocks[at] = left;
}

/* Whether the file was cut shorter, and the platter does not know. */
static bool was_shortened(const struct disk_inode *inode) {
    bool is_shorter = false;
    for (uint32_t i = inode->dirty_from; i < inode->dirty_end; i++)
        is_shorter |= inode->seen.blocks[i] == HOLE && inode->kept.blocks[i] != HOLE;
    return is_shorter;
}

/* A block that a truncation took is gone, or it is back as it was. */
static void cut_hole(struct disk *disk, struct disk_inode *inode, uint32_t at, bool is_gone) {
    if (is_gone) {
        free_block(disk, inode->kept.blocks[at]);
        inode->kept.blocks[at] = HOLE;
    } else {
        inode->seen.blocks[at] = inode->kept.blocks[at];
    }
}

static void cut_inode(struct disk *disk, struct disk_inode *inode, struct rng *rng,
                      enum disk_luck luck) {
    const bool differs = inode->seen.bytes != inode->kept.bytes || was_shortened(inode);
    const bool has_length = differs && survives(rng, luck);
    for (uint32_t i = inode->dirty_from; i < inode->dirty_end; i++)
        if (inode->seen.blocks[i] == HOLE && inode->kept.blocks[i] != HOLE)
            cut_hole(disk, inode, i, has_length);
        else
            cut_block(disk, inode, i, rng, luck);
    inode->dirty_from = inode->dirty_end = 0;
    if (!has_length) inode->seen.bytes = inode->kept.bytes;
    if (inode->seen.mode != inode->kept.mode && !survives(rng, luck))
        inode->seen.mode = inode->kept.mode;
    inode->kept.bytes = inode->seen.bytes;
    inode->kept.mode = inode->seen.mode;
}

/* Sectors behind the end that is left read as zeros. */
static void clear_tail(struct disk *disk, struct disk_inode *inode) {
    uint32_t first = (uint32_t)((inode->seen.bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES);
    size_t in = inode->seen.bytes % DISK_BLOCK_BYTES;
    for (uint32_t i = first; i < inode->block_end; i++) {
        free_block(disk, inode->seen.blocks[i]);
        inode->seen.blocks[i] = inode->kept.blocks[i] = HOLE;
    }
    if (in && inode->seen.blocks[first - 1] >= FIRST_BLOCK)
        memset(disk->blocks[inode->seen.blocks[first - 1]] + in, 0, DISK_BLOCK_BYTES - in);
}

void disk_cut(struct disk *disk, struct rng *rng, enum disk_luck luck) {
    for (uint32_t i = DISK_ROOT; i < disk->inode_end; i++) {
        if (disk->inodes[i].kind != DISK_FILE) continue;
        cut_inode(disk, &disk->inodes[i], rng, luck);
        clear_tail(disk, &disk->inodes[i]);
    }
    for (uint32_t i = 0; i < disk->name_end; i++) {
        struct disk_name *name = &disk->names[i];
        if (!name->folder || name->seen == name->kept) continue;
        if (!survives(rng, luck)) name->seen = name->kept;
        name->kept = name->seen;
    }
}

void disk_fail_sync(struct disk *disk, uint32_t at, struct rng *rng) {
    if (disk->inodes[at].kind != DISK_FILE) return;
    cut_inode(disk, &disk->inodes[at], rng, DISK_DRAWN);
    clear_tail(disk, &disk->inodes[at]);
}

static void free_inode(struct disk *disk, struct disk_inode *inode) {
    for (uint32_t i = 0; i < inode->block_end; i++) {
        if (inode->kept.blocks[i] != inode->seen.blocks[i]) free_block(disk, inode->kept.blocks[i]);
        free_block(disk, inode->seen.blocks[i]);
    }
    clear_inode(inode);
}

/* Counts names again. Names of a folder that has none are gone with it. */
static void count_names(struct disk *disk) {
    for (uint32_t i = DISK_ROOT + 1; i < disk->inode_end; i++)
        disk->inodes[i].names = disk->inodes[i].opens = 0;
    for (uint32_t i = 0; i < disk->name_end; i++) {
        struct disk_name *name = &disk->names[i];
        if (name->folder && !name->seen && !name->kept) name->folder = 0;
        if (!name->folder) continue;
        if (name->seen) disk->inodes[name->seen].names++;
        if (name->kept && name->kept != name->seen) disk->inodes[name->kept].names++;
    }
}

void disk_collect(struct disk *disk) {
    for (bool is_done = false; !is_done;) {
        is_done = true;
        count_names(disk);
        for (uint32_t i = DISK_ROOT + 1; i < disk->inode_end; i++) {
            if (disk->inodes[i].kind == DISK_FREE || disk->inodes[i].names > 0) continue;
            if (disk->inodes[i].kind == DISK_FOLDER) is_done = false;
            free_inode(disk, &disk->inodes[i]);
            for (uint32_t n = 0; n < disk->name_end; n++)
                if (disk->names[n].folder == i) disk->names[n].folder = 0;
        }
    }
    disk->taken = 0;
    for (uint32_t i = DISK_ROOT + 1; i < disk->inode_end; i++) {
        struct disk_inode *inode = &disk->inodes[i];
        inode->taken = 0;
        for (uint32_t b = 0; b < inode->block_end; b++) inode->taken += inode->seen.blocks[b] != 0;
        disk->taken += inode->taken;
    }
}
