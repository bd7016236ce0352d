/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog: finds the file or folder of a model by the name that a user gives it.
 *
 * The places, in order; the first that has the name wins:
 *   1. the model folder, by a name that quern knows (smollm2);
 *   2. a path to a file, or to a folder with a config.json;
 *   3. the model folder, by the name of a file, with or without ".gguf", or of a folder;
 *   4. Ollama's store, by Ollama's name (gemma3:12b, or without a tag for latest);
 *   5. the Hugging Face cache, by repository (org/repo, org/repo:Q4_K_M);
 *   6. both stores again, by the other names of the same model (protocol/names_table.c), and by a
 *      repository of the same name with "-GGUF" behind it.
 * A name that quern knows skips 2 and 3. The model folder is
 * ${XDG_CACHE_HOME:-~/.cache}/quern/models. The name "echo" is the worker that answers at once
 * without a model; no list contains it.
 *
 * The catalog parses no model, since that is the engine process's job. It trusts no link and no
 * name in the two stores: each file that it gives lies inside its store.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "base/err.h"
#include "protocol/names.h"

#include <limits.h>

#define MODEL_NAMES_MAX 8

/* Memory of an engine process in addition to its weights and KV cache: activations, vocabulary,
 * code. */
#define ENGINE_OTHER_BYTES ((uint64_t)256 << 20)

/* The model that `[ALIAS=]M` names. */
struct model_choice {
    bool is_echo;
    char path[PATH_MAX]; /* a file or a folder; empty for echo */
    /* The names that it is served under, the main one first. */
    char names[MODEL_NAMES_MAX][MODEL_NAME_BYTES];
    size_t name_count;
};

/* ERR_NOT_FOUND with a sentence that names the places searched and the way to get the model;
 * ERR_INVALID with the reason if the model was found and cannot be served. */
enum err catalog_choose(const char *argument, struct model_choice *ret_choice,
                        struct error *error) MUST_CHECK;

/* The repository of a hub that a name means: the name itself, or the repository that the tables
 * give for one of Ollama's names or of quern's own. *ret_quantisation is a part of `name`, or
 * empty. ERR_NOT_FOUND: the name is no repository, and no table has it. */
enum err catalog_repository(const char *name, char ret_repository[MODEL_NAME_BYTES],
                            struct str *ret_quantisation, struct error *error) MUST_CHECK;
/* The M of `[ALIAS=]M`. */
const char *catalog_name_of(const char *argument);

/* The model folder, whether it exists or not; false if neither XDG_CACHE_HOME nor HOME is set. */
bool catalog_folder(char ret_path[PATH_MAX]);

enum model_source { SOURCE_FOLDER, SOURCE_OLLAMA, SOURCE_HUB };
const char *model_source_name(enum model_source source); /* "quern", "ollama", "huggingface" */

/* The store of a path that catalog_choose gave; SOURCE_FOLDER for a path outside the stores. */
enum model_source catalog_source_of(const char *path);

/* One model of a store. */
struct model_file {
    enum model_source source;
    char name[MODEL_NAME_BYTES]; /* the name for --model */
    char path[PATH_MAX];         /* a file, or a folder if the model has several */
    uint64_t bytes;
    char why_not[160]; /* the reason it cannot be served; empty: it can */
};
typedef void (*model_file_fn)(void *context, const struct model_file *file);
/* Calls `found` for each model of the model folder and of the two stores. A place that does not
 * exist has no model; an error means that the model folder exists and cannot be read. */
enum err catalog_list(model_file_fn found, void *context, struct error *error) MUST_CHECK;
