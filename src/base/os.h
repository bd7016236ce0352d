/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* os: every system call that can fail and that a promise rests on, in one place, where a test can
 * make it fail.
 *
 * All calls retry EINTR and finish short reads and writes. A failed fsync is never retried: Linux
 * may have dropped the pages, so the caller must stop trusting the file (see
 * docs/internals/store.md). A full disk (ENOSPC, EDQUOT) is ERR_UNAVAILABLE, everything else ERR_IO
 * or ERR_NOT_FOUND.
 *
 * Thread: any. The fault plan is set once, before threads start. */

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

enum err os_open(int *ret_fd, const char *path, int flags, mode_t mode,
                 struct error *error) MUST_CHECK;
void os_close(int fd); /* negative is allowed */
/* One read: *ret_count is 0 at the end of the file. */
enum err os_read(int fd, void *ret_bytes, size_t count, size_t *ret_count,
                 struct error *error) MUST_CHECK;
/* All of `count` bytes, or ERR_CORRUPT when the file ends before. */
enum err os_pread_all(int fd, void *ret_bytes, size_t count, uint64_t offset,
                      struct error *error) MUST_CHECK;
enum err os_write_all(int fd, const void *bytes, size_t count, struct error *error) MUST_CHECK;
enum err os_pwrite_all(int fd, const void *bytes, size_t count, uint64_t offset,
                       struct error *error) MUST_CHECK;
enum err os_fsync(int fd, struct error *error) MUST_CHECK;
enum err os_fdatasync(int fd, struct error *error) MUST_CHECK;
enum err os_fsync_dir(const char *path, struct error *error) MUST_CHECK;
enum err os_fallocate(int fd, uint64_t offset, uint64_t bytes, struct error *error) MUST_CHECK;
enum err os_ftruncate(int fd, uint64_t bytes, struct error *error) MUST_CHECK;
enum err os_rename(const char *from, const char *to, struct error *error) MUST_CHECK;
/* A file that is not there is not an error. */
enum err os_unlink(const char *path, struct error *error) MUST_CHECK;
/* As mkdir -p, mode 0700 for what is made. */
enum err os_mkdirs(const char *path, struct error *error) MUST_CHECK;
/* As mkdir -p, with the mode that the umask leaves: for places that other programs share. */
enum err os_mkdirs_shared(const char *path, struct error *error) MUST_CHECK;
enum err os_file_bytes(int fd, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
/* Bytes an unprivileged writer can still put on the file system of `path`. */
enum err os_free_bytes(const char *path, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
/* The whole file in memory the caller frees with free(); ERR_LIMIT when it is over `bytes_max`. A
 * NUL follows the last byte. */
enum err os_read_file(const char *path, size_t bytes_max, char **ret_bytes, size_t *ret_count,
                      struct error *error) MUST_CHECK;
/* Peak resident set of this process in bytes. */
uint64_t os_peak_rss_bytes(void);

/* Makes calls fail on purpose, for tests: "CALL:N:ERRNO[:always]" items separated by commas, such
 * as "fdatasync:3:EIO" or "pwrite:10:ENOSPC:always". CALL is the name above without os_ and _all,
 * or "any", which counts them all. ERRNO may also be KILL, which kills the process before the call,
 * and for write and pwrite TEAR, which kills it with half of the bytes written. ERR_INVALID when it
 * does not parse. */
enum err os_fault_plan(const char *plan, struct error *error) MUST_CHECK;
