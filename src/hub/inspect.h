/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inspect: what the head of a model file says, and what that means for this machine.
 *
 * It reads the general keys of a GGUF file of any family, or the config.json and the heads of the
 * .safetensors files of a folder; no weights. What is not said is 0 or empty. Unlike the rest of
 * the server it opens files of strangers in its own process: only commands that have entered the
 * sandbox call it.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "base/err.h"

#include <stdint.h>

#define INSPECT_TYPES_MAX 8

struct inspect_type {
    char name[16]; /* "Q4_K" */
    uint32_t tensors;
    uint64_t bytes;
};

struct inspection {
    bool is_folder;
    char family[64]; /* "llama" */
    char title[129]; /* general.name */
    char licence[65];
    char tokenizer[33];
    uint64_t file_bytes;
    uint64_t weight_bytes;
    uint64_t parameters;
    struct inspect_type types[INSPECT_TYPES_MAX]; /* the most bytes first */
    uint32_t type_count;
    uint32_t context;
    uint32_t vocabulary;
    uint32_t layers, width, heads, kv_heads, head_dim;
    uint32_t window;             /* keys that layers with a window see; 0: no layer has one */
    uint64_t kv_bytes_per_token; /* in F16; 0: it keeps none */
    /* Beyond the window only the layers without one keep theirs. The same as the one above where
     * there are no windows, or none that the engine knows. */
    uint64_t kv_far_bytes_per_token;
    bool has_template;
    bool embeds; /* made for embeddings, by what it says of pooling */
};

/* ERR_INVALID with a sentence when it is no model file. */
enum err inspect_path(struct inspection *ret_inspection, const char *path,
                      struct error *error) MUST_CHECK;

struct machine {
    uint64_t memory_bytes;
    uint64_t free_bytes; /* what can be had without swapping */
};
/* Zero when it cannot be found out. */
struct machine inspect_machine(void);

struct fit {
    bool is_in_memory;        /* with one sequence of this length */
    uint32_t sequence_tokens; /* what was asked for, but not over the model's context */
    uint64_t needed_bytes;    /* all but the sequences */
    uint64_t sequences;       /* of that length at a time, in the memory that is free */
};
/* `sequence_tokens` 0: the model's context. */
struct fit inspect_fit(const struct inspection *inspection, const struct machine *machine,
                       uint32_t sequence_tokens);
