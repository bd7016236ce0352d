/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* trials: opens a file of a stranger as the engine would, and uses what opens: the tokenizer on a
 * text, the template on a chat, the model on two tokens.
 *
 * Thread: one.
 * Memory: none kept. */

#include "mutations.h"

struct trial {
    bool is_refused;
    bool is_sentence; /* a refusal is printable, on one line and not empty */
    char text[ERROR_TEXT_BYTES];
};

/* `path` is where the sound file is: of a folder the others are taken from there. */
void trial_run(enum base_kind kind, const char *path, struct str bytes, struct trial *ret_trial);
