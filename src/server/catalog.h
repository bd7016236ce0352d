/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog: from what a user calls a model to the file it lies in.
 *
 * The name "echo" is the worker that answers at once without a model, for tests and for measuring
 * the server alone; it is in no list.
 *
 * A name is a path to a .gguf file, a name quern knows (smollm2), or the name of a file in the
 * model folder ${XDG_CACHE_HOME:-~/.cache}/quern/models, with or without ".gguf". It opens no
 * model: parsing foreign files is the engine process's job.
 *
 * Thread: any.  Memory: the caller's structs. */

#include "base/err.h"
#include "base/str.h"

#include <limits.h>

#define MODEL_NAMES_MAX 8
#define MODEL_NAME_BYTES 128

/* What `[ALIAS=]M` means: where the file is, and under which names it is served (the first is the
 * main one). */
struct model_choice {
    bool is_echo;
    char path[PATH_MAX]; /* empty for echo */
    char names[MODEL_NAMES_MAX][MODEL_NAME_BYTES];
    size_t name_count;
};

/* ERR_NOT_FOUND with a sentence that says where was looked and what to do. */
enum err catalog_choose(const char *argument, struct model_choice *ret_choice,
                        struct error *error) MUST_CHECK;

/* The model folder; false when neither XDG_CACHE_HOME nor HOME is set. */
bool catalog_folder(char ret_path[PATH_MAX]);

/* One file of the model folder, in order of names. */
struct model_file {
    char name[MODEL_NAME_BYTES]; /* what --model takes */
    char path[PATH_MAX];
    uint64_t bytes;
};
typedef void (*model_file_fn)(void *context, const struct model_file *file);
/* Calls `found` for each; a folder that is not there has none. */
enum err catalog_list(model_file_fn found, void *context, struct error *error) MUST_CHECK;
