/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models_fit: which of the models that `quern pull` knows fit this machine, before they are
 * fetched.
 *
 * Sizes are those that an inspection of the fetched files would show; only the types are assumed,
 * as the usual files have them. It reads no file and opens no GPU.
 *
 * Thread: main.
 * Memory: none kept. */

#include "base/err.h"

#include <stdint.h>

struct models_fit {
    const char *name; /* one model; NULL: all */
    uint32_t sequences;
    uint32_t sequence_tokens; /* cut to each model's context */
    uint64_t card_bytes;      /* that an engine may take of a GPU; 0: there is none */
    bool json;
};

/* Prints a table, or an object per line. ERR_NOT_FOUND if no model has the name, or the sizes of
 * the model are not known. */
enum err models_fit_show(const struct models_fit *query, struct error *error) MUST_CHECK;
