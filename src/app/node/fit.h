/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fit: how many engines the memory of this machine, or of a GPU, has room for.
 *
 * It goes by sizes of files and by options, before any engine runs. An engine that is told of a GPU
 * measures for itself.
 *
 * Thread: any.
 * Memory: none. */

#include "node/node.h"
#include "node/shelf.h"

uint64_t fit_machine_bytes(void);
/* Whether one engine takes all that a GPU has left. */
bool fit_takes_whole_card(const struct engine_settings *engine);
/* The memory that an engine of a model of the shelf will take on the CPU. */
uint64_t fit_memory_of(const struct shelf_model *model, const struct engine_settings *settings);
/* Whether a model of the shelf can never be loaded here; the sentence is Ollama's. */
bool fit_is_too_large(const struct shelf_model *model, const struct engine_settings *settings,
                      char *ret_text, size_t text_bytes);
/* The number of models, of `count` whose files have so many bytes, that may be loaded at a time: on
 * a GPU one, because it takes the GPU's memory, unless the options leave some to others. */
uint32_t fit_models_at_a_time(const struct node_options *options, const uint64_t *model_bytes,
                              size_t count);
