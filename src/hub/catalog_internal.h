/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog_internal: what the stores of the catalog share. A store calls `found` for each model it
 * has, in order of names, and never fails: what it cannot read it does not have.
 *
 * Thread: any.  Memory: the caller's. */

#include "base/str.h"
#include "hub/catalog.h"

void catalog_ollama(model_file_fn found, void *context);
void catalog_hub(model_file_fn found, void *context);

/* --- catalog.c --- */

/* Cuts a tag off: what stands behind a ':' of the last part. */
struct str catalog_cut_tag(struct str name, struct str *ret_tag);
/* What is taken when no quantisation is named, the most usual first: 0 and up; CATALOG_RANKS for
 * what is not usual. */
#define CATALOG_RANKS 7
int catalog_rank(struct str quantisation);

/* --- catalog_hub.c --- */

/* Where the cache is, if it is there; false when no variable says where. */
bool catalog_hub_root(char ret_path[PATH_MAX]);
/* The last part of a file name without its ending that names a quantisation; empty when none does.
 */
struct str catalog_quantisation(struct str stem);
/* NAME-00002-of-00005 and an ending, such as ".gguf"; false when it is not one of several. */
#define CATALOG_PART_BYTES 15
bool catalog_part(struct str name, const char *ending, unsigned *ret_part, unsigned *ret_parts);

/* --- catalog_path.c --- */

/* Whether a name from a file or a user may be one part of a path: letters, digits, '-', '_', '.',
 * not first a '.'; at most 128 bytes. */
bool catalog_is_part(struct str name);
/* Follows all links of root/… and takes it only if it ends at a file (a folder when `is_folder`)
 * inside `root`, which is real already. */
bool catalog_inside(const char *root, const char *path, bool is_folder, char ret_path[PATH_MAX],
                    uint64_t *ret_bytes);
/* The real path of a store's root; false when it is not there. */
bool catalog_root(const char *path, char ret_root[PATH_MAX]);
/* Calls `entry` for the names of a folder that may be parts of paths, in order; at most
 * CATALOG_ENTRIES_MAX. */
#define CATALOG_ENTRIES_MAX 4096
void catalog_each(const char *folder, void (*entry)(void *context, const char *name),
                  void *context);

/* --- catalog_ollama.c --- */

/* What a manifest says of the layers that matter here. */
struct ollama_manifest {
    char digest[64 + 1]; /* of the weights: hex digits; empty when it has none */
    uint64_t bytes;
    bool has_adapter;
    bool has_tensors; /* a newer form, without a GGUF file */
};

/* ERR_INVALID when it is not a manifest. A digest that is none is as bad: no path is made of it. */
enum err ollama_manifest_read(struct str text, struct ollama_manifest *ret_manifest,
                              struct error *error) MUST_CHECK;
