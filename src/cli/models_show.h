/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models_show: a model's facts as a line of a list, as a page, or as JSON.
 *
 * Thread: main.  Memory: none. */

#include "hub/catalog.h"
#include "hub/inspect.h"

struct model_facts {
    const struct model_file *file;
    bool is_read; /* what follows is known */
    struct inspection is;
    struct machine machine;
    struct fit fit;
    char why_not[ERROR_TEXT_BYTES]; /* empty: it can be served */
};

/* Reads a model's head. `sequence_tokens` as inspect_fit has it. */
void models_read_facts(struct model_facts *ret_facts, const struct model_file *file,
                       uint32_t sequence_tokens);

void models_show_head(void);
void models_show_line(const struct model_facts *facts);
void models_show_page(const struct model_facts *facts);
/* One object and a newline. */
void models_show_json(const struct model_facts *facts);
