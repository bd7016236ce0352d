/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu_share.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024
#define LINE_BYTES 512
#define LEVELS_MAX 32     /* groups within groups */
#define STEAL_FIELD 8     /* in the line "cpu" in /proc/stat, from 1 */
#define PERIOD_US 100000. /* where a group says none */

/* The first line of a file. */
static bool read_line(const char *path, char ret_line[LINE_BYTES]) {
    FILE *file = fopen(path, "re");
    const bool is_read = file && fgets(ret_line, LINE_BYTES, file);
    if (file) fclose(file);
    return is_read;
}

/* Cores of one group of version 2, whose file says "QUOTA PERIOD" or "max PERIOD"; 0: no limit. */
static double cores_of_2(const char *root, const char *group) {
    char path[PATH_BYTES], line[LINE_BYTES];
    double quota = 0, period = PERIOD_US;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/cpu.max", root, group);
    if (!read_line(path, line) || sscanf(line, "%lf %lf", &quota, &period) < 1) return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The same in version 1, where -1 is no limit. */
static double cores_of_1(const char *root, const char *group) {
    char path[PATH_BYTES], line[LINE_BYTES];
    double quota = 0, period = PERIOD_US;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", root, group);
    if (!read_line(path, line) || sscanf(line, "%lf", &quota) != 1 || quota <= 0) return 0;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", root, group);
    if (read_line(path, line) && (sscanf(line, "%lf", &period) != 1 || period <= 0))
        period = PERIOD_US;
    return quota / period;
}

static double least_limit(double a, double b) {
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* The least of a group and those around it. In a container the path is the host's and its files are
 * not here; the last look is at the root, which is the container's own group there. */
static double cores_up_from(const char *root, bool is_2, char *group) {
    double least = 0;
    for (int level = 0; level < LEVELS_MAX; level++) {
        least = least_limit(is_2 ? cores_of_2(root, group) : cores_of_1(root, group), least);
        char *slash = strrchr(group, '/');
        if (!slash) break;
        *slash = '\0';
    }
    return least;
}

/* A line is "4:cpu,cpuacct:/path", or "0::/path" in version 2. */
static double cores_of_line(const char *root, char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *kinds = strchr(line, ':');
    char *group = kinds ? strchr(kinds + 1, ':') : NULL;
    if (!group) return 0;
    *group++ = '\0';
    if (!kinds[1]) return cores_up_from(root, true, group);
    return strstr(kinds, "cpu,") || strstr(kinds, "cpuacct") || strcmp(kinds, ":cpu") == 0
               ? cores_up_from(root, false, group)
               : 0;
}

double cpu_share_cores_under(const char *root) {
    char path[PATH_BYTES], line[LINE_BYTES];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        least = least_limit(cores_of_line(root, line), least);
    if (file) fclose(file);
    return least;
}

double cpu_share_stolen_under(const char *root) {
    char path[PATH_BYTES], line[LINE_BYTES];
    double all = 0, stolen = 0, ticks;
    int used, at = 0;
    snprintf(path, sizeof path, "%s/proc/stat", root);
    if (!read_line(path, line) || strncmp(line, "cpu ", 4) != 0) return 0;
    for (int i = 1; i <= STEAL_FIELD; i++, at += used) {
        if (sscanf(line + 4 + at, "%lf%n", &ticks, &used) != 1) break;
        all += ticks;
        if (i == STEAL_FIELD) stolen = ticks;
    }
    return all > 0 ? stolen / all : 0;
}

double cpu_share_cores(void) {
    return cpu_share_cores_under("");
}

double cpu_share_stolen(void) {
    return cpu_share_stolen_under("");
}
