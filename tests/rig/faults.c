/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include "nodes.h"
#include "threads.h"
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FULL_BLOCKS 3u /* room that a full disk may have left */

static struct rng draws;
static bool error_is_due;
static char names[DISK_INODES][48];

void faults_begin(void) {
    draws = world_rng('f');
    error_is_due = false;
}

void faults_name(uint32_t inode, const char *path) {
    const char *under = strncmp(path, "/rig/", 5) == 0 ? path + 5 : path;
    size_t bytes = strlen(under);
    const char *tail = bytes < sizeof names[0] ? under : under + bytes - sizeof names[0] + 1;
    memcpy(names[inode], tail, strlen(tail) + 1);
}

void faults_touch(uint32_t inode) {
    world->disk.inodes[inode].changed_ns = world->now_ns + world->wall_ms * 1000000;
}

static void note(const char *call, const char *file, uint64_t offset, uint64_t bytes) {
    struct trace *trace = &world->trace[world->trace_count++ % WORLD_TRACE];
    *trace = (struct trace){world->life, world->call, call, "", offset, bytes};
    snprintf(trace->file, sizeof trace->file, "%s", file);
}

static const struct event *due(void) {
    for (uint32_t i = 0; i < world->plan.event_count; i++) {
        const struct event *event = &world->plan.events[i];
        if (event_is_fault(event->kind) && event->life == world->life && event->call == world->call)
            return event;
    }
    return NULL;
}

size_t faults_tear(size_t count) {
    uint32_t next = world->call + 1;
    for (uint32_t i = 0; i < world->plan.event_count; i++) {
        const struct event *event = &world->plan.events[i];
        if ((event->kind == EVENT_CUT || event->kind == EVENT_KILL) && event->life == world->life &&
            event->call == next)
            return (size_t)rng_below(&draws, count + 1);
    }
    return count;
}

void faults_tend(void) {
    if (world->full_until_ns == 0 || world->now_ns < world->full_until_ns) return;
    world->full_until_ns = 0;
    world->disk.capacity = world->capacity;
}

static void fill(const struct event *event) {
    world->full_until_ns = world->now_ns + event->value * 1000000;
    world->fulls++;
    world->may_rerun = true; /* a batch that cannot be taken up adopts nothing */
    world->disk.capacity = world->disk.taken + rng_below(&draws, FULL_BLOCKS + 1);
}

int faults_next(const char *call, uint32_t inode, const char *path, uint64_t offset,
                uint64_t bytes) {
    world->call++;
    world->calls_all++;
    if (path) faults_name(inode, path);
    note(call, names[inode], offset, bytes);
    threads_pass_ns((int64_t)rng_below(&draws, 200000));
    faults_tend();
    const struct event *event = due();
    if (!event) return 0;
    switch (event->kind) {
    case EVENT_CUT: nodes_die(LIFE_CUT);
    case EVENT_KILL: nodes_die(LIFE_KILLED);
    case EVENT_FULL: fill(event); break;
    case EVENT_ERROR: error_is_due = true; break;
    default: break;
    }
    return 0;
}

int faults_sync(const char *call, uint32_t inode) {
    int failed = faults_next(call, inode, NULL, 0, 0);
    if (failed || !error_is_due) return failed;
    error_is_due = false;
    world->has_error = true;
    disk_fail_sync(&world->disk, inode, &draws);
    return EIO;
}
