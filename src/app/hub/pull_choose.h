/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_choose: which files of a repository a model needs.
 *
 * The other files are other formats of the same weights, documents and pictures, often several
 * times the model's size. Knows no network and no disk.
 *
 * Thread: any.
 * Memory: none. */

#include "hub/pull_plan.h"

struct pull_wish {
    struct str quantisation;     /* the one of a GGUF file; empty: the usual one */
    const char *const *includes; /* patterns of paths, in place of the choice below */
    size_t include_count;
};

/* Sets is_wanted: the files that the patterns name; or one GGUF file with all its parts; or a model
 * of safetensors with its configuration and tokenizer. ERR_NOT_FOUND or ERR_INVALID with a sentence
 * that names files of the repository. */
enum err pull_choose(struct pull_listing *listing, const struct pull_wish *wish,
                     struct error *error) MUST_CHECK;
