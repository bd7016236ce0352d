/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* layer_weights: the matrices and vectors of one layer, by their part in the forward pass.
 *
 * The executor that opens the weights decides the matrices' layout; the maker of a program reads
 * only which of them exist.
 *
 * Thread: any; constant after the weights are open.
 * Memory: the opener of the weights owns all of them. */

#include "kernels/kernels.h"

/* The norms and biases of an encoder's layer. Its gate_up is `up` alone; that of a rotary encoder
 * is both, and its biases are the norms' only. */
struct encoder_layer {
    float *attention_norm;      /* (width) LayerNorm after attention and its residual */
    float *attention_norm_bias; /* (width) */
    float *up_bias;             /* (ffn) or NULL, as down_bias */
    float *down_bias;           /* (width) */
    float *ffn_norm;            /* (width) LayerNorm after the feed-forward and its residual */
    float *ffn_norm_bias;       /* (width) */
};

/* A mixture of experts. All experts of a layer have the same sizes and forms. */
struct experts {
    uint32_t count; /* 0: the layer has none */
    uint32_t used;  /* experts of a row */
    uint32_t ffn;   /* width of an expert */
    bool sums_to_one;
    bool is_sigmoid; /* this and the next five: as struct route of kernels.h has them */
    bool groups_by_best;
    uint32_t groups, groups_used;
    float route_scale;
    float *choice_bias;            /* (count) or NULL */
    float gate_limit, gate_alpha;  /* for a clamped gate */
    struct matrix *router;         /* (count, width) */
    struct matrix **gate_up;       /* (count) matrices of (gate | up: 2 ffn, width), or up alone */
    struct matrix **down;          /* (count) matrices of (width, ffn) */
    float *scales;                 /* (count) factors of the experts' weights, or NULL */
    float *router_bias;            /* (count) or NULL */
    float *gate_up_bias;           /* (count, gate | up) or NULL */
    float *down_bias;              /* (count, width) or NULL */
    uint32_t shared_ffn;           /* width of the one that all rows go through; 0: none */
    struct matrix *shared_gate_up; /* (gate | up: 2 shared_ffn, width), or up alone */
    struct matrix *shared_down;    /* (width, shared_ffn) */
    struct matrix *shared_scale; /* (1, width): its sigmoid is a factor of the shared expert; NULL:
                                    1 */
};

/* A recurrent layer. Its channels, which the convolution mixes, are q | k | v. Those of Mamba-2 are
 * x | B | C, and its rates are the steps. */
struct recurrent {
    struct matrix *in;     /* (channels | gate, width) */
    struct matrix *rates;  /* (alpha | beta: 2 value_heads, width) */
    struct matrix *output; /* (width, value_heads · value_dim) next to attention, or NULL */
    float *conv;           /* (taps, channels) */
    float *conv_bias;      /* (channels) or NULL */
    float *skip;           /* Mamba-2: (value_heads) factor of x in what the state leaves */
    float *decay;          /* (value_heads) logarithms of the rates of decay */
    float *step_bias;      /* (value_heads) */
    float *norm;           /* (value_dim); Mamba-2: (value_heads · value_dim), or NULL */
};

/* Attention whose keys and values follow from a vector of `rank` that all heads share. A head's q is
 * turned into that vector's space, and what attention leaves of it into values. */
struct latent {
    uint32_t heads;      /* 0: the layer is of another kind */
    struct matrix *in;   /* (q between its products, or q | shared vector | turned key, width) */
    struct matrix *q_b;  /* (q, its width between) or NULL */
    float *q_norm;       /* (its width between) or NULL */
    float *norm;         /* (rank) */
    struct matrix **k_b; /* (heads) matrices of (rank, still_dim) */
    struct matrix **v_b; /* (heads) matrices of (value_dim, rank) */
};

struct layer_weights {
    float *attention_norm;      /* (width) or NULL */
    float *attention_norm_bias; /* (width) or NULL */
    float *q_norm;              /* (head_dim), or of all heads, or NULL */
    float *k_norm;              /* likewise */
    struct matrix *qkv;         /* (q | k | v, width): (heads + 2 kv_heads) · head_dim outputs; or
                                   (q | k | v | gate, width); NULL in a recurrent layer */
    float *qkv_bias;            /* (q | k | v) or NULL */
    float *sinks;               /* (heads) or NULL */
    struct matrix *output;      /* (width, heads · head_dim), or what a state leaves */
    float *output_bias;         /* (width) or NULL; an encoder's too */
    float *post_attention_norm; /* (width) or NULL */
    float *ffn_norm;            /* (width) or NULL */
    float *ffn_norm_bias;       /* (width) or NULL */
    struct matrix *gate_up;     /* (gate | up: 2 ffn, width), or up alone; NULL with experts */
    float *xielu;               /* (4) alpha_p, alpha_n, beta, eps of the activation, or NULL */
    struct matrix *down;        /* (width, ffn); likewise */
    struct experts experts;
    struct recurrent recurrent;
    struct latent latent;
    float *post_ffn_norm; /* (width) or NULL */
    /* Experts beside a feed-forward, or NULL. */
    float *router_norm;       /* (width), with the router's factor */
    float *experts_norm;      /* (width) */
    float *post_dense_norm;   /* (width) */
    float *post_experts_norm; /* (width) */
    /* The layer's part of a token's embedding, or NULL. */
    struct matrix *input_gate; /* (input_width, width) */
    struct matrix *input_out;  /* (width, input_width) */
    float *post_input_norm;    /* (width) */
    float *scale;              /* (1): factor of the residual stream behind the layer, or NULL */
    struct encoder_layer encoder;
};
