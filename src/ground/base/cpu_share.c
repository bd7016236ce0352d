/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu_share.h"

#include "base/control_groups.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 1024
#define LINE_BYTES 512
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

struct cores {
    const char *root;
    double least; /* 0: no limit */
};

static void look_at_cores(void *context, bool is_version_2, const char *group) {
    struct cores *cores = context;
    const double limit =
        is_version_2 ? cores_of_2(cores->root, group) : cores_of_1(cores->root, group);
    if (limit > 0 && (cores->least <= 0 || limit < cores->least)) cores->least = limit;
}

double cpu_share_cores_under(const char *root) {
    struct cores cores = {.root = root};
    control_groups_each(root, "cpu", look_at_cores, &cores);
    return cores.least;
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
