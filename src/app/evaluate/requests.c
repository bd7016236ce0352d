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

/* Lines of which some are taken at equal distances: number floor(i · all / wanted), for i from 0
 * on. */
struct layer {
    uint64_t all, wanted, number, taken;
};

static bool takes(struct layer *layer) {
    uint64_t number = layer->number++;
    if (layer->taken == layer->wanted ||
        number != (uint64_t)((__extension__(unsigned __int128) layer->taken) * layer->all /
                             layer->wanted))
        return false;
    layer->taken++;
    return true;
}

static bool is_first(const struct requests_wish *wish, struct str line) {
    return wish && wish->is_first(wish->context, line);
}

/* Fills in the layers: the lines that are wanted first, then the others. */
static enum err plan(const char *input, uint64_t sample, const struct requests_wish *wish,
                     struct layer layers[2], struct error *error) {
    struct jsonl_file file;
    struct str line;
    uint64_t all, firsts = 0;
    enum err err = requests_count(input, &all, error);
    if (err != OK) return err;
    uint64_t wanted = sample > 0 && sample < all ? sample : all;
    if (wish && wanted < all) {
        err = jsonl_file_open(&file, input, error);
        while (err == OK && jsonl_file_next(&file, &line)) firsts += is_first(wish, line);
        err = jsonl_file_end(&file, input, err, error);
    }
    uint64_t wanted_firsts = firsts < wanted ? firsts : wanted;
    layers[0] = (struct layer){.all = firsts, .wanted = wanted_firsts};
    layers[1] = (struct layer){.all = all - firsts, .wanted = wanted - wanted_firsts};
    return err;
}

static enum err copy(struct jsonl_file *file, const struct requests_wish *wish,
                     struct layer layers[2], int out_fd, struct error *error) {
    struct str line;
    struct buf out;
    enum err err = OK;
    buf_init(&out, BUF_UNLIMITED);
    while (err == OK && jsonl_file_next(file, &line)) {
        bool is_of_first = layers[0].all > 0 && is_first(wish, line);
        if (!takes(&layers[is_of_first ? 0 : 1])) continue;
        buf_clear(&out);
        buf_add_str(&out, line);
        buf_add_byte(&out, '\n');
        err = os_write_all(out_fd, out.at, out.bytes, error);
    }
    buf_release(&out);
    return err;
}

enum err requests_write(const char *input, uint64_t sample, const struct requests_wish *wish,
                        const char *path, uint64_t *ret_lines, struct error *error) {
    struct jsonl_file file;
    struct layer layers[2];
    int out_fd = -1;
    enum err err = plan(input, sample, wish, layers, error);
    if (err != OK) return err;
    *ret_lines = layers[0].wanted + layers[1].wanted;
    err = jsonl_file_open(&file, input, error);
    if (err == OK)
        err = os_open(&out_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600, error);
    if (err == OK) err = copy(&file, wish, layers, out_fd, error);
    if (err == OK) err = os_fsync(out_fd, error);
    os_close(out_fd);
    return jsonl_file_end(&file, input, err, error);
}

/* --- the same ones each time --- */

bool requests_are_of(const char *path, const char *input, uint64_t lines) {
    struct jsonl_file own, all;
    struct str line, other;
    struct error ignored;
    uint64_t count = 0;
    bool is_open = jsonl_file_open(&own, path, &ignored) == OK;
    is_open &= jsonl_file_open(&all, input, &ignored) == OK;
    bool has_line = is_open && jsonl_file_next(&own, &line);
    while (has_line && jsonl_file_next(&all, &other)) {
        if (!str_equals(line, other)) continue;
        count++;
        has_line = jsonl_file_next(&own, &line);
    }
    jsonl_file_close(&own);
    jsonl_file_close(&all);
    return is_open && !has_line && count == lines;
}

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
