/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder_pooling: what the files of sentence-transformers in a folder say of embeddings.
 *
 * modules.json lists what a text goes through; of the pooling module's config.json the mode counts,
 * and of sentence_bert_config.json the length. None of the files need be there.
 *
 * Thread: any.  Memory: none kept. */

#include "checkpoint/config.h"

/* Fills pooling and embed_tokens_max. ERR_INVALID, naming the file, for a module or a mode that is
 * not run. */
enum err folder_read_pooling(const char *folder, struct model_config *config,
                             struct error *error) MUST_CHECK;
