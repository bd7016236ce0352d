/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mutations: a model file with something wrong in it, the same for the same seed.
 *
 * It knows where a GGUF keeps its counts, lengths, types and offsets, and what the numbers and
 * brackets of a text are, so that most of what it makes gets past the first check of a reader.
 *
 * Memory: the caller's. */

#include "base/buf.h"
#include "base/rng.h"

enum base_kind {
    BASE_GGUF,
    BASE_FOLDER, /* one file of a folder: its .safetensors, its config.json, … */
    BASE_TOKENIZER,
    BASE_TEMPLATE,
    BASE_KIND_COUNT
};

/* A place where the file keeps a number, of 1 to 8 bytes, or a text. */
struct field {
    size_t at;
    size_t bytes;
    bool is_text;
};

struct base {
    const char *path;
    enum base_kind kind;
    char *bytes;
    size_t count;
    size_t head_bytes;    /* the part worth breaking: all but the weights */
    struct field *fields; /* (field_count) in a GGUF, and the length of a header of safetensors */
    size_t field_count;
};

/* Reads a file. False for one that is no base. */
bool base_open(struct base *ret_base, const char *path);
void base_close(struct base *base);

/* Replaces `out` by `base` with one mutation, or a few; `other`, of the same kind, is spliced in.
 */
void mutate(const struct base *base, const struct base *other, struct rng *rng, struct buf *out);
