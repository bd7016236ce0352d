/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* forward_state: the struct that forward_open.c allocates and forward.c works on. Only these
 * files, experts.c, latent.c and recurrent.c include it.
 *
 * Thread: as forward.h.
 * Memory: forward_open allocates all of it; with `beside`, program and caches belong to that
 *     forward. */

#include "cpu/forward.h"
#include "cpu/workspace.h"
#include "program/plan.h"
#include "program/program.h"

/* The angles of the rows of this step. */
struct rope_tables {
    float *cosines; /* (rows_max, rope_width/2) */
    float *sines;
};

/* The attention of a group's layers (program/plan.h) as tasks for threads. */
struct attention_tasks {
    struct attention_group *groups; /* (rows_max) runs of neighbouring items */
    uint32_t group_count;
};

/* The experts of the rows of a layer, and their work. A place is one expert of one row; the places
 * of an expert follow each other, in the order of rows. All is empty without experts. */
struct routing {
    uint32_t *experts;          /* (rows_max, used) by a row's weights, the largest first */
    float *weights;             /* (rows_max, used) */
    uint32_t *places;           /* (rows_max, used) */
    uint32_t *rows;             /* (rows_max · used) the row of each place */
    uint32_t *ends;             /* (experts) the place after an expert's last */
    struct matmul *products;    /* (experts) */
    unsigned char *activations; /* (rows_max · used, most bytes of an expert's matrix) */
    float *hidden;              /* (rows_max · used, 2 ffn) */
    float *sums;                /* (rows_max · used, width) what each expert leaves */
    unsigned char *room; /* (threads) the largest tile of an expert, for those left in the file */
};

struct forward {
    struct forward_options options;
    const struct forward *beside; /* the owner of the KV cache; NULL: this one */
    struct kv_layout layout;
    struct program own_program;    /* empty with `beside` */
    const struct program *program; /* own_program, or that of `beside` */
    struct kv_cache *caches;       /* (layers_each) views into kv_memory, by a layer's place */
    void *kv_memory;
    size_t kv_bytes;
    float *states;      /* (state_count, states.floats) by place; NULL: no layer is recurrent */
    size_t state_bytes; /* size of all states; 0 with `beside` */
    struct workspace workspace; /* the arrays below */
    float *x;                   /* (rows_max, width): the residual stream */
    float *h;                   /* (rows_max, width): normed, or the output of a half layer */
    float *wide;     /* (rows_max, qkv_width), or (rows_max, channels and gates), or (rows_max,
                      2 ffn), or (rows_max, experts), or as inputs */
    float *attended; /* (rows_max, q_width or state_width); it may lie in wide, behind the first two
                      */
    float *queries;  /* (rows_max, heads entries) q of latent layers, or NULL */
    unsigned char *head_activations; /* (heads, rows, most bytes of a head's matrix), or NULL */
    struct matmul *head_products;    /* (heads) or NULL */
    float *narrow;                   /* (rows_max, 2 value_heads), or (rows_max) */
    float *inputs;                   /* (rows_max, layers · input_width) or NULL */
    float *ones;                     /* (head_dim) ones, or NULL: weights of a norm without */
    float *side;                     /* (rows_max, width) or NULL */
    unsigned char *activations;      /* (rows_max, most bytes any matrix needs) */
    float *logits;                   /* (logit_rows_max, vocab_rows) */
    struct rope_tables rope[2];      /* global, local */
    struct routing routing;
    uint32_t *row_numbers; /* (rows_max) 0, 1, 2, …: a row's line in the rope tables */
    struct plan plan;
    struct attention_tasks tasks[BACKEND_GROUPS_MAX]; /* one per group of the layout */
    bool is_by_head;                                  /* an attention task has one KV head */
    const struct step *step;                          /* the step begun last */
    const uint32_t *wanted; /* (wanted_count) its rows that can have logits */
    uint32_t wanted_count;
    uint32_t op_next;   /* index of the operation that runs next */
    uint32_t row_count; /* rows of an operation: all, and behind KEEP the wanted ones */
};
