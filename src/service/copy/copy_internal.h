/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* copy_internal: the open copy, for the files of copy/ alone.
 *
 * From the bottom up:
 *
 *     gathered.c  changes that wait for the next entry, and who waits for them
 *     put.c       one object, until it is stored or another server leads
 *     objects.c   large files in pieces, and where they lie
 *     small.c     the files of the state directory's top that others write
 *     told.c      what the store tells
 *     sweep.c     the removal of what no base needs
 *     base.c      whole states
 *     sender.c    the thread that writes entries
 *     ahead.c     reading: entries of the log, several at a time
 *     walk.c      reading: a base and the log after it
 *     copy.c      opening, leading
 *     standby.c   waiting for the end of another server
 *
 * Thread: `lock` guards all that is not marked otherwise.
 * Memory: from copy_open to copy_close. */

#include "base/map.h"
#include "copy/copy.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define PIECE_BYTES ((size_t)8 << 20)   /* one piece of a base or a large file */
#define INLINE_BYTES ((size_t)64 << 10) /* a file up to this size travels inside entries */
#define SMALL_FILES_MAX 24

/* A large file in the storage. */
struct object_row {
    char path[ENTRY_PATH_BYTES];
    uint64_t bytes;
    struct entry_object at;
    bool is_seen; /* by the base that is being made */
    /* Entry of the log that names it; 0: only a base does; UINT64_MAX: one will. */
    uint64_t told_in;
};

struct small_file {
    char name[32];
    uint64_t inode, bytes;
    int64_t changed_ns;
};

/* How the log has grown since the last base. */
struct log_growth {
    uint64_t bytes; /* small entries count as more (sender.c) */
    uint64_t entries;
    int64_t entry_ns; /* what a write of one takes, on average */
};

/* What a base makes needless. */
struct swept {
    uint64_t first;     /* the first entry of the log that it needs */
    uint64_t serial;    /* this leader's objects from it on are newer */
    uint64_t under_way; /* from it on an object may have been under way */
};

/* Changes for the next entry. */
struct gathered {
    struct buf records;
    struct buf pages;    /* as in a PAGES record, each page once */
    struct map page_at;  /* number of a page → its offset in `pages` */
    uint32_t page_bytes; /* 0: no pages */
    uint64_t page_count;
    bool has_any;
};

struct copy {
    struct bucket *bucket;         /* fixed */
    char state_dir[PATH_MAX];      /* fixed */
    char nonce[ENTRY_NONCE_BYTES]; /* fixed */
    char host[ENTRY_HOST_BYTES];   /* fixed */
    size_t piece_bytes;            /* fixed; PIECE_BYTES, or less in tests */
    char name[ENTRY_NONCE_BYTES];  /* fixed after copy_attach: nonce of the chain's first entry */
    const volatile bool *asked_to_stop;
    volatile bool stop;  /* ends all calls; set once, by copy_close */
    struct store *store; /* fixed after copy_attach */
    struct store_mirror mirror;

    pthread_mutex_t lock;
    pthread_cond_t work;   /* signalled for the sender */
    pthread_cond_t stored; /* broadcast when `copied` or `is_fenced` changes */
    struct gathered gathered;
    uint64_t told, copied;  /* changes, counted */
    uint64_t told_rows;     /* the last one that is no result of a line */
    uint64_t asked;         /* the last one that someone waits for */
    int64_t waiting_ns;     /* when the oldest change came that is not stored; 0: all is */
    uint64_t sending_bytes; /* size of the entry under way */

    uint64_t next;   /* number of the next entry */
    uint64_t leader; /* number of the entry with which this process leads; 0: it does not */
    uint64_t base;   /* entry of the last base */
    uint64_t base_count;
    struct entry_object base_at; /* its pieces */
    uint64_t base_bytes;
    struct log_growth log;
    /* (lead_count) entries that are never removed: all leads from `walked_from` on, and those below
     * that a sweep has met. No lock: they change at the start, and in a sweep. */
    uint64_t *leads;
    size_t lead_count, lead_capacity;
    uint64_t walked_from; /* fixed after copy_attach */
    bool is_sending;
    bool is_fenced, is_closing;
    int64_t sent_ns, close_ns;
    int64_t paced_ns;  /* begin of the last entry for which no client waited */
    int64_t stored_ns; /* begin of the last write of an entry that was good; 0: none */

    struct object_row *rows; /* (row_count), guarded by lock */
    size_t row_count, row_capacity;
    struct map row_of; /* path → index of its latest row */
    uint64_t serial;
    uint64_t *under_way; /* (under_way_count) serials of objects whose pieces are being stored */
    size_t under_way_count, under_way_capacity;

    pthread_mutex_t files_lock; /* guards `small`; taken before `lock` */
    struct small_file small[SMALL_FILES_MAX];
    size_t small_count;

    pthread_t sender, baser;
    bool has_sender, has_baser;
    atomic_bool is_basing;
    struct copy_status status; /* numbers and sentence */
};

/* --- gathered.c --- */
void gathered_init(struct gathered *gathered);
void gathered_release(struct gathered *gathered);
/* Makes the entry of what was gathered. */
void gathered_write(const struct gathered *gathered, const struct entry_header *header,
                    struct buf *ret_entry);
uint64_t gathered_bytes(const struct gathered *gathered);
/* Notes that the gathered changes have grown. The lock is held. */
void copy_note(struct copy *copy, bool is_result);
/* Notes an entry with which a server began to lead. */
void copy_note_lead(struct copy *copy, uint64_t number);
/* True once no call should wait any longer for the storage. */
bool copy_is_ending(struct copy *copy);
/* The header of this process's entry `number`. The lock is held. */
void copy_head(struct copy *copy, uint64_t number, struct entry_header *ret_header);

/* --- put.c --- */
/* Writes an entry. OK also if an earlier attempt of this process wrote it; ERR_CONFLICT if another
 * process did; ERR_CANCELLED at the close. Tries again while the storage is away. */
enum err copy_put_entry(struct copy *copy, uint64_t number, struct str bytes,
                        struct error *error) MUST_CHECK;
/* Writes an object that only this process writes, until `until_ns` (0: until the close). */
enum err copy_put_piece(struct copy *copy, const char *name, struct str bytes, int64_t until_ns,
                        struct error *error) MUST_CHECK;

/* --- told.c --- */
void copy_mirror_init(struct copy *copy);

/* --- sender.c --- */
enum err copy_start_sender(struct copy *copy, struct error *error) MUST_CHECK;

/* --- objects.c --- */
/* Tells of a file that never changes: inside an entry, or in pieces that are stored first. */
enum err copy_file(struct copy *copy, const char *path, int64_t until_ns,
                   struct error *error) MUST_CHECK;
/* Stores a large file in pieces, unless it is; *ret_object says where. `told_in` as in the row. */
enum err copy_object(struct copy *copy, const char *path, int fd, uint64_t bytes, uint64_t told_in,
                     int64_t until_ns, struct entry_object *ret_object,
                     struct error *error) MUST_CHECK;
/* The lock is held. */
void copy_note_object(struct copy *copy, const char *path, uint64_t bytes,
                      const struct entry_object *at, uint64_t told_in);

/* --- small.c --- */
/* True for a name at the top of the state directory that a copy has. */
bool copy_is_small(const char *name);

/* --- sweep.c --- */
/* Removes what a base makes needless, and whatever an earlier sweep has left. In one thread at a
 * time. */
void copy_sweep(struct copy *copy, const struct swept *than);

/* --- base.c --- */
/* At a start. A thread sweeps, since clients wait: a thousand entries are removed in half a
 * minute. */
enum err copy_make_base(struct copy *copy, struct error *error) MUST_CHECK;
/* Whether the log has grown enough for the next base. */
bool copy_base_is_due(uint64_t base_bytes, const struct log_growth *log);
/* Makes one beside, if the log has grown enough. The lock is held. */
void copy_base_when_due(struct copy *copy);

/* --- ahead.c --- */
struct ahead;
/* Reads the entries `first` to `last` of the log, several at a time, to be taken in order. At most
 * 16 are under way, and 32 MiB wait beside them. */
enum err ahead_open(struct ahead **ret_ahead, struct bucket *bucket, uint64_t first, uint64_t last,
                    const volatile bool *stop, struct error *error) MUST_CHECK;
/* The next one, in place of what `ret_bytes` has; not behind an error or the last one. */
enum err ahead_take(struct ahead *ahead, struct buf *ret_bytes, struct entry_header *ret_header,
                    struct error *error) MUST_CHECK;
void ahead_close(struct ahead *ahead);

/* --- walk.c --- */
typedef enum err (*walk_fn)(void *context, const struct entry_record *record, struct error *error);
struct walked {
    uint64_t *leads; /* (lead_count) entries of the log with which servers began to lead; the
                        caller's to free */
    size_t lead_count, lead_capacity;
    uint64_t first;
    struct entry_object base;
    uint64_t base_bytes, log_bytes;
};
/* Calls `each` for all records of the last base and of the log from its first entry to `end`. */
enum err copy_walk(struct bucket *bucket, const struct chain_end *end, const volatile bool *stop,
                   walk_fn each, void *context, struct walked *ret_walked,
                   struct error *error) MUST_CHECK;

/* --- copy.c --- */
/* Names the option in the sentence of an error, unless it names one. */
enum err copy_name_option(enum err err, struct error *error) MUST_CHECK;
/* Learns which large files the storage has, and what a new base makes needless. */
enum err copy_learn(struct copy *copy, const struct chain_end *end, struct error *error) MUST_CHECK;
/* Leads, if the chain's end is `end`. */
enum err copy_lead(struct copy *copy, const struct chain_end *end, struct error *error) MUST_CHECK;
