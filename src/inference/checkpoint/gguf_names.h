/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gguf_names: tensors that converters to GGUF name in more than one way.
 *
 * llama.cpp's name counts, and of those the one that says what the tensor does: the norm before the
 * feed-forward is ffn_norm, whatever a family's file calls it.
 *
 * Thread: any.
 * Memory: names are constant, or the file's. */

#include "checkpoint/gguf.h"
#include "checkpoint/tensors.h"

/* The name of a tensor as the tables of tensors.h have it. A changed name lies in ret_memory, which
 * must live as long as the name; false: it is the file's own. */
bool gguf_name_settle(const struct gguf *gguf, struct str name, struct tensor_name *ret_memory);
/* The other way: what a file of this family calls it, for sentences. */
void gguf_name_spell(const struct gguf *gguf, struct tensor_name *name);
