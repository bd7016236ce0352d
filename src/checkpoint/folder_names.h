/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder_names: what Hugging Face's tools call the tensors that GGUF calls "blk.0.attn_q.weight".
 *
 * Thread: any; pure.  Memory: the caller's. */

#include "checkpoint/tensors.h"

/* The GGUF name of "PREFIXlayers.0.self_attn.q_proj.weight", or of one of those there is only one
 * of ("PREFIXencoder.layer.0.…" of an encoder). False when it is no part of this architecture. */
bool folder_name_read(const struct architecture *architecture, const char *prefix, struct str name,
                      struct tensor_name *ret_name);
/* The other way round; the name itself when there is no other. */
struct tensor_name folder_name_of(const struct architecture *architecture, const char *prefix,
                                  const char *gguf_name);
/* Whether a file may hold the tensor though no model needs it: tables that follow from the config,
 * what stands behind an encoder, and, in a model that sees or hears too, the parts that do. */
bool folder_name_is_needless(const struct architecture *architecture, struct str name,
                             bool is_part_of_another);
