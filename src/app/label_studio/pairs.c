/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/pairs.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/os.h"
#include "json/json.h"
#include "json/lines.h"
#include "json/span.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct pair_place {
    int fd;
    uint64_t offset, bytes;
    bool is_used;
};

struct pairs {
    int requests_fd;
    struct map index; /* custom_id → number in `places` */
    struct pair_place *places;
    size_t count, capacity;
    struct lines requests;
    json_t *request; /* the current one */
    struct buf result, id;
};

static enum err index_file(struct pairs *pairs, int fd, struct error *error) {
    struct lines lines;
    enum err err = OK;
    if (lseek(fd, 0, SEEK_SET) < 0) return err_from_errno(error, errno, "cannot read the results");
    lines_init(&lines, fd);
    while ((err = lines_next(&lines, error)) == OK && lines.line.at) {
        struct str whole, id = {NULL, 0};
        if (json_span_read(lines.line, &whole) && json_span_is_object(whole))
            id = json_span_get(whole, "custom_id");
        if (!id.at || !json_span_is_string(id)) {
            err = err_set(error, ERR_INVALID, "line %llu of the results is no result",
                          (unsigned long long)lines.number);
            break;
        }
        buf_clear(&pairs->id);
        json_span_decode(&pairs->id, id);
        map_put(&pairs->index, buf_str(&pairs->id), pairs->count);
        pairs->places =
            vec_grow(pairs->places, pairs->count, &pairs->capacity, sizeof *pairs->places);
        pairs->places[pairs->count++] =
            (struct pair_place){fd, lines.offset, lines.line.bytes, false};
    }
    lines_release(&lines);
    return err;
}

enum err pairs_open(struct pairs **ret_pairs, int requests_fd, const int *result_fds,
                    size_t result_count, struct error *error) {
    struct pairs *pairs = mem_new(1, sizeof *pairs);
    enum err err = OK;
    pairs->requests_fd = requests_fd;
    map_init(&pairs->index);
    buf_init(&pairs->result, LINES_BYTES_MAX);
    buf_init(&pairs->id, LINES_BYTES_MAX);
    lines_init(&pairs->requests, requests_fd);
    for (size_t i = 0; i < result_count && err == OK; i++)
        err = index_file(pairs, result_fds[i], error);
    if (err == OK) err = pairs_rewind(pairs, error);
    if (err != OK) {
        pairs_close(pairs);
        return err;
    }
    *ret_pairs = pairs;
    return OK;
}

void pairs_close(struct pairs *pairs) {
    if (!pairs) return;
    json_decref(pairs->request);
    lines_release(&pairs->requests);
    buf_release(&pairs->result);
    buf_release(&pairs->id);
    map_release(&pairs->index);
    free(pairs->places);
    free(pairs);
}

enum err pairs_rewind(struct pairs *pairs, struct error *error) {
    if (lseek(pairs->requests_fd, 0, SEEK_SET) < 0)
        return err_from_errno(error, errno, "cannot read the requests");
    lines_release(&pairs->requests);
    lines_init(&pairs->requests, pairs->requests_fd);
    return OK;
}

static enum err read_result(struct pairs *pairs, struct str id, struct str *ret_result,
                            struct error *error) {
    uint64_t number;
    *ret_result = STR("");
    if (!map_get(&pairs->index, id, &number)) return OK;
    struct pair_place *place = &pairs->places[number];
    place->is_used = true;
    buf_clear(&pairs->result);
    char *room = buf_reserve(&pairs->result, place->bytes);
    if (!room) return err_set(error, ERR_LIMIT, "a result is too long");
    enum err err = os_pread_all(place->fd, room, place->bytes, place->offset, error);
    if (err != OK) return err;
    buf_commit(&pairs->result, place->bytes);
    *ret_result = buf_str(&pairs->result);
    return OK;
}

uint64_t pairs_unused(const struct pairs *pairs) {
    uint64_t count = 0;
    for (size_t i = 0; i < pairs->count; i++) count += !pairs->places[i].is_used;
    return count;
}

enum err pairs_next(struct pairs *pairs, struct pair *ret_pair, bool *ret_has,
                    struct error *error) {
    enum err err = lines_next(&pairs->requests, error);
    json_decref(pairs->request);
    pairs->request = NULL;
    *ret_has = err == OK && pairs->requests.line.at;
    if (!*ret_has) return err;
    err = json_read(&pairs->request, pairs->requests.line, error);
    if (err != OK)
        return err_prefix(error, "line %llu of the requests",
                          (unsigned long long)pairs->requests.number);
    struct pair pair = {.custom_id = json_member_str(pairs->request, "custom_id"),
                        .body = json_member(pairs->request, "body")};
    if (!pair.custom_id.at || pair.custom_id.bytes == 0)
        return err_set(error, ERR_INVALID, "line %llu of the requests has no custom_id",
                       (unsigned long long)pairs->requests.number);
    err = read_result(pairs, pair.custom_id, &pair.result, error);
    if (err == OK) *ret_pair = pair;
    return err;
}
