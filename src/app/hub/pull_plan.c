/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_plan.h"

#include "base/mem.h"
#include "hub/catalog_path.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS_BYTES_MAX ((size_t)64 << 20)
#define PART_BYTES_MAX 255 /* the longest file name of Linux's file systems */

void pull_listing_init(struct pull_listing *listing) {
    *listing = (struct pull_listing){.files = NULL};
    arena_init(&listing->texts, TEXTS_BYTES_MAX);
}

void pull_listing_release(struct pull_listing *listing) {
    arena_release(&listing->texts);
    free(listing->files);
    *listing = (struct pull_listing){.files = NULL};
}

/* --- names --- */

static bool is_dots(struct str part) {
    return str_is(part, ".") || str_is(part, "..");
}

/* Whether a control character begins at `at`: one of ASCII, or U+0080 to U+009F. */
static bool is_control(struct str text, size_t at) {
    unsigned char byte = at < text.bytes ? (unsigned char)text.at[at] : ' ';
    unsigned char next = at + 1 < text.bytes ? (unsigned char)text.at[at + 1] : ' ';
    return byte < 0x20 || byte == 0x7F || (byte == 0xC2 && next >= 0x80 && next <= 0x9F);
}

/* Whether a name may become a path below a folder: relative, and without parts that lead out. */
static bool is_path(struct str path) {
    size_t from = 0, depth = 0;
    if (path.bytes == 0 || path.bytes > PULL_PATH_BYTES_MAX) return false;
    for (size_t at = 0; at <= path.bytes; at++) {
        unsigned char byte = at < path.bytes ? (unsigned char)path.at[at] : '/';
        if (is_control(path, at) || byte == '\\') return false;
        if (byte != '/') continue;
        struct str part = {path.at + from, at - from};
        if (part.bytes == 0 || part.bytes > PART_BYTES_MAX || is_dots(part)) return false;
        if (++depth > PULL_DEPTH_MAX) return false;
        from = at + 1;
    }
    return true;
}

/* Whether a name has at most `parts_max` parts between '/', each one that catalog_is_part takes. */
static bool is_parts(struct str name, size_t parts_max) {
    size_t parts = 0;
    for (size_t from = 0; from <= name.bytes; parts++) {
        size_t to = str_find_byte(name, '/', from);
        if (to == SIZE_MAX) to = name.bytes;
        if (!catalog_is_part((struct str){name.at + from, to - from})) return false;
        from = to + 1;
    }
    return parts <= parts_max;
}

bool pull_is_repository(struct str name) {
    /* In the name of a repository's folder, "--" stands for '/'. */
    return is_parts(name, 2) && str_find(name, STR("--"), 0) == SIZE_MAX;
}

bool pull_is_revision(struct str name) {
    return name.bytes <= 200 && is_parts(name, PULL_DEPTH_MAX);
}

/* --- what the hub says --- */

static bool read_hex(struct str text, size_t digits, char *ret_hex) {
    if (!catalog_is_hex(text, digits)) return false;
    memcpy(ret_hex, text.at, digits);
    ret_hex[digits] = '\0';
    return true;
}

/* Takes one object of the list. Folders are left out: their files are entries of their own. */
static enum err read_file(struct pull_listing *listing, const json_t *entry, struct error *error) {
    struct pull_file file = {.bytes = 0};
    struct str path = json_member_str(entry, "path");
    if (!json_is_object(entry)) return err_set(error, ERR_INVALID, "an entry is no object");
    if (!str_is(json_member_str(entry, "type"), "file")) return OK;
    if (!is_path(path)) return err_set(error, ERR_INVALID, "it names a file that is no safe path");
    const json_t *lfs = json_member(entry, "lfs");
    const json_t *size = json_member(json_is_object(lfs) ? lfs : entry, "size");
    bool is_good = json_is_object(lfs) ? read_hex(json_member_str(lfs, "oid"), 64, file.digest)
                                       : read_hex(json_member_str(entry, "oid"), 40, file.digest);
    json_int_t bytes = json_is_integer(size) ? json_integer_value(size) : -1;
    if (!is_good || bytes < 0 || (uint64_t)bytes > PULL_FILE_BYTES_MAX)
        return err_set(error, ERR_INVALID, "the size or the sum of '%.*s' is none",
                       (int)(path.bytes < 200 ? path.bytes : 200), path.at);
    file.bytes = (uint64_t)bytes;
    file.path = arena_copy(&listing->texts, path).at;
    if (listing->count == PULL_FILES_MAX || !file.path)
        return err_set(error, ERR_INVALID, "it names more than %d files", PULL_FILES_MAX);
    listing->files =
        vec_grow(listing->files, listing->count, &listing->room, sizeof *listing->files);
    listing->files[listing->count++] = file;
    return OK;
}

enum err pull_listing_read(struct pull_listing *listing, struct str page, struct error *error) {
    json_t *value;
    enum err err = json_read(&value, page, error);
    if (err != OK) return err_prefix(error, "the hub's list of files");
    if (!json_is_array(value)) err = err_set(error, ERR_INVALID, "it is no array");
    for (size_t i = 0; err == OK && i < json_array_size(value); i++)
        err = read_file(listing, json_array_get(value, i), error);
    json_decref(value);
    return err == OK ? OK : err_prefix(error, "the hub's list of files");
}

enum err pull_commit_read(struct str page, char ret_commit[PULL_COMMIT_BYTES],
                          struct error *error) {
    json_t *value;
    enum err err = json_read(&value, page, error);
    if (err != OK) return err_prefix(error, "the hub's answer");
    if (!json_is_object(value) || !read_hex(json_member_str(value, "sha"), 40, ret_commit))
        err = err_set(error, ERR_INVALID, "the hub's answer has no commit");
    json_decref(value);
    return err;
}

bool pull_next_read(struct str header, char ret_url[PULL_URL_BYTES]) {
    for (size_t at = 0; (at = str_find_byte(header, '<', at)) != SIZE_MAX;) {
        size_t end = str_find_byte(header, '>', at);
        if (end == SIZE_MAX) return false;
        size_t next = str_find_byte(header, '<', end);
        struct str url = {header.at + at + 1, end - at - 1};
        struct str rest = {header.at + end, (next == SIZE_MAX ? header.bytes : next) - end};
        if (str_find(rest, STR("rel=\"next\""), 0) != SIZE_MAX) {
            if (url.bytes == 0 || url.bytes >= PULL_URL_BYTES || memchr(url.at, '\0', url.bytes))
                return false;
            memcpy(ret_url, url.at, url.bytes);
            ret_url[url.bytes] = '\0';
            return true;
        }
        at = end;
    }
    return false;
}
