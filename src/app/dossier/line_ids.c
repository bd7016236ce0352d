/* SPDX-License-Identifier: Apache-2.0 */
#include "dossier/line_ids.h"

#include "base/mem.h"
#include "base/os.h"
#include "json/span.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)64 << 20)
#define PLACE_BYTES 512

struct line_id {
    char *id, *place;
};

void line_ids_init(struct line_ids *ids) {
    *ids = (struct line_ids){.list = NULL};
    map_init(&ids->found);
    buf_init(&ids->scratch, BUF_UNLIMITED);
}

void line_ids_release(struct line_ids *ids) {
    for (size_t i = 0; i < ids->count; i++) {
        free(ids->list[i].id);
        free(ids->list[i].place);
    }
    free(ids->list);
    map_release(&ids->found);
    buf_release(&ids->scratch);
}

enum err line_ids_add(struct line_ids *ids, struct str id, const char *place, struct error *error) {
    if (id.bytes == 0) return err_set(error, ERR_INVALID, "%.300s: the custom_id is empty", place);
    if (!map_put_new(&ids->found, id, 0, NULL)) return OK;
    if (ids->count == LINE_IDS_MAX)
        return err_set(error, ERR_LIMIT, "%.300s: more than %d ids", place, LINE_IDS_MAX);
    ids->list = vec_grow(ids->list, ids->count, &ids->capacity, sizeof *ids->list);
    ids->list[ids->count++] = (struct line_id){mem_str(id), mem_text(place)};
    return OK;
}

const char *line_ids_at(const struct line_ids *ids, size_t at) {
    return ids->list[at].id;
}

enum err line_ids_add_file(struct line_ids *ids, const char *path, struct error *error) {
    char *text, place[PLACE_BYTES];
    size_t bytes;
    unsigned long long number = 0;
    enum err err = os_read_file(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err_prefix(error, "--ids %.200s", path);
    os_drop_mark(text, &bytes);
    struct str rest = {text, bytes};
    while (rest.bytes > 0 && err == OK) {
        size_t end = str_find_byte(rest, '\n', 0);
        if (end == SIZE_MAX) end = rest.bytes;
        struct str line = str_trim((struct str){rest.at, end});
        snprintf(place, sizeof place, "--ids %.200s, line %llu", path, ++number);
        if (line.bytes > 0) err = line_ids_add(ids, line, place, error);
        rest = str_skip(rest, end + 1);
    }
    free(text);
    return err;
}

bool line_ids_have_id(struct line_ids *ids, struct str id, bool notes) {
    if (!map_get(&ids->found, id, NULL)) return false;
    if (notes) (void)map_put(&ids->found, id, 1);
    return true;
}

bool line_ids_have(struct line_ids *ids, struct str line, bool notes) {
    struct str whole;
    if (str_starts_with(line, STR("\xEF\xBB\xBF"))) line = str_skip(line, 3);
    if (!json_span_read(line, &whole) || !json_span_is_object(whole)) return false;
    struct str value = json_span_get(whole, "custom_id");
    if (!value.at || !json_span_is_string(value)) return false;
    buf_clear(&ids->scratch);
    return line_ids_have_id(ids, json_span_text(value, &ids->scratch), notes);
}

enum err line_ids_check_found(const struct line_ids *ids, const char *file, struct error *error) {
    uint64_t is_found;
    for (size_t i = 0; i < ids->count; i++)
        if (map_get(&ids->found, str_from(ids->list[i].id), &is_found) && !is_found)
            return err_set(error, ERR_NOT_FOUND,
                           "%.300s: no line of %.300s has the custom_id \"%.100s\"; nothing was "
                           "erased",
                           ids->list[i].place, file, ids->list[i].id);
    return OK;
}

bool line_ids_found_one(const struct line_ids *ids) {
    uint64_t is_found;
    for (size_t i = 0; i < ids->count; i++)
        if (map_get(&ids->found, str_from(ids->list[i].id), &is_found) && is_found) return true;
    return false;
}
