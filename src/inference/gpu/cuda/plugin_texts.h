/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plugin_texts: what steps of whole texts have beside others; private to the GPU's host code.
 *
 * Thread: the GPU's one.
 * Memory: the flight's block. */

#include "gpu/cuda/plugin_walk.h"

/* Bytes of a block for what steps of texts have beside others, none in other programs. */
size_t texts_block_bytes(const struct gpu_program *program, const struct gpu_limits *limits);
/* Puts these arrays of a step into the flight's block. */
void texts_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step);
enum err walk_layer_norm(struct walk *walk, const struct card_op *op,
                         struct error *error) MUST_CHECK;
enum err walk_gelu(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
enum err walk_pool(struct walk *walk, const struct card_op *op, struct error *error) MUST_CHECK;
