/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder_names: Hugging Face's names of tensors, such as "model.layers.0.self_attn.q_proj.weight",
 * and GGUF's, such as "blk.0.attn_q.weight".
 *
 * Thread: any; pure.
 * Memory: the caller's. */

#include "checkpoint/tensors.h"

/* The GGUF name of a layer's tensor ("PREFIXlayers.0.self_attn.q_proj.weight", for an encoder
 * "PREFIXencoder.layer.0.…") or of a tensor outside the layers. False for a name that is no part of
 * this architecture. */
bool folder_name_read(const struct architecture *architecture, const char *prefix, struct str name,
                      struct tensor_name *ret_name);
/* Hugging Face's name of a GGUF name; the GGUF name itself when it has no other. */
struct tensor_name folder_name_of(const struct architecture *architecture, const char *prefix,
                                  const char *gguf_name);
/* True for a tensor that a file may hold and no text model needs: tables that follow from the
 * config, the heads behind an encoder, and the seeing and hearing parts of a larger model. */
bool folder_name_is_needless(const struct architecture *architecture, struct str name,
                             bool is_part_of_another);
