/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config: the numbers of one model, read from GGUF metadata and checked against each other
 * (config_json.h reads them from a config.json).
 *
 * An architecture is a row of a table: a difference between families is a flag here, and the
 * forward program reads the flags, never the name. A model that no flags describe is refused by
 * name, not run wrongly.
 *
 * Thread: any; immutable after config_init.
 * Memory: the struct only; name and rope_factors lie in the file that it was read from, which must
 *     outlive it.
 * Invariant: every count is within the bounds below, so that products of any four fit 64 bits. */

#include "checkpoint/gguf.h"

#define CONFIG_DISTANCES 32u /* buckets of a bias by distance */
#define CONFIG_LAYERS_MAX 512u
#define CONFIG_WIDTH_MAX 65536u
#define CONFIG_FFN_MAX 262144u
#define CONFIG_HEADS_MAX 512u
#define CONFIG_HEAD_DIM_MAX 512u    /* the limit of kernels/kernels.h */
#define CONFIG_EXPERTS_MAX 1024u    /* likewise */
#define CONFIG_LATENT_RANK_MAX 512u /* likewise: LATENT_RANK_MAX and LATENT_TURNED_MAX */
#define CONFIG_LATENT_TURNED_MAX 128u
#define CONFIG_STATE_HEADS_MAX 512u /* the limits of kernels/recurrent.h */
#define CONFIG_STATE_DIM_MAX 256u
#define CONFIG_TAPS_MAX 4u
#define CONFIG_STATE_BYTES_MAX (1ull << 30) /* state of a sequence, in all layers */
#define CONFIG_CONTEXT_MAX (1u << 24)
#define CONFIG_LABELS_MAX 4096u
#define CONFIG_DENSE_MAX 2u
#define CONFIG_VOCAB_MAX (1u << 21)

/* CLAMPED: SiLU with a limit and a factor, and one more than the second half. Without a gate: RELU2
 * is the square of what is above 0, XIELU has four numbers per layer (kernels/kernels.h). */
enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_CLAMPED,
    ACTIVATION_RELU2,
    ACTIVATION_XIELU,
    ACTIVATION_GELU /* with the error function */
};

/* How the hidden states of a text become one vector; the numbers of pooling_type. */
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST };

/* The head that turns the pooled state of a text into one number per label: a matrix, behind a
 * dense layer and tanh in TANH, or a dense layer, GELU and LayerNorm in NORM. */
enum label_form { LABEL_FORM_PLAIN, LABEL_FORM_TANH, LABEL_FORM_NORM };

/* How two texts are one: with one mark between them, or two. NONE: the family takes no pairs. */
enum pair_form { PAIR_NONE, PAIR_ONE_MARK, PAIR_TWO_MARKS };

/* What a layer mixes tokens with, and what follows it. A new family adds a kind. */
enum mixer_kind {
    MIXER_ATTENTION,
    MIXER_DELTA,
    MIXER_CONV,
    MIXER_MAMBA,
    MIXER_LATENT,
    MIXER_BOTH, /* Mamba-2 next to attention, behind one norm */
    MIXER_NONE, /* a feed-forward alone */
};
enum ffn_kind { FFN_GATED, FFN_EXPERTS, FFN_BOTH /* one beside the other */, FFN_NONE };

/* The YaRN scaling of rotations: low frequencies are divided by `factor`, high ones stay. */
struct yarn {
    float factor;               /* 0: no such scaling */
    float original;             /* positions of the first training */
    float beta_fast, beta_slow; /* turns in them, between which frequencies are blended */
    bool is_rounded;            /* the ends of the blend are whole pairs */
    float log_factor; /* latent layers: their scores · (1 + log_factor · log(factor))² */
};

/* The sizes of the recurrent layers of a model; all zero: it has none. Gated DeltaNet has a state
 * (key_dim, value_dim) per value head. The channels that the convolution mixes are q, k and v. A
 * convolution alone has no keys, and its channels are one value head as wide as the model. Mamba-2
 * has groups as key heads, whose keys are the columns of a state, and its channels are x, B, C. */
struct recurrent_sizes {
    uint32_t taps; /* inputs of the convolution, a row's own input included */
    uint32_t key_heads;
    uint32_t value_heads; /* a multiple of key_heads */
    uint32_t key_dim;
    uint32_t value_dim;
    bool has_conv_bias;
    bool has_no_norm;   /* Mamba-2: only the gate is behind the state */
    bool norm_is_first; /* Mamba-2: the gate comes behind the norm */
    float step_max;     /* Mamba-2: limits of a step; 0: none */
    float step_min;
    bool heads_are_tiled; /* value head j uses key head j % key_heads, as GGUF has them; false:
                             j / (value_heads / key_heads) */
};

/* Attention whose keys and values follow from a vector that all heads share (MLA). A token's line
 * in the cache is that vector, of `rank`, and the turned part of its key. All zero: the model has
 * no such layers. */
struct latent_sizes {
    uint32_t rank;       /* a multiple of 16 */
    uint32_t q_rank;     /* width between the two products that make q; 0: one product does */
    uint32_t still_dim;  /* elements of a head of q that do not turn */
    uint32_t turned_dim; /* elements that turn, a multiple of 16; the key's is of all heads */
    uint32_t value_dim;  /* what a head leaves */
    bool halves_turn;    /* elements i and i + half turn together; false: neighbours */
};

/* Factors of products that a folder of Falcon-H1 states next to its weights; a GGUF has them in the
 * weights. 0 means 1. */
struct multipliers {
    float attention; /* what attention leaves, before its output */
    float gate;      /* the feed-forward's gate, before its activation */
    float down;      /* before the product of down */
    float state_gate;
    float state_channels[3]; /* x, B, C */
    float state_step;
    float state; /* what the state leaves, before its output */
};

/* How a router's logits choose the experts of a row. All zero: the most probable ones. */
struct routing_rule {
    bool is_sigmoid;      /* an expert's probability is the sigmoid of its logit alone */
    bool has_bias;        /* a number for each expert is added to its probability for the choice */
    bool groups_by_best;  /* a group counts by its best expert; false: by the sum of its two best */
    uint32_t groups;      /* neighbouring experts in as many groups of one size; 0: none */
    uint32_t groups_used; /* groups that the experts of a row are in */
    float scale;          /* factor of the weights of a row; 0 means 1 */
};

/* One layer of a decoder. All zero: attention over all keys, and a gated feed-forward. */
struct layer {
    enum mixer_kind mixer;
    enum ffn_kind ffn;
    uint32_t window; /* keys that a row sees, its own too; 0: all */
    uint32_t rope;   /* table of the rotation's frequencies: 0 global, 1 local */
    /* Sizes of this layer; 0: the model's. */
    uint32_t head_dim;
    uint32_t kv_heads;
    uint32_t width_of_ffn; /* gated */
    uint32_t kv_from;      /* 1 + the layer before whose keys and values it reads; 0: its own */
    bool v_is_k;           /* no rows of v: what k is before its norm and rotation */
    float xielu
        [4]; /* read from a GGUF: alpha_p and alpha_n before their softplus, beta, eps; a folder has
                       them as tensors */
};

/* How a family differs from the common decoder (RMSNorm, rotary positions, grouped-query attention,
 * gated feed-forward). All zero is the architecture llama without its permutation. */
struct architecture {
    const char *name;       /* general.architecture, and the prefix of its keys */
    bool is_encoder;        /* BERT: LayerNorm after each half layer, learned positions, biases, no
                               causal mask, no gate (GELU), no head */
    bool has_distance_bias; /* an encoder whose scores get a bias by distance, in 32 buckets of the
                               first layer for all (MPNet); its tokens have no type */
    bool is_rotary_encoder; /* an encoder with rotary positions, a gate (SiLU), and biases only in
                               its norms */
    bool rope_is_interleaved;  /* q and k rows were permuted for pairs (2i, 2i+1) */
    bool pairs_are_neighbours; /* heads turn in pairs (2i, 2i+1), in every form of the files */
    bool globals_do_not_turn;  /* layers without the window do not rotate, if others have it */
    uint32_t unrotated_period; /* each such layer does not rotate; 0: all rotate */
    bool has_qkv_bias;
    bool has_output_bias;       /* attention ends with one */
    bool has_sinks;             /* one more score for each head */
    bool has_expert_bias;       /* the router and the experts have biases */
    bool experts_are_as_wide;   /* as the feed-forward that the file states */
    bool has_alternate_experts; /* rows of a fused gate and up alternate */
    bool may_turn_experts;      /* a folder may have the experts by inputs */
    bool has_yarn;              /* may have that scaling */
    bool yarn_is_rounded;       /* where the file does not say it */
    bool has_yarn_magnitude;    /* a file may state the factor of cosines and sines */
    bool has_temper;            /* q has a factor by its position */
    bool may_have_qkv_bias;
    bool may_have_qk_norm;     /* then the next row has the same name, and has it */
    bool has_qk_norm;          /* RMSNorm of each head of q and k before the rotation */
    bool qk_norm_is_wide;      /* one norm for all heads, not one for each */
    bool has_no_pre_norm;      /* no norms before attention and before the feed-forward */
    bool has_output_gate;      /* a sigmoid of a product of the input is a factor of what attention
                                   leaves; its rows stand behind those of q, head by head */
    bool is_latent;            /* all layers are MIXER_LATENT */
    bool head_sizes_are_plain; /* latent: key_length and value_length are of a head, always */
    enum mixer_kind recurrent; /* kind of the layers that are not of attention; MIXER_ATTENTION:
                                  all layers are */
    bool delta_is_grouped;    /* MIXER_DELTA: a folder has the rows of q, k, v and gate, and the two
                                  rates, in one tensor each, key head by key head; GGUF the rates */
    bool has_v_norm;          /* RMSNorm of each head of v, without weights */
    bool has_layer_scale;     /* a factor of the residual stream behind each layer */
    bool has_post_norm;       /* norms after attention and after the feed-forward, before the sum */
    bool embedding_is_scaled; /* by sqrt(width) */
    bool has_layer_norm;      /* a decoder's norms: LayerNorm, with weights alone */
    bool has_norm_bias;       /* these norms have biases, too */
    bool halves_are_parallel; /* attention and feed-forward read one norm and are added to x */
    bool norms_follow_turn;   /* norms of q and k come behind the rotation */
    bool base_is_scaled;      /* may have a factor of the rotation's base ("dynamic" with alpha) */
    bool logits_are_scaled;   /* the file has a factor of the logits */
    bool has_glm_norms;       /* config.json's tensors name the four norms as GLM-4 does */
    bool has_multipliers;     /* for embedding, sums and logits (Granite) */
    bool mixers_are_parallel; /* all layers are MIXER_BOTH, with multipliers (Falcon-H1) */
    bool embedding_is_normed; /* LayerNorm behind it, and none before the first attention */
    bool full_comes_first;    /* layers 0, window_period, … are without the window */
    bool has_single_halves;   /* a layer is a mixer or a feed-forward, behind its one norm */
    bool never_turns;         /* no layer rotates */
    bool has_fused_gate_up;   /* one tensor with the rows of gate, then up */
    bool has_long_rope;       /* may have rope factors for short texts, and others for long ones */
    bool may_see_both;        /* may be an embedder whose positions see later tokens */
    bool sees_both;           /* always is one */
    bool has_window;          /* needs sliding_window; each window_period-th layer is without it */
    bool may_have_window;
    bool has_local_rope;    /* layers with the window have a base of their own and no scaling */
    uint32_t window_period; /* 0: all layers have the window */
    enum ffn_kind ffn;      /* kind in the layers of which the file says nothing else */
    bool has_shared_expert; /* a layer with experts has one more, which all rows go through, times
                               the sigmoid of a product of the row */
    bool shared_expert_is_plain;     /* without that factor */
    bool shared_experts_are_counted; /* it is as wide as a number of experts */
    bool expert_weights_sum_to_one;  /* when the file has no field for it */
    bool router_is_sigmoid;          /* likewise */
    float rotary_share; /* share of a head that is rotated, when the file does not say; 0: all */
    /* A model with this number of layers scales attention by width / heads. GGUF has no key for it;
     * llama.cpp tells by the layers too. 0: no model does. */
    uint32_t wide_scale_layers;
    float attention_softcap; /* default when the file has none; 0: no cap */
    float softcap;           /* likewise */
    enum activation activation;
    enum label_form label_form; /* if a model has labels */
    enum pair_form pair_form;
    /* Numbers of all models of the family, for a file that lacks their key. 0: they differ between
     * its models, and the key must be there. */
    float eps;
    float rope_base;
    float rope_base_local;
    uint32_t head_dim; /* 0: width / heads */
    /* The linear scaling of the models that read pictures. Ollama's converter writes no key for it,
     * so it also counts for a file with pictures' tensors, or with one of these numbers of layers.
     */
    float scaling_with_pictures; /* 0: none */
    uint32_t layers_with_pictures[3];
};

struct model_config {
    const struct architecture *architecture;
    struct str name; /* general.name, printable and cut; may be empty */
    uint32_t layers;
    uint32_t width;        /* width of the residual stream */
    uint32_t ffn;          /* width of a gated feed-forward */
    uint32_t experts;      /* experts of a layer of FFN_EXPERTS; 0: the family has none */
    uint32_t experts_used; /* experts of a token */
    uint32_t expert_ffn;   /* width of an expert */
    uint32_t shared_ffn;   /* width of the shared expert; 0: none */
    bool expert_weights_sum_to_one;
    struct routing_rule routing;
    float gate_limit, gate_alpha; /* for ACTIVATION_CLAMPED */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t rotary_dim; /* leading elements of a head that are rotated; 0: all */
    struct recurrent_sizes recurrent;
    struct latent_sizes latent;
    struct multipliers multipliers;
    uint32_t layers_skipped; /* layers behind the last one that the file has and no pass needs */
    uint32_t input_width;    /* a layer's own part of a token's embedding; 0: none */
    uint32_t turned_pairs;   /* that rotate, the leading ones, with table 0; 0: all */
    uint32_t context_max;
    uint32_t vocab_rows;  /* rows of the embedding; at least token_count */
    uint32_t token_count; /* tokens the tokenizer knows: ids from here on are never sampled */
    float eps;
    float inner_eps;    /* epsilon of norms behind a state, or within a latent layer */
    bool does_not_turn; /* no layer rotates */
    float rope_base;
    float rope_scale; /* factor of positions: 1/factor of linear scaling */
    float rope_base_local;
    const unsigned char
        *rope_factors; /* (config_rotary_dim/2) f32, unaligned, divisors; NULL: none */
    struct yarn yarn;
    float temper_beta;       /* factor of q: 1 + beta · log(1 + position / temper_tokens) */
    uint32_t temper_tokens;  /* with the quotient as a whole number; beta 0: none */
    float rope_magnitude;    /* factor of cosines and sines; 0 means 1 */
    float embedding_scale;   /* factor of the embedding; 0: as the family says */
    float output_scale;      /* factor of the logits; 0 means 1 */
    float attention_scale;   /* factor of q.k before the softmax */
    float attention_softcap; /* cap of the scores; 0: none */
    float softcap;           /* cap of the logits; 0: none */
    uint32_t window;         /* the window of every local layer; 0: no layer is local */
    struct layer list[CONFIG_LAYERS_MAX]; /* (layers) */
    uint32_t position_first;              /* row of an encoder's first position */
    uint32_t token_types;                 /* rows of an encoder's token types; else 0 */
    enum pooling pooling;                 /* NONE: the file does not say */
    uint32_t labels;     /* numbers that the head gives a text; 0: the model has no such head */
    bool labels_are_raw; /* they count as they are, not their sigmoid or softmax */
    uint32_t embed_tokens_max; /* tokens of one text to embed; 0: as many as the context */
    bool is_bidirectional;     /* every position sees the whole text, also later tokens */
    bool windows_see_both;     /* and windows go as far to both sides, the own key counted once */
    uint32_t dense_widths[CONFIG_DENSE_MAX]; /* products behind the pooling, and how wide they leave
                                                it; 0: no more */
};

/* True when a layer has keys and values, or lines. */
bool config_layer_has_keys(const struct model_config *config, uint32_t layer);
/* True when a layer has a state. */
bool config_layer_is_recurrent(const struct model_config *config, uint32_t layer);
bool config_is_recurrent(const struct model_config *config); /* true when any layer is */
/* Inputs of the convolution of a recurrent layer, what its state leaves behind, and the rows of its
 * first product: the channels and their gates. */
uint32_t config_state_channels(const struct model_config *config);
uint32_t config_state_width(const struct model_config *config);
uint32_t config_state_rows(const struct model_config *config);
/* True when the layers are MIXER_LATENT: what a token keeps is then one line for all heads. */
bool config_is_latent(const struct model_config *config);
/* ERR_INVALID for sizes of latent layers that are not supported. Otherwise sets the sizes that
 * follow from them: one head of keys, as wide as a line. */
enum err config_set_latent(struct model_config *config, struct error *error) MUST_CHECK;
/* Sets the factor of the scores of latent layers, after the scaling of positions is known. */
void config_set_latent_scale(struct model_config *config);
/* Bytes of a sequence's states in all layers; 0 without such layers. */
uint64_t config_state_bytes(const struct model_config *config);
/* The sizes of a layer. */
uint32_t config_head_dim(const struct model_config *config, uint32_t layer);
uint32_t config_kv_heads(const struct model_config *config, uint32_t layer);
uint32_t config_ffn(const struct model_config *config, uint32_t layer);
/* The elements of keys, or of values, that a layer has for a token; 0 for one that reads another's.
 */
uint32_t config_kv_width(const struct model_config *config, uint32_t layer);
/* Elements of a head that are rotated in the layers that turn by table `rope`: even. */
uint32_t config_rope_width(const struct model_config *config, uint32_t rope);
/* True when layers differ in their sizes. */
bool config_layers_differ(const struct model_config *config);
/* True when a layer has experts beside a gated feed-forward. */
bool config_has_both(const struct model_config *config);
/* True when a layer has a gated feed-forward, or experts. */
bool config_layer_is_gated(const struct model_config *config, uint32_t layer);
bool config_layer_has_experts(const struct model_config *config, uint32_t layer);
/* True when a feed-forward has one product before its activation, not two. */
bool config_has_no_gate(const struct model_config *config);
/* True when a layer has experts. */
bool config_has_experts(const struct model_config *config);
/* The row of the same name for models with norms of q and k, for a row that may have them. */
const struct architecture *config_with_qk_norm(const struct architecture *architecture);
/* The row of the same name for embedders that see both sides; without one, the row itself. */
const struct architecture *config_as_embedder(const struct architecture *architecture);
/* The row of the same name for models without experts, or NULL. */
const struct architecture *config_without_experts(const struct architecture *architecture);
/* The table's row of that name, or NULL. */
const struct architecture *config_architecture(struct str name);
#define CONFIG_NAMES_BYTES 1024
/* All names of the table, as a sentence has them: "a, b and c". */
void config_architecture_names(char ret_names[CONFIG_NAMES_BYTES]);
/* Adds name `index` of `count` to such a list. */
void config_add_name(char names[CONFIG_NAMES_BYTES], const char *name, size_t index, size_t count);

/* `token_count` is the length of the vocabulary. ERR_INVALID with one sentence naming the key or
 * tensor that is missing, out of bounds, contradictory or not supported. */
enum err config_init(struct model_config *ret_config, const struct gguf *gguf, size_t token_count,
                     struct error *error) MUST_CHECK;
/* "mean", "cls" or "last"; false for any other name. */
bool pooling_of_name(struct str name, enum pooling *ret_pooling);
/* Which layers are local by a rule: those from `from` on, but each period-th; 0: no such period. */
void config_local_layers(uint32_t layers, uint32_t from, uint32_t period,
                         bool ret_is_local[CONFIG_LAYERS_MAX]);
/* The same by the family's way to count. */
void config_local_layers_of(const struct model_config *config, uint32_t from, uint32_t period,
                            bool ret_is_local[CONFIG_LAYERS_MAX]);
/* Gives the local layers their window, and the rotation that goes with it. */
void config_set_windows(struct model_config *config, uint32_t window,
                        const bool is_local[CONFIG_LAYERS_MAX]);
/* True when layer `layer` sees only the last `window` keys. */
bool config_layer_is_local(const struct model_config *config, uint32_t layer);
/* True when local layers, or those without a rotation, have frequencies of their own. */
bool config_has_local_rope(const struct model_config *config);
/* Why only the CPU computes such a model: a noun, or NULL when GPUs do as well. */
const char *config_cpu_only(const struct model_config *config);
/* Why only the CPU computes the texts of an embedder or of a model with labels; likewise. */
const char *config_texts_cpu_only(const struct model_config *config);
/* Elements of a head that are rotated: even. */
uint32_t config_rotary_dim(const struct model_config *config);
/* Factor of a row of the embedding. */
float config_embedding_scale(const struct model_config *config);
/* Makes a window of `window` keys around each position of those that end at it. */
void config_center_windows(struct model_config *config);
/* Width of what a text's vector is behind the pooling and `count` products. */
uint32_t config_dense_width(const struct model_config *config, uint32_t count);
/* Gives the layers without a rotation their table: each `period`-th; 0: no layer. */
void config_set_unrotated(struct model_config *config, uint32_t period);
/* Takes Granite's multiplier of the sums, r: x += r f(x) in each half layer. All norms are of x, so
 * x / r with the epsilon / r² gives the same, without a factor in the sums. */
void config_set_residual(struct model_config *config, float multiplier);
/* The inverse frequencies of a layer's rotation, (config_rope_width/2), with scaling and factors
 * applied. In layers that do not turn they are 0. */
void config_rope_frequencies(const struct model_config *config, bool local, float *ret_frequencies);
