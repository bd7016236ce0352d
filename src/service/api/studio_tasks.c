/* SPDX-License-Identifier: Apache-2.0 */

/* How many tasks of Label Studio the links of a batch name (label_studio/link.h). */

#include "api/studio.h"

#include "api/api_internal.h"
#include "base/map.h"
#include "base/os.h"
#include "batch/jsonl_file.h"
#include "json/span.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Counts members of `tasks` that are in the map with 0, and makes them 1: each counts once. */
static uint64_t count_in(struct map *ids, struct str tasks, struct buf *scratch) {
    struct json_span_iter iter;
    struct str key, value;
    uint64_t count = 0, was;
    if (!json_span_enter(&iter, tasks)) return 0;
    while (json_span_member(&iter, &key, &value)) {
        struct str id = json_span_text(key, scratch);
        if (!map_get(ids, id, &was) || was) continue;
        map_put(ids, id, 1);
        count++;
    }
    return count;
}

static uint64_t count_in_link(const char *path, struct map *ids) {
    struct jsonl_file file;
    struct buf scratch;
    struct error ignored;
    struct str line;
    uint64_t count = 0;
    buf_init(&scratch, BUF_UNLIMITED);
    (void)jsonl_file_open(&file, path, &ignored);
    while (jsonl_file_next(&file, &line)) {
        if (!json_span_read(line, NULL) || !json_span_is_object(line)) continue;
        struct str tasks = json_span_get(line, "tasks");
        if (tasks.at && json_span_is_object(tasks)) count += count_in(ids, tasks, &scratch);
    }
    jsonl_file_close(&file);
    buf_release(&scratch);
    return count;
}

uint64_t studio_count_tasks(struct api *api, const char *batch_id, const struct str *custom_ids,
                            size_t count) {
    char folder[PATH_MAX], path[PATH_MAX];
    struct map ids;
    uint64_t tasks = 0;
    size_t bytes = strlen(batch_id);
    snprintf(folder, sizeof folder, "%.3500s/label_studio", store_dir(api->options.store));
    DIR *dir = os_opendir(folder);
    if (!dir) return 0;
    map_init(&ids);
    for (size_t i = 0; i < count; i++) map_put(&ids, custom_ids[i], 0);
    for (struct dirent *at; (at = readdir(dir));) {
        if (strncmp(at->d_name, batch_id, bytes) != 0 || at->d_name[bytes] != '-') continue;
        snprintf(path, sizeof path, "%.3500s/%.255s", folder, at->d_name);
        tasks += count_in_link(path, &ids);
    }
    closedir(dir);
    map_release(&ids);
    return tasks;
}
