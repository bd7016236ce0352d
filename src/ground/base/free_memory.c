/* SPDX-License-Identifier: Apache-2.0 */
#include "base/free_memory.h"

#include "base/control_groups.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024
#define LINE_BYTES 512

/* The two versions of control groups name their files differently. */
struct group_files {
    const char *folder, *limit, *used;
    const char *const cached[2]; /* names of the lines of memory.stat */
};

static const struct group_files version_1 = {"/sys/fs/cgroup/memory",
                                             "memory.limit_in_bytes",
                                             "memory.usage_in_bytes",
                                             {"total_active_file", "total_inactive_file"}};
static const struct group_files version_2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"active_file", "inactive_file"}};

/* The number in a file that has nothing else, or behind `name` at the beginning of a line. False if
 * there is none: "max" is no limit. */
static bool read_number(const char *path, const char *name, uint64_t *ret_number) {
    FILE *file = fopen(path, "re");
    char line[LINE_BYTES];
    bool is_found = false;
    const size_t bytes = strlen(name);
    while (file && !is_found && fgets(line, sizeof line, file))
        is_found = strncmp(line, name, bytes) == 0 && (bytes == 0 || strchr(": ", line[bytes])) &&
                   sscanf(line + bytes + strspn(line + bytes, ": "), "%" SCNu64, ret_number) == 1;
    if (file) fclose(file);
    return is_found;
}

/* What one group leaves. UINT64_MAX: it has no limit. */
static uint64_t room_of(const char *root, const struct group_files *files, const char *group) {
    char path[PATH_BYTES];
    uint64_t limit, used, cached = 0, part;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->folder, group, files->limit);
    if (!read_number(path, "", &limit)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->folder, group, files->used);
    if (!read_number(path, "", &used)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, files->folder, group);
    for (int i = 0; i < 2; i++)
        if (read_number(path, files->cached[i], &part)) cached += part;
    used = cached < used ? used - cached : 0;
    return used < limit ? limit - used : 0;
}

struct room {
    const char *root;
    uint64_t least;
};

static void look_at_room(void *context, bool is_version_2, const char *group) {
    struct room *room = context;
    const uint64_t own = room_of(room->root, is_version_2 ? &version_2 : &version_1, group);
    if (own < room->least) room->least = own;
}

uint64_t free_memory_bytes_under(const char *root) {
    char path[PATH_BYTES];
    uint64_t kilobytes = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_number(path, "MemAvailable", &kilobytes)) return 0;
    struct room room = {.root = root, .least = kilobytes * 1024};
    control_groups_each(root, "memory", look_at_room, &room);
    return room.least;
}

uint64_t free_memory_bytes(void) {
    return free_memory_bytes_under("");
}
