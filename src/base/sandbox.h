/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sandbox: what is left of a process that reads the files of strangers.
 *
 * After sandbox_enter the process opens nothing but the paths it named, makes no socket, starts no
 * program and no other process, and other processes of its user cannot read its memory. What it
 * has open stays open. Landlock guards paths and TCP, seccomp the system calls; one that a reader
 * of files has no use for ends the process when it is a sure sign of a break-in (execve, socket,
 * ptrace, …) and fails with ENOSYS when it is any other, so that a library which tries something
 * new falls back.
 *
 * A kernel without one of the two leaves that one out, and the state says so. In a build with
 * AddressSanitizer or ThreadSanitizer both are loose: those need to read more and to call more.
 *
 * Thread: from the only one there is, since both bind the caller and the threads it makes later.
 * Memory: none; one descriptor stays open.  Invariant: there is no way back. */

#include "base/stacks.h"

#include <stdbool.h>
#include <stddef.h>

#define SANDBOX_IS_LOOSE (!STACKS_OF_CRASHES)

/* A file, or a directory and all below it. A link is followed now: what it leads to is allowed. */
struct sandbox_path {
    const char *path;
    bool is_writable; /* a directory's files may be made, renamed and removed as well */
};

struct sandbox_state {
    int landlock_abi; /* 0: none */
    bool has_seccomp;
};

/* A path that cannot be opened is left out: the reader that opens it later says why. */
void sandbox_enter(const struct sandbox_path *paths, size_t count, struct sandbox_state *ret_state);
