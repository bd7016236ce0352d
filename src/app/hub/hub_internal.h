/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hub_internal: the stores that the catalog searches, and the two kinds of models that inspect.h
 * reads.
 *
 * Thread: any.
 * Memory: the caller's. */

#include "hub/catalog.h"
#include "hub/inspect.h"

/* --- stores: each calls `found` for its models in order of their names, and leaves out a model
 * that it cannot read --- */

void catalog_ollama(model_file_fn found, void *context);
void catalog_hub(model_file_fn found, void *context);

/* --- catalog_hub.c --- */

/* Where the cache is, whether it exists or not; false if no variable says where. */
bool catalog_hub_root(char ret_path[PATH_MAX]);
/* The name of a repository's folder in the cache: models--ORG--NAME. */
#define CATALOG_FOLDER_BYTES (MODEL_NAME_BYTES + 16)
void catalog_hub_folder_name(const char *repository, char ret_name[CATALOG_FOLDER_BYTES]);
/* Reads the commit in refs/main of a repository's folder below `root`, which is real; the text is
 * foreign. False unless it is 40 hex digits. */
#define CATALOG_COMMIT_BYTES 41
bool catalog_hub_commit(const char *root, const char *folder,
                        char ret_commit[CATALOG_COMMIT_BYTES]);
/* The last part of a file name without its ending that names a quantisation; empty if none does. */
struct str catalog_quantisation(struct str stem);
/* The place of a quantisation among the usual ones, the one to prefer first: 0 and up;
 * CATALOG_RANKS for any other. */
#define CATALOG_RANKS 7
int catalog_rank(struct str quantisation);
/* Reads NAME-00002-of-00005 and an ending, such as ".gguf"; false for any other name. */
#define CATALOG_PART_BYTES 15
bool catalog_part(struct str name, const char *ending, unsigned *ret_part, unsigned *ret_parts);

/* --- catalog_ollama.c --- */

/* The layers of a manifest that matter here. */
struct ollama_manifest {
    char digest[64 + 1]; /* the SHA-256 of the weights in hex; empty: no layer has weights */
    uint64_t bytes;
    bool has_adapter;
    bool has_tensors; /* a newer form, without a GGUF file */
    /* The SHA-256 of what the Modelfile says; empty: nothing. */
    char params_digest[64 + 1], system_digest[64 + 1];
};

/* ERR_INVALID: the text is no manifest, or its digest is not 64 hex digits; the digest becomes part
 * of a path. */
enum err ollama_manifest_read(struct str text, struct ollama_manifest *ret_manifest,
                              struct error *error) MUST_CHECK;
/* Calls `found` with the real path of each of Ollama's stores on this machine. */
void catalog_ollama_roots(void (*found)(void *context, const char *root), void *context);
#define OLLAMA_MANIFEST_BYTES_MAX ((size_t)1 << 20)

/* --- inspect_gguf.c, inspect_folder.c --- */

enum err inspect_gguf(struct inspection *inspection, const char *path,
                      struct error *error) MUST_CHECK;
enum err inspect_folder(struct inspection *inspection, const char *path,
                        struct error *error) MUST_CHECK;

/* --- inspect.c --- */

/* Copies a foreign text: cut to `room`, and '?' in place of bytes that are not printable ASCII. */
void hub_copy_printable(char *ret_text, size_t room, struct str text);
/* Adds a tensor to the sums. The list of types stops at INSPECT_TYPES_MAX, the sums do not. */
void inspect_add_tensor(struct inspection *inspection, const char *type, uint64_t elements,
                        uint64_t bytes);
