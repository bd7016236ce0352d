/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/line_sum.h"

#include "base/mem.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdlib.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* A file on its way. */
struct summing {
    struct line_salts *salts;
    const struct line_erased *erased, *erased_end; /* the next one */
    struct digest whole, leaf;
    bool is_in_line;
    bool is_erased; /* the line that is under way */
    uint64_t lines; /* that have ended */
};

void line_sum_leaf(const unsigned char salt[SHA256_BYTES], struct str line,
                   char ret_leaf[DIGEST_HEX_BYTES]) {
    struct digest leaf;
    digest_begin(&leaf, DIGEST_SHA256);
    digest_add(&leaf, salt, SHA256_BYTES);
    digest_add(&leaf, line.at, line.bytes);
    digest_end_hex(&leaf, ret_leaf);
}

static enum err begin_line(struct summing *is, struct error *error) {
    unsigned char salt[SHA256_BYTES];
    is->is_in_line = true;
    is->is_erased = is->erased < is->erased_end && is->erased->line == is->lines + 1;
    if (is->is_erased) return OK;
    if (!line_salts_get(is->salts, is->lines, salt))
        return err_set(error, ERR_CORRUPT,
                       "line %" PRIu64 " has no salt, and is not noted as erased", is->lines + 1);
    digest_begin(&is->leaf, DIGEST_SHA256);
    digest_add(&is->leaf, salt, sizeof salt);
    return OK;
}

static void end_line(struct summing *is) {
    char hex[DIGEST_HEX_BYTES];
    if (is->is_erased)
        digest_add(&is->whole, is->erased++->leaf, DIGEST_HEX_BYTES - 1);
    else {
        digest_end_hex(&is->leaf, hex);
        digest_add(&is->whole, hex, DIGEST_HEX_BYTES - 1);
    }
    digest_add(&is->whole, "\n", 1);
    is->is_in_line = false;
    is->lines++;
}

static enum err take(struct summing *is, struct str piece, struct error *error) {
    enum err err = OK;
    while (piece.bytes > 0 && err == OK) {
        size_t end = str_find_byte(piece, '\n', 0);
        size_t bytes = end == SIZE_MAX ? piece.bytes : end + 1;
        bool is_first = !is->is_in_line;
        if (is_first) err = begin_line(is, error);
        if (err != OK) return err;
        if (!is->is_erased)
            digest_add(&is->leaf, piece.at, bytes);
        else if (!is_first || *piece.at != '\n')
            return err_set(error, ERR_CORRUPT, "line %" PRIu64 " was erased, and is not empty",
                           is->lines + 1);
        if (end != SIZE_MAX) end_line(is);
        piece = str_skip(piece, bytes);
    }
    return err;
}

static enum err take_file(struct summing *is, int fd, const volatile bool *stop,
                          struct error *error) {
    uint64_t bytes = 0, at = 0;
    char *piece = mem_alloc(PIECE_BYTES);
    enum err err = os_file_bytes(fd, &bytes, error);
    while (err == OK && at < bytes) {
        size_t count = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        if (stop && *stop)
            err = err_set(error, ERR_CANCELLED, "stopped");
        else
            err = os_pread_all(fd, piece, count, at, error);
        if (err == OK) err = take(is, (struct str){piece, count}, error);
        at += count;
    }
    free(piece);
    return err;
}

enum err line_sum_file(int fd, struct line_salts *salts, const struct line_erased *erased,
                       size_t erased_count, const volatile bool *stop, struct line_sum *ret_sum,
                       struct error *error) {
    struct summing is = {
        .salts = salts, .erased = erased, .erased_end = erased ? erased + erased_count : NULL};
    digest_begin(&is.whole, DIGEST_SHA256);
    enum err err = take_file(&is, fd, stop, error);
    if (err == OK && is.is_in_line) end_line(&is);
    if (err == OK && is.erased != is.erased_end)
        err = err_set(error, ERR_CORRUPT,
                      "line %" PRIu64 " was erased, and the file ends before it", is.erased->line);
    if (err == OK) {
        digest_end_hex(&is.whole, ret_sum->hex);
        ret_sum->lines = is.lines;
    }
    digest_release(&is.leaf);
    digest_release(&is.whole);
    return err;
}
