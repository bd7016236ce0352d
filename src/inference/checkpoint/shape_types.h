/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shape_types: the types that the tensors of a model have in the files that are usual.
 *
 * A shape is a model of which only the config.json is known. Its tensors get the types that a
 * folder of the Hub, or a GGUF file of llama.cpp's quantizer, would give them, so that sizes can be
 * told before anything is fetched. It knows names and axes, no bytes.
 *
 * Thread: any; pure.
 * Memory: none.
 * Source: llama_tensor_get_type of llama.cpp, for Q4_K_M. */

#include "checkpoint/checkpoint.h"

/* The file's type of a tensor. `is_tied`: the embedding is the head. */
enum tensor_type shape_type_of(enum shape_types types, const struct checkpoint_tensor *tensor,
                               uint32_t layers, bool is_tied);
