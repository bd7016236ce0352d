/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder_pooling: how a folder's embeddings are made, by the files of sentence-transformers.
 *
 * modules.json lists the modules that a text goes through. The pooling module's config.json has the
 * mode, sentence_bert_config.json the length of a text. All these files are optional.
 *
 * Thread: any.
 * Memory: none kept. */

#include "checkpoint/config.h"

#define FOLDER_PATH_BYTES_MAX 64

/* Folders of the products behind the pooling, as many as dense_widths has; the others are empty. */
struct folder_modules {
    char dense[CONFIG_DENSE_MAX][FOLDER_PATH_BYTES_MAX + 1];
};

/* Fills pooling, dense_widths and embed_tokens_max. ERR_INVALID, naming the file, for a module or a
 * mode that quern does not run. */
enum err folder_read_pooling(const char *folder, struct model_config *config,
                             struct folder_modules *ret_modules, struct error *error) MUST_CHECK;
