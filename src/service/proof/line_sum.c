/* SPDX-License-Identifier: Apache-2.0 */
#include "proof/line_sum.h"

#include "base/mem.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdlib.h>

#define PIECE_BYTES ((size_t)1 << 20)

void line_sum_leaf(const unsigned char salt[SHA256_BYTES], struct str line,
                   char ret_leaf[DIGEST_HEX_BYTES]) {
    struct digest leaf;
    digest_begin(&leaf, DIGEST_SHA256);
    digest_add(&leaf, salt, SHA256_BYTES);
    digest_add(&leaf, line.at, line.bytes);
    digest_end_hex(&leaf, ret_leaf);
}

static enum err begin_line(struct line_summer *is, struct error *error) {
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

static void end_line(struct line_summer *is) {
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

void line_summer_begin(struct line_summer *summer, struct line_salts *salts,
                       const struct line_erased *erased, size_t erased_count) {
    *summer = (struct line_summer){
        .salts = salts, .erased = erased, .erased_end = erased ? erased + erased_count : NULL};
    digest_begin(&summer->whole, DIGEST_SHA256);
}

enum err line_summer_add(struct line_summer *summer, struct str piece, struct error *error) {
    enum err err = OK;
    while (piece.bytes > 0 && err == OK) {
        size_t end = str_find_byte(piece, '\n', 0);
        size_t bytes = end == SIZE_MAX ? piece.bytes : end + 1;
        bool is_first = !summer->is_in_line;
        if (is_first) err = begin_line(summer, error);
        if (err != OK) return err;
        if (!summer->is_erased)
            digest_add(&summer->leaf, piece.at, bytes);
        else if (!is_first || *piece.at != '\n')
            return err_set(error, ERR_CORRUPT, "line %" PRIu64 " was erased, and is not empty",
                           summer->lines + 1);
        if (end != SIZE_MAX) end_line(summer);
        piece = str_skip(piece, bytes);
    }
    return err;
}

void line_summer_release(struct line_summer *summer) {
    digest_release(&summer->leaf);
    digest_release(&summer->whole);
}

enum err line_summer_end(struct line_summer *summer, struct line_sum *ret_sum,
                         struct error *error) {
    enum err err = OK;
    if (summer->is_in_line) end_line(summer);
    if (summer->erased != summer->erased_end)
        err =
            err_set(error, ERR_CORRUPT, "line %" PRIu64 " was erased, and the file ends before it",
                    summer->erased->line);
    if (err == OK) {
        digest_end_hex(&summer->whole, ret_sum->hex);
        ret_sum->lines = summer->lines;
    }
    line_summer_release(summer);
    return err;
}

static enum err take_file(struct line_summer *is, int fd, const volatile bool *stop,
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
        if (err == OK) err = line_summer_add(is, (struct str){piece, count}, error);
        at += count;
    }
    free(piece);
    return err;
}

enum err line_sum_file(int fd, struct line_salts *salts, const struct line_erased *erased,
                       size_t erased_count, const volatile bool *stop, struct line_sum *ret_sum,
                       struct error *error) {
    struct line_summer summer;
    line_summer_begin(&summer, salts, erased, erased_count);
    enum err err = take_file(&summer, fd, stop, error);
    if (err == OK) return line_summer_end(&summer, ret_sum, error);
    line_summer_release(&summer);
    return err;
}
