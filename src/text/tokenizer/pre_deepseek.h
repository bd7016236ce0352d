/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pre_deepseek: the cutting of texts for DeepSeek's tokenizers, which apply several expressions one
 * after the other.
 *
 * Thread: any; pure.
 * Memory: none. */

#include "tokenizer/pretokenize.h"

/* As pre_piece_end, for the shapes named DEEPSEEK. */
size_t deepseek_piece_end(enum pre_shape shape, struct str text, size_t from);
