/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* os: the system calls that can fail and that a promise of quern rests on. They stand in one place
 * so that a test can make each of them fail.
 *
 * All calls retry EINTR and finish short reads and writes, but for a pipe: while it is opened or
 * read, the command's stop flag ends the wait with ERR_CANCELLED (os_pipe.h). A failed fsync is
 * never retried: Linux may have dropped the pages, so the caller must stop trusting the file
 * (docs/internals/service/store.md). A full disk (ENOSPC, EDQUOT) is ERR_UNAVAILABLE; want of
 * descriptors or memory (EMFILE, ENFILE, ENOMEM) is ERR_EXHAUSTED, but never of a sync: a sync that
 * fails has failed. Any other failure is ERR_IO or ERR_NOT_FOUND.
 *
 * Thread: any; the fault plan is set once, before threads start.
 * Memory: none but for os_read_file. */

#include "base/err.h"
#include "base/str.h"

#include <dirent.h>
#include <sys/types.h>

enum err os_open(int *ret_fd, const char *path, int flags, mode_t mode,
                 struct error *error) MUST_CHECK;
/* As os_open, with `path` relative to an open directory. */
enum err os_open_at(int *ret_fd, int dir_fd, const char *path, int flags, mode_t mode,
                    struct error *error) MUST_CHECK;
/* Makes a new file with that mode, open for reading and writing. It first removes what has the
 * name: the rest of a killed process, or a link, which is never followed. */
enum err os_create(int *ret_fd, const char *path, mode_t mode, struct error *error) MUST_CHECK;
enum err os_create_at(int *ret_fd, int dir_fd, const char *name, mode_t mode,
                      struct error *error) MUST_CHECK;
void os_close(int fd); /* negative is allowed */
/* Makes one read; *ret_count is 0 at the end of the file. It waits also where `fd` does not block. */
enum err os_read(int fd, void *ret_bytes, size_t count, size_t *ret_count,
                 struct error *error) MUST_CHECK;
/* Reads all of `count` bytes; ERR_CORRUPT if the file ends before. */
enum err os_pread_all(int fd, void *ret_bytes, size_t count, uint64_t offset,
                      struct error *error) MUST_CHECK;
enum err os_write_all(int fd, const void *bytes, size_t count, struct error *error) MUST_CHECK;
enum err os_pwrite_all(int fd, const void *bytes, size_t count, uint64_t offset,
                       struct error *error) MUST_CHECK;
enum err os_fsync(int fd, struct error *error) MUST_CHECK;
enum err os_fdatasync(int fd, struct error *error) MUST_CHECK;
enum err os_fsync_dir(const char *path, struct error *error) MUST_CHECK;
/* Syncs the folder of a file, so that its name is durable. */
enum err os_fsync_parent(const char *file, struct error *error) MUST_CHECK;
/* Open a folder, and the folder of a file, for a later os_fsync. Who opens it before the change
 * that the sync makes durable needs no descriptor after it. */
enum err os_open_dir(int *ret_fd, const char *path, struct error *error) MUST_CHECK;
enum err os_open_parent(int *ret_fd, const char *file, struct error *error) MUST_CHECK;
enum err os_fallocate(int fd, uint64_t offset, uint64_t bytes, struct error *error) MUST_CHECK;
enum err os_ftruncate(int fd, uint64_t bytes, struct error *error) MUST_CHECK;
enum err os_rename(const char *from, const char *to, struct error *error) MUST_CHECK;
enum err os_rename_at(int dir_fd, const char *from, const char *to, struct error *error) MUST_CHECK;
/* Gives a file a further name. ERR_CONFLICT if a file has that name, ERR_DENIED where the file
 * system has no links. A plan counts it as a rename. */
enum err os_link(const char *from, const char *to, struct error *error) MUST_CHECK;
/* A file that does not exist is no error. */
enum err os_unlink(const char *path, struct error *error) MUST_CHECK;
/* As opendir, for a folder in which entries may be removed: a link is never followed (ENOTDIR). */
DIR *os_opendir(const char *path);
/* As mkdir -p; new folders have mode 0700. */
enum err os_mkdirs(const char *path, struct error *error) MUST_CHECK;
/* As os_mkdirs, and makes the names of new folders durable. The last one's is synced in any case,
 * because a process that was killed may have made it; unless this user may not read its parent. */
enum err os_mkdirs_durable(const char *path, struct error *error) MUST_CHECK;
/* As mkdir -p; new folders have the mode that the umask leaves, for other programs use them too. */
enum err os_mkdirs_shared(const char *path, struct error *error) MUST_CHECK;
/* The end of the bytes that were written to a file of `bytes` bytes: space that was taken and never
 * written is zeros, and need not be read. `bytes` where the file system does not know. Reading
 * makes it forget, so ask before the first read. */
uint64_t os_data_end(int fd, uint64_t bytes);
enum err os_file_bytes(int fd, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
/* Free bytes for an unprivileged writer on the file system of `path`. */
enum err os_free_bytes(const char *path, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
/* Reads the whole file and puts a NUL behind it; the caller frees it with free(). ERR_LIMIT if the
 * file is over `bytes_max`. A pipe is read to its end. */
enum err os_read_file(const char *path, size_t bytes_max, char **ret_bytes, size_t *ret_count,
                      struct error *error) MUST_CHECK;
/* As os_read_file, of an open file; `path` is for sentences only. */
enum err os_read_opened(int fd, const char *path, size_t bytes_max, char **ret_bytes,
                        size_t *ret_count, struct error *error) MUST_CHECK;
/* Drops the byte-order mark with which editors on Windows begin a text of UTF-8. The text of
 * os_read_file has a NUL behind it, which moves as well. */
void os_drop_mark(char *text, size_t *bytes);
/* Makes a new file of these bytes, as os_create does, and syncs it. Its name is durable once its
 * folder is synced. After a failure a part of the file may be there. */
enum err os_write_file(const char *path, mode_t mode, const void *bytes, size_t count,
                       struct error *error) MUST_CHECK;
/* Peak resident set of this process in bytes. */
uint64_t os_peak_rss_bytes(void);
/* Resident bytes of another process, shared ones included; 0: not known. */
uint64_t os_rss_bytes(pid_t pid);
/* The longest time that a thread of another process, since its start, was ready to run and had no
 * processor, in ns; 0: not known. Threads that ended do not count. */
uint64_t os_processor_wait_ns(pid_t pid);

/* Makes calls fail on purpose, for tests. A plan is a list of CALL:N:ERRNO[:always] with commas
 * between them, such as "fdatasync:3:EIO" or "pwrite:10:ENOSPC:always":
 *   CALL     a name above without os_ and _all, or "any" for all of them together
 *   N        the call that fails, counted from 1
 *   ERRNO    the name of an errno
 *            KILL   kills the process before the call
 *            TEAR   of write and pwrite: writes half of the bytes, then kills the process
 *   always   every later call fails as well
 * ERR_INVALID if it does not parse. */
enum err os_fault_plan(const char *plan, struct error *error) MUST_CHECK;
