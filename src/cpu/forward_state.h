/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* forward_state: what forward_open allocates and forward_run works on; private to those two files.
 */

#include "cpu/forward.h"
#include "cpu/workspace.h"

struct rope_tables {
    float *frequencies; /* (head_dim/2) */
    float *cosines;     /* (rows_max, head_dim/2): of the rows of this step */
    float *sines;
};

/* What attention does in the layers of one group, which have one page table. */
struct group_plan {
    uint32_t window;                /* positions its layers see; 0: all */
    uint32_t *slots;                /* (rows_max) */
    struct attention_item *items;   /* (rows_max) the same in each group but for their tables */
    struct attention_group *groups; /* (rows_max) of neighbouring items */
    uint32_t group_count;
};

/* The slices of a layer. Between two of them all that is under way stands in this struct's memory
 * and in the KV cache. */
enum slice {
    SLICE_KV,        /* up to the point where all keys and values are stored */
    SLICE_ATTENTION, /* attention and its output */
    SLICE_FFN,
};

struct forward {
    struct forward_options options;
    const struct forward *beside; /* whose KV cache this is; NULL: its own */
    uint32_t q_width;
    uint32_t kv_width;
    uint32_t qkv_width;
    struct kv_layout layout;
    struct kv_cache *caches; /* (layers_each) views into kv_memory, by a layer's place */
    void *kv_memory;
    size_t kv_bytes;
    struct workspace workspace; /* the arrays below */
    float *x;                   /* (rows_max, width): the residual stream */
    float *h;                   /* (rows_max, width): normed, or the output of a half layer */
    float *wide;                /* (rows_max, qkv_width) and (rows_max, q_width), or
                                   (rows_max, 2 ffn) */
    float *attended;            /* the second part of wide */
    unsigned char *activations; /* (rows_max, most bytes any matrix needs) */
    float *logits;              /* (logit_rows_max, vocab_rows) */
    struct rope_tables rope[2]; /* global, local */
    uint32_t *row_numbers;      /* (rows_max) 0, 1, 2, …: a row's line in the rope tables */
    struct group_plan plans[BACKEND_GROUPS_MAX]; /* of the layout's groups */
    uint32_t item_count;                         /* of each */
    uint32_t heads_each;                         /* KV heads of one attention task */
    const struct step *step;                     /* the one begun last */
    const uint32_t *wanted;                      /* (wanted_count) of it */
    uint32_t wanted_count;
    uint32_t layer; /* the next slice is of this one; config->layers when all are done */
    enum slice slice;
    uint32_t row_count; /* of the stage under way: all rows, then only the wanted ones */
};
