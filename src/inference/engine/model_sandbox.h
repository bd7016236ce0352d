/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_sandbox: the sandbox of a process that opens one model.
 *
 * Such a process still needs the model, which is a file or a folder of files, and the files that
 * libraries open once and keep. A driver that is open may open its nodes again: those of which the
 * process has a descriptor.
 *
 * Thread: the only one of the process but for a driver's (base/sandbox.h).
 * Memory: none. */

#include "base/sandbox.h"

/* Zero with a model_path is a valid start. */
struct model_sandbox {
    /* A file or a folder. The targets of a folder's links are open too if they are weights,
     * readable by every user, or in the cache of Hugging Face's hub. */
    const char *model_path;
    const char *draft_path; /* a second model; NULL: none */
    const char *input_path; /* one more file to read; NULL: none */
    const char *cache_dir;  /* a folder to write to; NULL: none */
    bool has_device;        /* a driver is open */
};

void model_sandbox_enter(const struct model_sandbox *wanted, struct sandbox_state *ret_state);
/* The same for a command that reads one model and reports no sandbox_state. */
void model_sandbox_enter_for(const char *model_path);
