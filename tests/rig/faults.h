/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* faults: counts the calls that change the disk, and lets the plan's faults happen at them.
 *
 * Thread: one.
 * Memory: the world's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The life begins. */
void faults_begin(void);
/* A call that changes the disk is about to happen. Returns an errno that it fails with, or 0. Does
 * not return if the process dies here. */
int faults_next(const char *call, uint32_t inode, const char *path, uint64_t offset,
                uint64_t bytes);
/* As faults_next, for a sync. Drops the pages of the file if it fails. */
int faults_sync(const char *call, uint32_t inode);
/* The bytes of a write that reach the disk before the process dies in it; `count` if it does not. */
size_t faults_tear(size_t count);
/* The disk is full no more if its time is over. */
void faults_tend(void);
/* The file has another content or length now. */
void faults_touch(uint32_t inode);
/* The name that a file was last opened with. */
void faults_name(uint32_t inode, const char *path);
