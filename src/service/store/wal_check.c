/* SPDX-License-Identifier: Apache-2.0 */
#include "store/wal_check.h"

#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x377F0682u
#define HEADER_BYTES 32
#define FRAME_BYTES 24
#define PAGE_BYTES_MIN 512
#define PAGE_BYTES_MAX 65536

struct sums {
    uint32_t a, b;
};

static uint32_t read_big(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t read_word(const unsigned char *at, bool is_big) {
    if (is_big) return read_big(at);
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static struct sums sums_at(const unsigned char *at) {
    return (struct sums){read_big(at), read_big(at + 4)};
}

static bool sums_equal(struct sums x, struct sums y) {
    return x.a == y.a && x.b == y.b;
}

/* `count` is a multiple of 8. */
static struct sums sum_up(struct sums sums, const unsigned char *bytes, size_t count, bool is_big) {
    for (size_t i = 0; i < count; i += 8) {
        sums.a += read_word(bytes + i, is_big) + sums.b;
        sums.b += read_word(bytes + i + 4, is_big) + sums.a;
    }
    return sums;
}

struct wal {
    int fd;
    uint32_t page_bytes;
    bool is_big;
    bool has_header; /* its sums are right */
    struct sums salts, sums;
    unsigned char *frame;
};

static bool read_header(struct wal *wal, const unsigned char header[HEADER_BYTES]) {
    uint32_t magic = read_big(header);
    wal->page_bytes = read_big(header + 8);
    wal->is_big = magic & 1;
    wal->salts = sums_at(header + 16);
    wal->sums = sums_at(header + 24);
    wal->has_header = (magic & ~1u) == MAGIC &&
                      sums_equal(sum_up((struct sums){0, 0}, header, 24, wal->is_big), wal->sums);
    return wal->page_bytes >= PAGE_BYTES_MIN && wal->page_bytes <= PAGE_BYTES_MAX &&
           (wal->page_bytes & (wal->page_bytes - 1)) == 0;
}

/* Whether the frame that was read follows the sums of the one before it. */
static bool frame_follows(const struct wal *wal, struct sums before) {
    if (!sums_equal(sums_at(wal->frame + 8), wal->salts)) return false;
    struct sums sums = sum_up(before, wal->frame, 8, wal->is_big);
    sums = sum_up(sums, wal->frame + FRAME_BYTES, wal->page_bytes, wal->is_big);
    return sums_equal(sums, sums_at(wal->frame + 16));
}

static enum err walk(struct wal *wal, uint64_t bytes, struct wal_found *found,
                     struct error *error) {
    size_t frame_bytes = FRAME_BYTES + (size_t)wal->page_bytes;
    struct sums before = wal->sums;
    uint64_t number = 0;
    bool is_open = false; /* the transaction of the first bad frame goes on */
    if (!wal->has_header) found->bad_frame = 1;
    for (uint64_t at = HEADER_BYTES; bytes - at >= frame_bytes; at += frame_bytes) {
        enum err err = os_pread_all(wal->fd, wal->frame, frame_bytes, at, error);
        if (err != OK) return err;
        number++;
        /* Without a header the frames say which salts are those of the log. */
        if (!wal->has_header && number == 1) wal->salts = sums_at(wal->frame + 8);
        bool is_good = frame_follows(wal, before), is_commit = read_big(wal->frame + 4) != 0;
        if (!is_good && found->bad_frame == 0) {
            found->bad_frame = number;
            is_open = !is_commit || !sums_equal(sums_at(wal->frame + 8), wal->salts);
        } else if (is_good && is_commit && found->bad_frame != 0) {
            if (!is_open) found->commits_after++;
            is_open = false;
        }
        before = sums_at(wal->frame + 16);
    }
    return OK;
}

enum err wal_check(const char *path, struct wal_found *ret_found, struct error *error) {
    unsigned char header[HEADER_BYTES];
    struct wal wal = {0};
    uint64_t bytes;
    *ret_found = (struct wal_found){0};
    enum err err = os_open(&wal.fd, path, O_RDONLY | O_NOFOLLOW, 0, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err;
    err = os_file_bytes(wal.fd, &bytes, error);
    if (err == OK && bytes > HEADER_BYTES) {
        err = os_pread_all(wal.fd, header, sizeof header, 0, error);
        if (err == OK && read_header(&wal, header)) {
            wal.frame = mem_alloc(FRAME_BYTES + (size_t)wal.page_bytes);
            err = walk(&wal, bytes, ret_found, error);
            free(wal.frame);
        }
    }
    os_close(wal.fd);
    return err;
}
