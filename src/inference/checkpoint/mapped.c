/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/mapped.h"

#include "base/os.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum err mapped_open(struct mapped *ret_file, const char *path, const char *kind,
                     struct error *error) {
    int fd;
    /* O_NONBLOCK, so that a FIFO is refused below and does not wait for a writer here. */
    enum err err = os_open(&fd, path, O_RDONLY | O_NONBLOCK, 0, error);
    if (err != OK) return err;
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || stat.st_size <= 0) {
        os_close(fd);
        return err_set(error, ERR_INVALID, "this is no %s file: it is empty or no regular file",
                       kind);
    }
    void *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    os_close(fd);
    if (bytes == MAP_FAILED)
        return err_set(error, ERR_IO, "cannot map the %lld bytes of the model file",
                       (long long)stat.st_size);
    *ret_file = (struct mapped){bytes, (uint64_t)stat.st_size};
    return OK;
}

void mapped_close(const struct mapped *file) {
    /* munmap takes no const pointer, and the mapping was never written to. */
    if (file->bytes) (void)munmap((void *)(uintptr_t)file->bytes, (size_t)file->count);
}

void mapped_drop_pages(const unsigned char *bytes, uint64_t count) {
    const uintptr_t page = 4096;
    uintptr_t from = ((uintptr_t)bytes + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)bytes + count) & ~(page - 1);
    if (from < to) (void)madvise((void *)from, to - from, MADV_DONTNEED); /* advice only */
}
