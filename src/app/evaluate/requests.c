/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/requests.h"

#include "base/os.h"
#include "batch/jsonl_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)64 << 10)

enum err requests_count(const char *path, uint64_t *ret_lines, struct error *error) {
    struct jsonl_file file;
    struct str line;
    uint64_t count = 0;
    enum err err = jsonl_file_open(&file, path, error);
    while (err == OK && jsonl_file_next(&file, &line)) count++;
    err = jsonl_file_end(&file, path, err, error);
    if (err == OK && count == 0) err = err_set(error, ERR_INVALID, "%s has no requests", path);
    *ret_lines = count;
    return err;
}

/* Copies line number floor(i · all / wanted), for i from 0 on. */
static enum err copy(struct jsonl_file *file, uint64_t all, uint64_t wanted, int out_fd,
                     struct error *error) {
    struct str line;
    struct buf out;
    uint64_t number = 0, taken = 0;
    enum err err = OK;
    buf_init(&out, BUF_UNLIMITED);
    while (err == OK && taken < wanted && jsonl_file_next(file, &line)) {
        if (number++ != (uint64_t)((__extension__(unsigned __int128) taken) * all / wanted))
            continue;
        taken++;
        buf_clear(&out);
        buf_add_str(&out, line);
        buf_add_byte(&out, '\n');
        err = os_write_all(out_fd, out.at, out.bytes, error);
    }
    buf_release(&out);
    return err;
}

enum err requests_write(const char *input, uint64_t sample, const char *path, uint64_t *ret_lines,
                        struct error *error) {
    struct jsonl_file file;
    uint64_t all;
    int out_fd = -1;
    enum err err = requests_count(input, &all, error);
    if (err != OK) return err;
    *ret_lines = sample > 0 && sample < all ? sample : all;
    err = jsonl_file_open(&file, input, error);
    if (err == OK)
        err = os_open(&out_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, error);
    if (err == OK) err = copy(&file, all, *ret_lines, out_fd, error);
    if (err == OK) err = os_fsync(out_fd, error);
    os_close(out_fd);
    return jsonl_file_end(&file, input, err, error);
}

/* --- the same ones each time --- */

static bool are_equal(FILE *a, FILE *b) {
    static char left[PIECE], right[PIECE];
    size_t count;
    do {
        count = fread(left, 1, PIECE, a);
        if (fread(right, 1, PIECE, b) != count || memcmp(left, right, count) != 0) return false;
    } while (count == PIECE);
    return true;
}

static bool are_equal_files(const char *a, const char *b) {
    FILE *left = fopen(a, "rb"), *right = fopen(b, "rb");
    bool equal = left && right && are_equal(left, right);
    if (left) fclose(left);
    if (right) fclose(right);
    return equal;
}

enum err requests_place(const char *fresh, const char *path, struct error *error) {
    if (access(path, F_OK) != 0) return os_rename(fresh, path, error);
    bool is_same = are_equal_files(fresh, path);
    (void)unlink(fresh);
    return is_same ? OK
                   : err_set(error, ERR_INVALID,
                             "%s is of an evaluation of other requests; choose another folder (-o)",
                             path);
}
