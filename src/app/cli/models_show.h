/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models_show: a model's facts on standard output, as a line of a list, as a page, or as JSON.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "cli/models_card.h"
#include "hub/model_facts.h"

/* `card`: how the model fits a GPU; its memory_bytes is 0 where that was not asked. `has_card`: the
 * list has a column for it. */
void models_show_head(bool has_card);
void models_show_line(const struct model_facts *facts, const struct models_card *card,
                      bool has_card);
void models_show_page(const struct model_facts *facts, const struct models_card *card);
/* One object and a newline. `has_template`: with the text of the chat template, up to
 * MODELS_TEMPLATE_BYTES_MAX of it; a longer one is left out. */
#define MODELS_TEMPLATE_BYTES_MAX ((size_t)64 << 10)
void models_show_json(const struct model_facts *facts, const struct models_card *card,
                      bool has_template);
