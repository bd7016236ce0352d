/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sandbox: takes rights away from a process before it reads foreign files.
 *
 * After sandbox_enter the process opens only the named paths, makes no socket, and starts no
 * program and no other process. It changes neither the priority nor the processors of another
 * process. Other processes of its user cannot read its memory. Open
 * descriptors stay open. Landlock guards paths and TCP, seccomp the system calls. A call that is a
 * sure sign of a break-in (execve, socket, ptrace, …) ends the process. Any other call that a
 * reader of files does not need fails with ENOSYS, so that a library which tries a new call falls
 * back.
 *
 * A kernel may lack Landlock or seccomp; the state says which of them are in force. In builds with
 * AddressSanitizer or ThreadSanitizer both are loose, for the sanitizers read and call more.
 *
 * Thread: the only one of the process, since both bind the caller and its later threads. With
 *     SANDBOX_DEVICE a driver may have started threads: seccomp binds them too, and Landlock does
 *     from its ABI 8 on.
 * Memory: none; one descriptor stays open.
 * Invariant: no call widens the rights again. */

#include "base/stacks.h"

#include <stdbool.h>
#include <stddef.h>

#define SANDBOX_IS_LOOSE (!STACKS_OF_CRASHES)

/* A file, or a directory with all below it. A link is followed at once: its target is allowed. */
struct sandbox_path {
    const char *path;
    bool is_writable; /* files of a directory may also be made, renamed and removed */
    bool is_device;   /* a node of a device: writing, and every ioctl */
};

/* The work of the process. */
enum sandbox_kind {
    SANDBOX_FILES,  /* reads files and computes */
    SANDBOX_DEVICE, /* as well drives an accelerator, whose driver has been opened: any ioctl of an
                       open file, memory in files without a name, and the placement of memory */
};

struct sandbox_state {
    int landlock_abi; /* version of the kernel's interface; 0 if it has no Landlock */
    bool has_seccomp;
    bool binds_threads; /* Landlock binds the threads that ran before, too (ABI 8) */
};

/* A path that cannot be opened is left out; its reader fails later and says why. */
void sandbox_enter(enum sandbox_kind kind, const struct sandbox_path *paths, size_t count,
                   struct sandbox_state *ret_state);
