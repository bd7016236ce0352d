/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cpu_notes: the number of rows that trials have found (cpu/step_trials.h), kept in a file between
 * starts.
 *
 * The file lies in the model's folder of packed weights, the one folder that a sandboxed engine can
 * write to, and is named by machine and settings, so that machines may share the folder. It is a
 * text of three lines: what it is, a hash of all that the number follows from, the number. A file
 * that has not exactly the text of a number that could have been chosen is as good as none; it can
 * be removed at any time, and no failure here is more than a line in the log.
 *
 * Thread: the thread that loads.
 * Memory: the caller's struct. */

#include "base/hash.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct cpu_notes {
    char path[PATH_MAX];
    char key[SHA256_HEX_BYTES];
};

struct cpu_notes_key {
    const unsigned char
        *model; /* (model_bytes) whatever tells one state of the files from another */
    size_t model_bytes;
    const char *kernels; /* name of the table */
    uint32_t threads;
    uint32_t most, least; /* bounds of the number */
};

/* For this machine's processor. False if `dir` is NULL or too long a path. */
bool cpu_notes_open(struct cpu_notes *notes, const char *dir, const struct cpu_notes_key *key);
/* Whether the file says `rows`. */
bool cpu_notes_say(const struct cpu_notes *notes, uint32_t rows);
/* Replaces the file. */
void cpu_notes_keep(const struct cpu_notes *notes, uint32_t rows);
