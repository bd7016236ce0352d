/* SPDX-License-Identifier: Apache-2.0 */
#include "base/control_groups.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024
#define LINE_BYTES 512
#define LEVELS_MAX 32 /* groups within groups */

/* Whether a list such as "cpu,cpuacct" has the word. */
static bool has_word(const char *list, const char *word) {
    const size_t bytes = strlen(word);
    for (const char *at = list; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        if (length == bytes && memcmp(at, word, bytes) == 0) return true;
        at += length;
    }
    return false;
}

/* A line is "4:cpu,cpuacct:/path", or "0::/path" in version 2. */
static void look_at_line(char *line, const char *controller, control_group_look *look,
                         void *context) {
    line[strcspn(line, "\n")] = '\0';
    char *list = strchr(line, ':');
    char *group = list ? strchr(++list, ':') : NULL;
    if (!group) return;
    *group++ = '\0';
    if (*list && !has_word(list, controller)) return;
    for (int level = 0; level < LEVELS_MAX; level++) {
        look(context, !*list, group);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

void control_groups_each(const char *root, const char *controller, control_group_look *look,
                         void *context) {
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) look_at_line(line, controller, look, context);
    if (file) fclose(file);
}
