/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_sandbox: the sandbox of a process that opens one model: what of the machine it still needs.
 *
 * That is the model, a file or a folder of them, and what libraries open once and keep. A device
 * that needs files of its own adds them to device_paths in model_sandbox.c.
 *
 * Thread: the only one there is (base/sandbox.h).  Memory: none. */

#include "base/sandbox.h"

/* Zero but for the model is a valid start. */
struct model_sandbox {
    const char *model_path; /* of a folder also what its links lead to, when it is weights, a file
                               that everybody may read, or in the cache of Hugging Face's hub */
    const char *input_path; /* a file that is read beside it; NULL: none */
    const char *cache_dir;  /* that may be written to; NULL: none */
};

void model_sandbox_enter(const struct model_sandbox *wanted, struct sandbox_state *ret_state);
/* The same for a command that looks at one model and has nobody to tell how well it is shut in. */
void model_sandbox_enter_for(const char *model_path);
