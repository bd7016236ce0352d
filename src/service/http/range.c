/* SPDX-License-Identifier: Apache-2.0 */
#include "http/range.h"

/* True if the list of entity tags has `etag` (weak comparison) or is "*". */
static bool has_tag(struct str list, struct str etag) {
    if (str_is(str_trim(list), "*")) return true;
    while (list.bytes > 0) {
        size_t comma = str_find_byte(list, ',', 0);
        struct str tag = str_trim((struct str){list.at, comma == SIZE_MAX ? list.bytes : comma});
        list = str_skip(list, comma == SIZE_MAX ? list.bytes : comma + 1);
        if (str_starts_with(tag, STR("W/"))) tag = str_skip(tag, 2);
        if (str_equals(tag, etag)) return true;
    }
    return false;
}

/* Reads `first-last`, `first-` or `-suffix`; false for any other text. */
static bool read_spec(struct str spec, uint64_t file_bytes, uint64_t *ret_first,
                      uint64_t *ret_last) {
    size_t dash = str_find_byte(spec, '-', 0);
    if (dash == SIZE_MAX) return false;
    struct str from = str_trim((struct str){spec.at, dash});
    struct str to = str_trim(str_skip(spec, dash + 1));
    uint64_t first = 0, last = UINT64_MAX;
    if (from.bytes == 0) {
        uint64_t suffix;
        if (!str_to_u64(to, &suffix)) return false;
        /* A suffix of 0 bytes names no byte: put the first one past the end. */
        *ret_first = suffix == 0 ? UINT64_MAX : suffix > file_bytes ? 0 : file_bytes - suffix;
        *ret_last = UINT64_MAX;
        return true;
    }
    if (!str_to_u64(from, &first)) return false;
    if (to.bytes > 0 && (!str_to_u64(to, &last) || last < first)) return false;
    *ret_first = first;
    *ret_last = last;
    return true;
}

enum range_answer range_read(struct str range, struct str if_range, struct str if_none_match,
                             struct str etag, uint64_t file_bytes, struct range *ret_range) {
    *ret_range = (struct range){0, file_bytes};
    if (if_none_match.bytes > 0 && has_tag(if_none_match, etag)) return RANGE_NOT_MODIFIED;
    if (range.bytes == 0 || (if_range.bytes > 0 && !str_equals(str_trim(if_range), etag)))
        return RANGE_WHOLE;
    uint64_t first, last;
    if (!str_starts_with(range, STR("bytes="))) return RANGE_WHOLE;
    struct str spec = str_skip(range, 6);
    if (str_find_byte(spec, ',', 0) != SIZE_MAX || !read_spec(spec, file_bytes, &first, &last))
        return RANGE_WHOLE;
    if (first >= file_bytes) return RANGE_UNSATISFIABLE;
    if (last >= file_bytes) last = file_bytes - 1;
    *ret_range = (struct range){first, last - first + 1};
    return RANGE_PART;
}
