/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* inspect: what the head of a model file says, and how the model fits into this machine.
 *
 * It reads the general keys of a GGUF file of any family, or the config.json of a folder and the
 * heads of its .safetensors files; no weights. A value that the file does not give is 0 or empty.
 * It opens foreign files in its own process, unlike the rest of the server: only commands that have
 * entered the sandbox call it.
 *
 * Thread: main.
 * Memory: the caller's structs; inspect_release frees what one owns. */

#include "base/buf.h"
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
    uint64_t memory_bytes; /* weights as the CPU keeps them, by inspect_verdict; 0: not known */
    /* The part of memory_bytes whose weights may stay in the file when memory is short: experts. */
    uint64_t expert_bytes;
    uint64_t parameters;
    struct inspect_type types[INSPECT_TYPES_MAX]; /* the one with the most bytes first */
    uint32_t type_count;
    uint32_t context;
    uint32_t vocabulary;
    uint32_t layers, width, heads, kv_heads, head_dim;
    uint32_t window;             /* keys that a layer with a window sees; 0: no layer has one */
    uint64_t kv_bytes_per_token; /* keys and values of all layers in F16; 0: an encoder */
    /* The same for tokens beyond the window, which only layers without a window keep. Equal to
     * kv_bytes_per_token if no layer has a window, or before inspect_verdict. */
    uint64_t kv_far_bytes_per_token;
    /* The first with --kv-cache-dtype int8_per_token_head; 0: the CPU has no such keys for it. */
    uint64_t kv_int8_bytes_per_token;
    /* States of a sequence, whatever its length; 0: no layer has one, or before inspect_verdict. */
    uint64_t state_bytes;
    char mixture[16]; /* "Q4_K_M": the name of the mixture of types; empty: the file has none */
    bool has_template;
    /* What the template does, known after inspect_verdict if the template can be read. */
    bool is_template_read, takes_tools, thinks;
    struct buf template; /* its text; empty: none, or it is not known */
    bool embeds;         /* made for embeddings: the file says how to pool */
};

/* An error with a sentence: the path does not exist, or is no model. */
enum err inspect_path(struct inspection *ret_inspection, const char *path,
                      struct error *error) MUST_CHECK;
void inspect_release(struct inspection *inspection);

struct machine {
    uint64_t memory_bytes;
    uint64_t free_bytes; /* available without swapping */
};
/* A value is 0 if the system does not tell it. */
struct machine inspect_machine(void);

struct fit {
    bool is_in_memory;        /* the weights and one sequence fit into the free memory */
    uint32_t sequence_tokens; /* the length asked for, cut to the model's context */
    uint64_t needed_bytes;    /* everything except sequences */
    uint64_t least_bytes;     /* the same while all experts stay in the file */
    uint64_t left_bytes;     /* experts that stay in the file; 0: none, or it does not fit at all */
    uint64_t sequence_bytes; /* keys, values and state of one */
    uint64_t sequences;      /* sequences of that length that fit at once into the free memory */
};
/* `sequence_tokens` 0: as long as the model's context. */
struct fit inspect_fit(const struct inspection *inspection, const struct machine *machine,
                       uint32_t sequence_tokens);
