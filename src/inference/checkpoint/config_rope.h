/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_rope: the rotation of a model from the metadata and factor tensors of a GGUF: base,
 * scaling, factors (config_json_rope.c reads them from a config.json).
 *
 * A number that the file lacks is the family's, as its struct architecture has it, or the file is
 * refused.
 *
 * Thread: any.
 * Memory: none; rope_factors lie in the file. */

#include "checkpoint/config.h"

/* Fills the numbers of the rotation; architecture, sizes and heads must be set. ERR_INVALID with
 * one sentence naming the key or tensor. */
enum err config_read_rope(struct model_config *config, const struct gguf *gguf,
                          struct error *error) MUST_CHECK;
