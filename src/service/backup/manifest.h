/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* manifest: what one generation of a backup consists of.
 *
 * A manifest is text, so that a person can read it in an emergency. Each line ends in LF, and words
 * are separated by one space. Numbers are decimal, without a sign.
 *
 *   quern-backup 1               magic and version
 *   generation N                 from 1 on
 *   version TEXT                 of the quern that made it
 *   schema N                     version of the database's tables
 *   begun N                      Unix time in seconds; what was durable before is in it
 *   ended N
 *   moved 0|1                    1: made by --move, so that its origin no longer runs
 *   batches N
 *   unfinished N                 batches that go on after a restore
 *   object N BYTES STAMP SUM PATH   per file of the state directory, ascending by PATH:
 *       N      generation that made the object, at most this one
 *       BYTES  how many of the object's first bytes are the file
 *       STAMP  16 hex digits: a mark of the file's inode, size and times; zeros: unknown
 *       SUM    SHA-256 of those bytes, 64 hex digits
 *       PATH   below the state directory; one of the forms of backup_path_is_sane
 *   end COUNT SUM                COUNT of objects, SHA-256 of all bytes before this line
 *
 * A manifest is valid if (1) it has these lines in this order and no other byte, (2) paths ascend,
 * each of a known form, (3) no object is of a later generation, and (4) count and sum of the last
 * line are right. It is written under another name and renamed, so that a valid one is whole.
 *
 * Thread: one per struct.
 * Memory: backup_manifest_release frees the objects. */

#include "base/buf.h"
#include "base/hash.h"

#define BACKUP_PATH_BYTES 96 /* room for every path of a state directory, with its NUL */
#define BACKUP_MANIFEST_BYTES_MAX ((size_t)1 << 30)
#define BACKUP_TIME_BYTES 32

/* One file of the state directory. */
struct backup_object {
    char path[BACKUP_PATH_BYTES];
    uint64_t generation;
    uint64_t bytes;
    uint64_t stamp; /* 0: unknown */
    unsigned char sha256[SHA256_BYTES];
};

struct backup_manifest {
    uint64_t generation;
    char version[32];
    int64_t schema;
    int64_t begun_unix_s;
    int64_t ended_unix_s;
    bool is_moved;
    uint64_t batches;
    uint64_t unfinished;
    struct backup_object *objects; /* ascending by path once sorted or read */
    size_t count;
    size_t capacity;
};

/* Writes "2026-11-23 03:40:05 UTC", the form of times in all sentences about backups. */
void backup_time_text(int64_t unix_s, char ret_text[BACKUP_TIME_BYTES]);

/* True for "meta.db", "keys.jsonl", "keys.made", "files/ab/<id>", "parts/<id>",
 * "batches/<id>/lines.idx", "batches/<id>/order.idx", "batches/<id>/order.X.idx" and "batches/<id>/seg-NNNNNN.log". */
bool backup_path_is_sane(struct str path);

void backup_manifest_release(struct backup_manifest *manifest);
/* Appends an object; the path is one of ours. */
struct backup_object *backup_manifest_add(struct backup_manifest *manifest, const char *path);
/* Sorts the objects; of several with one path the last added stays. */
void backup_manifest_sort(struct backup_manifest *manifest);
/* The object of that path of a sorted manifest, or NULL. */
const struct backup_object *backup_manifest_find(const struct backup_manifest *manifest,
                                                 const char *path);
/* Bytes of all objects together. */
uint64_t backup_manifest_bytes(const struct backup_manifest *manifest);

void backup_manifest_write(const struct backup_manifest *manifest, struct buf *buf);
/* ERR_CORRUPT if the text is no valid manifest; the sentence names the line. ERR_CONFLICT for one
 * of a later version. */
enum err backup_manifest_read(struct str text, struct backup_manifest *ret_manifest,
                              struct error *error) MUST_CHECK;
