/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog: from what a user calls a model to the file it lies in.
 *
 * A name is looked for, the first that has it winning:
 *   a path to a .gguf file, or to a folder with a config.json;
 *   the model folder ${XDG_CACHE_HOME:-~/.cache}/quern/models, by the name of a file, with or without
 *   ".gguf", or of a folder, or by a name quern knows (smollm2);
 *   Ollama's store, by Ollama's name (gemma3:12b, or bare for the tag latest);
 *   the Hugging Face cache, by id (org/repo, org/repo:Q4_K_M);
 *   those two again by the other names of the same model (protocol/names_table.c), and by a
 *   repository of the same name with "-GGUF" behind it.
 * The name "echo" is the worker that answers at once without a model, for tests and for measuring
 * the server alone; it is in no list.
 *
 * It opens no model: parsing foreign files is the engine process's job. It only reads, and trusts
 * no link and no name: what it gives lies inside the store it was found in.
 *
 * Thread: any.  Memory: the caller's structs. */

#include "base/err.h"
#include "protocol/names.h"

#include <limits.h>

#define MODEL_NAMES_MAX 8

/* Memory of an engine process besides its weights and KV cache: activations, vocabulary, code. */
#define ENGINE_OTHER_BYTES ((uint64_t)256 << 20)

/* What `[ALIAS=]M` means: where the file is, and under which names it is served (the first is the
 * main one). */
struct model_choice {
    bool is_echo;
    char path[PATH_MAX]; /* of a file or a folder; empty for echo */
    char names[MODEL_NAMES_MAX][MODEL_NAME_BYTES];
    size_t name_count;
};

/* ERR_NOT_FOUND with a sentence that says where was looked and what to do; ERR_INVALID when it is
 * there and cannot be served, with the reason. */
enum err catalog_choose(const char *argument, struct model_choice *ret_choice,
                        struct error *error) MUST_CHECK;

/* Which repository of a hub a name means, and which quantisation (a part of `name`, or empty): a
 * repository itself, or what the tables say of Ollama's names and of quern's own. ERR_NOT_FOUND
 * when nothing is known of it. */
enum err catalog_repository(const char *name, char ret_repository[MODEL_NAME_BYTES],
                            struct str *ret_quantisation, struct error *error) MUST_CHECK;
/* The model of `[ALIAS=]M`. */
const char *catalog_name_of(const char *argument);

/* The model folder; false when neither XDG_CACHE_HOME nor HOME is set. */
bool catalog_folder(char ret_path[PATH_MAX]);

enum model_source { SOURCE_FOLDER, SOURCE_OLLAMA, SOURCE_HUB };
const char *model_source_name(enum model_source source); /* "quern", "ollama", "huggingface" */

/* Which store a path that catalog_choose gave lies in; the folder for one that is in none. */
enum model_source catalog_source_of(const char *path);

/* One model of a store. */
struct model_file {
    enum model_source source;
    char name[MODEL_NAME_BYTES]; /* what --model takes */
    char path[PATH_MAX];         /* a file, or the folder of a model in several */
    uint64_t bytes;
    char why_not[160]; /* why it cannot be served; empty: it can */
};
typedef void (*model_file_fn)(void *context, const struct model_file *file);
/* Calls `found` for each model of each store; a store that is not there has none. */
enum err catalog_list(model_file_fn found, void *context, struct error *error) MUST_CHECK;
