/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models_show: a model's facts on standard output, as a line of a list, as a page, or as JSON.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "cli/models_card.h"
#include "hub/catalog.h"
#include "hub/inspect.h"

struct model_facts {
    const struct model_file *file;
    bool is_read; /* `is`, `machine` and `fit` are known */
    struct inspection is;
    struct machine machine;
    struct fit fit;
    struct models_card card;        /* memory_bytes 0: not asked for */
    char why_not[ERROR_TEXT_BYTES]; /* empty: the model can be served */
};

/* Reads a model's head. `sequence_tokens`: the length for inspect_fit, 0: the model's context. */
void models_read_facts(struct model_facts *ret_facts, const struct model_file *file,
                       uint32_t sequence_tokens);

/* `has_card`: the list has a column for the card. */
void models_show_head(bool has_card);
void models_show_line(const struct model_facts *facts, bool has_card);
void models_show_page(const struct model_facts *facts);
/* One object and a newline. */
void models_show_json(const struct model_facts *facts);
