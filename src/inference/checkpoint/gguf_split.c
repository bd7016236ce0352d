/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gguf_split.h"

#include "checkpoint/gguf.h"

#include <stdio.h>
#include <string.h>

#define ENDING "-00001-of-00003.gguf"

static bool read_number(struct str text, unsigned *ret_number) {
    uint64_t number;
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] < '0' || text.at[i] > '9') return false;
    if (!str_to_u64(text, &number)) return false;
    *ret_number = (unsigned)number;
    return true;
}

bool gguf_part_name(const char *path, struct gguf_part_name *ret_name) {
    struct str text = str_from(path);
    const size_t bytes = sizeof ENDING - 1;
    struct gguf_part_name name;
    if (text.bytes <= bytes) return false;
    name.stem_bytes = text.bytes - bytes;
    struct str ending = str_skip(text, name.stem_bytes);
    bool is_ending = ending.at[0] == '-' && str_is((struct str){ending.at + 6, 4}, "-of-") &&
                     str_ends_with(ending, STR(".gguf")) &&
                     read_number((struct str){ending.at + 1, 5}, &name.part) &&
                     read_number((struct str){ending.at + 10, 5}, &name.parts);
    if (!is_ending || name.part < 1 || name.part > name.parts) return false;
    *ret_name = name;
    return true;
}

bool gguf_part_path(const char *path, const struct gguf_part_name *name, unsigned part,
                    char ret_path[PATH_MAX]) {
    return snprintf(ret_path, PATH_MAX, "%.*s-%05u-of-%05u.gguf", (int)name->stem_bytes, path, part,
                    name->parts) < PATH_MAX;
}

/* ---- opening all parts ---- */

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What a part says about itself. */
struct split {
    uint32_t part; /* split.no, from 0 */
    uint32_t parts;
    uint32_t tensors; /* tensors in all parts; 0: not stated */
};

static enum err read_split(const struct gguf *gguf, struct split *ret_split, struct error *error) {
    *ret_split = (struct split){.parts = 1};
    enum err err = gguf_get_u32(gguf, "split.count", &ret_split->parts, error);
    if (err == OK) err = gguf_get_u32(gguf, "split.no", &ret_split->part, error);
    if (err == OK) err = gguf_get_u32(gguf, "split.tensors.count", &ret_split->tensors, error);
    return err;
}

/* The file that was asked for must be the first part, and named so that the others are found. */
static enum err check_first(const char *path, const struct split *split,
                            struct gguf_part_name *ret_name, struct error *error) {
    char first[PATH_MAX];
    if (split->parts > GGUF_PARTS_MAX)
        return err_set(error, ERR_INVALID, "split.count is %u, over the limit of %u", split->parts,
                       GGUF_PARTS_MAX);
    bool is_named = gguf_part_name(path, ret_name);
    if (!is_named || ret_name->parts != split->parts)
        return err_set(error, ERR_INVALID,
                       "this is part %u of %u of a model, but its name does not end in "
                       "-%05u-of-%05u.gguf, so that the other parts are not found",
                       split->part + 1, split->parts, split->part + 1, split->parts);
    if (split->part + 1 != ret_name->part)
        return err_set(error, ERR_INVALID, "split.no is %u in the file %s", split->part,
                       file_name(path));
    if (split->part == 0) return OK;
    bool fits = gguf_part_path(path, ret_name, 1, first);
    return err_set(error, ERR_INVALID, "this is part %u of %u of a model: open the first, %s",
                   ret_name->part, ret_name->parts, fits ? file_name(first) : "-00001-of-…");
}

static enum err join_part(struct gguf *whole, const char *path, const struct split *wanted,
                          struct error *error) {
    struct gguf *part;
    struct split split;
    enum err err = gguf_open_file(&part, path, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, ERR_INVALID, "part %u of %u is missing: there is no %s",
                       wanted->part + 1, wanted->parts, file_name(path));
    if (err != OK) return err_prefix(error, "%.100s", file_name(path));
    err = read_split(part, &split, error);
    bool is_wanted = err == OK && split.part == wanted->part && split.parts == wanted->parts &&
                     split.tensors == wanted->tensors;
    if (err == OK && !is_wanted)
        err = err_set(error, ERR_INVALID,
                      "it is part %u of %u with %u tensors in all, not part %u of %u with %u",
                      split.part + 1, split.parts, split.tensors, wanted->part + 1, wanted->parts,
                      wanted->tensors);
    if (err == OK) err = gguf_join(whole, part, error);
    if (err != OK) {
        gguf_close(part);
        return err_prefix(error, "%.100s", file_name(path));
    }
    return OK;
}

static enum err join_parts(struct gguf *whole, const char *path, struct error *error) {
    struct split split;
    struct gguf_part_name name;
    char other[PATH_MAX];
    enum err err = read_split(whole, &split, error);
    if (err != OK || split.parts <= 1) return err;
    err = check_first(path, &split, &name, error);
    while (err == OK && ++split.part < split.parts) {
        if (!gguf_part_path(path, &name, split.part + 1, other))
            return err_set(error, ERR_INVALID, "the path of part %u is too long", split.part + 1);
        err = join_part(whole, other, &split, error);
    }
    if (err == OK && split.tensors > 0 && gguf_tensor_count(whole) != split.tensors)
        err =
            err_set(error, ERR_INVALID, "the %u parts have %zu tensors, not the %u that they state",
                    split.parts, gguf_tensor_count(whole), split.tensors);
    return err;
}

enum err gguf_open(struct gguf **ret_gguf, const char *path, struct error *error) {
    struct gguf *gguf;
    enum err err = gguf_open_file(&gguf, path, error);
    if (err != OK) return err;
    err = join_parts(gguf, path, error);
    if (err == OK)
        *ret_gguf = gguf;
    else
        gguf_close(gguf);
    return err;
}
