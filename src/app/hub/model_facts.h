/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_facts: what the head of a model's files says, and whether this machine can serve it.
 *
 * Thread: main, in the sandbox.
 * Memory: the caller's struct; it borrows the file. model_facts_release frees the rest. */

#include "hub/catalog.h"
#include "hub/inspect.h"

struct model_facts {
    const struct model_file *file;
    bool is_read; /* `is`, `machine` and `fit` are known */
    struct inspection is;
    struct machine machine;
    struct fit fit;
    char why_not[ERROR_TEXT_BYTES]; /* empty: the model can be served */
};

/* Reads a model's head. `sequence_tokens`: the length for inspect_fit, 0: the model's context. */
void model_facts_read(struct model_facts *ret_facts, const struct model_file *file,
                      uint32_t sequence_tokens);
void model_facts_release(struct model_facts *facts);
