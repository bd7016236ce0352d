/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_world: a tiny decoder with random weights, its program on a GPU, and its
 * reference.
 *
 * A reference in double precision evaluates whole sequences from the weights, without program,
 * pages or items. Steps are planned in several ways, which all must give the reference's logits.
 *
 * Thread: one at a time.
 * Memory: a world owns everything until world_close. */

#include "plain_gpu.h"

#include "base/rng.h"

#define WORLD_LAYERS 3u
#define WORLD_SEQUENCES 4u
#define WORLD_CONTEXT 96u
#define WORLD_BLOCKS (WORLD_CONTEXT / GPU_PAGE_TOKENS)
#define WORLD_ROWS 96u
#define WORLD_PARTIALS 512u
#define WORLD_ITEMS 256u
#define WORLD_SHARED 32u /* tokens that sequences 0..2 have in common, and their pages */
#define WORLD_PART 5u    /* tokens behind them that they have in common as well */
#define WORLD_VOCAB_MAX 64u
#define WORLD_EXPERTS_MAX 64u
#define WORLD_ROUTE_SCALE 1.5f /* with groups */
#define WORLD_GATE_LIMIT 0.8f  /* reached by some numbers */
#define WORLD_GATE_ALPHA 1.702f
#define WORLD_STEP_FACTOR 0.7f /* Mamba-2: factors of the steps, the gate and the result */
#define WORLD_STATE_GATE_FACTOR 1.3f
#define WORLD_STATE_FACTOR 0.8f
#define WORLD_GATE_FACTOR 1.25f /* ungated: factors of what is squared, and of the sum */
#define WORLD_ADD_FACTOR 0.6f

struct world_traits {
    const char *name;
    uint32_t width, ffn, heads, kv_heads, head_dim;
    float embed_scale;
    uint32_t window;    /* window in the layers in group 1, every second one; 0: one group */
    bool is_local_last; /* the first and the last layer are in group 1, else in group 0 */
    float softcap, logit_softcap, magnitude;
    bool has_post, has_head_norms, has_bias, has_head, is_gelu;
    bool has_sinks;  /* and a bias of the output projection */
    uint32_t rotary; /* elements of a head that turn; 0: all */
    bool is_clamped; /* experts with a clamped gate, and biases of them and of their router */
    enum gpu_form form, kv_form;
    double tolerance;
    uint32_t experts, used; /* each of width ffn, in all layers but the first; 0: none */
    unsigned recurrent;     /* bit i: layer i has a state; some layer has none */
    uint32_t k_heads, v_heads,
        state_dim; /* sizes of a state; k_heads 0: a convolution alone, whose width
                                             is that of the model */
    bool is_tiled; /* value head j uses key head j % k_heads */
    bool is_mamba; /* heads of Mamba-2 in k_heads groups, the gate before the norm; with factors */
    bool is_ungated; /* feed-forwards are squares without a second half, and added apart */
    bool has_output_gate;
    enum gpu_form state_form;
    uint32_t shared_ffn; /* width of a shared expert in each layer with experts; 0: none */
    bool shared_is_scaled;
    uint32_t groups, groups_used; /* groups of experts with sigmoids, a bias and a factor; 1: as
                                     if there were none; 0: a softmax */
    /* Layers that differ, as those of Gemma 4. */
    uint32_t wide_dim, wide_kv_heads; /* heads of layers without a window; 0: as the others' */
    bool norms_v;
    bool shares_keys;     /* the last layer reads the keys of the first one: both have no window */
    uint32_t input_width; /* a part of a token for each layer; 0: none. With has_post */
    float x_scale;        /* behind each layer; 0: none. With has_post */
    /* Latent layers, all of them: then kv_heads is 1, head_dim rank + rotary. */
    uint32_t rank, q_rank, still_dim, value_dim; /* rank 0: none; q_rank 0: one product makes q */
    bool is_unfolded;                            /* prompts have the sizes and the room for it */
    uint32_t away; /* layers whose experts lie in the host's memory; then the first layer has
                      experts, too */
    bool has_both; /* experts beside a feed-forward, their weights times factors; likewise */
};

/* A softmax over all experts: each row has all of them. */
bool world_has_all_experts(const struct world_traits *traits);

/* Sizes of a state. */
uint32_t world_channels(const struct world_traits *traits);
uint32_t world_state_width(const struct world_traits *traits);

extern const struct world_traits world_small; /* a plain decoder in float32 */

struct world_layer {
    float *attention_norm, *qkv, *qkv_bias, *q_norm, *k_norm, *output, *post_attention;
    float *ffn_norm, *gate_up, *down, *post_ffn;
    float *router; /* NULL: no experts, whose gate_up and down stand one behind another */
    float *shared_gate_up, *shared_down, *shared_scale, *choice_bias;    /* or NULL */
    float *sinks, *output_bias, *router_bias, *gate_up_bias, *down_bias; /* or NULL */
    /* With a state; its first product is `qkv`, and the vectors behind conv are NULL without a
     * matrix. */
    float *rates, *conv, *decay, *step_bias, *state_norm;
    float *conv_bias, *skip;                        /* Mamba-2 alone */
    float *input_gate, *input_out, *post_input;     /* with a part of a token */
    float *dense_gate_up, *dense_down, *post_dense; /* beside experts */
    float *router_norm, *experts_norm, *post_experts, *expert_scale;
    float *q_b, *k_b, *v_b, *latent_norm, *latent_q_norm; /* latent; the first product is `qkv` */
    uint32_t head_dim, kv_heads;
    bool is_local, is_recurrent, is_query_only;
};
/* Rows of a layer's product of q, k and v. */
uint32_t world_qkv_rows(const struct world_traits *traits, const struct world_layer *layer);
/* Width of q in a latent layer. */
uint32_t world_latent_q(const struct world_traits *traits);
/* The fewest KV heads of a layer, and the most of those rows. */
uint32_t world_kv_heads(const struct world_traits *traits);
struct world;
uint32_t world_qkv_most(const struct world *world);

struct world_sequence {
    int32_t tokens[WORLD_CONTEXT];
    uint32_t pages[2][WORLD_BLOCKS];
    uint32_t shared; /* WORLD_SHARED or 0 */
};

struct world {
    struct world_traits traits;
    struct rng rng;
    struct world_layer layers[WORLD_LAYERS];
    float *embedding, *head, *output_norm, *frequencies[2];
    float *input_table, *input_projection, *input_norm; /* or NULL */
    uint32_t vocab, vocab_rows;
    struct world_sequence sequences[WORLD_SEQUENCES];
    struct gpu_matrix matrices[4 + 9 * WORLD_LAYERS];
    const float *values[4 + 9 * WORLD_LAYERS]; /* values in the matrices */
    struct gpu_op ops[6 + 19 * WORLD_LAYERS];
    uint32_t layer;                     /* that the next operation is of */
    uint32_t state_at[WORLD_SEQUENCES]; /* position behind the state in a sequence's own place */
    struct gpu_program program;
    struct gpu_limits limits;
    const struct gpu_table *table;
    struct gpu *gpu;
    struct memory_ledger ledger;
    void *blocks[192]; /* all memory */
    uint32_t block_count;
};

/* Weights, sequences and program, without a device. */
void world_make(struct world *ret_world, const struct world_traits *traits, uint64_t seed);
/* world_make, open, prepare, fill, warm. */
void world_open(struct world *ret_world, const struct world_traits *traits, uint64_t seed);
/* The forms that a GPU keeps: an embedding in bf16, which a tied head shares, and the bytes of
 * matrices in blocks. Before prepare. */
void world_card_forms(struct world *world);
void world_fill(struct world *world, uint32_t matrix);
void world_close(struct world *world);
/* Logits of the first `count` positions of a sequence: ret_logits (count, vocab_rows). */
void world_reference(const struct world *world, const int32_t *tokens, uint32_t count,
                     double *ret_logits);

/* A row is in doubt if its second and later experts have this share of the weights together, in
 * some layer: then the weights move with the last bits of the router's logits, whose weights are
 * large here, and so does the row. Its differences count a fifth. Measured on the plain device: all
 * rows of bf16 off by more than 0.06 are in doubt, the most by 0.16 (0.29 on an H200).
 *
 * A row whose last expert has that share as well, and is ahead of the next one by less than
 * WORLD_TIE of a logit, may get either, and counts nothing: 1 in 100. (0.02 ahead with a quarter of
 * the weights: off by 1.4 on an H200.) Both are of bf16. Logits are off by 0.03 to 0.05 in bf16, by
 * 0.14 to 0.3 in INT8 and by 0.35 to 0.56 in E4M3, so ties are 5 and 12 times as wide there.
 *
 * A row that has all experts is never in doubt. In E4M3 a router's logits move ten times as far as
 * in bf16: with large weights rows without a doubt had been off by 1.23 there on an H200.
 *
 * A convolution reads rows before its own, so doubts go on to the rows behind, as far as its taps
 * reach. Attention and states spread a row over many, which hardly moves. (Rows behind a tie were
 * off by 0.2 to 0.6 over kernels in plain C, by 0.74 on an H200.) */
#define WORLD_DOUBT 0.05
#define WORLD_TIE 0.2
#define WORLD_DOUBT_SHARE 0.2

/* With sigmoids the weights move little. A row counts nothing if its last expert, or its last
 * group, is ahead of the next by less than WORLD_NEAR of what it is chosen by. */
#define WORLD_NEAR 0.02

/* The logits of all sequences, from the reference. */
struct world_references {
    double *logits[WORLD_SEQUENCES]; /* (WORLD_CONTEXT, vocab_rows) */
    double *doubts[WORLD_SEQUENCES]; /* (WORLD_CONTEXT) that share, the largest of all layers;
                                        INFINITY at a tie */
};

void world_references_open(const struct world *world, struct world_references *ret_references);
void world_references_close(struct world_references *references);

/* ---- steps ---- */

/* Rows of a sequence in a step: positions position..position+count-1. */
struct world_run {
    uint32_t sequence, position, count;
    bool is_pending; /* the token is ~sequence */
};

/* Ways to plan attention, to be combined. */
enum { PLAN_TILES = 1, PLAN_PREFIX = 2, PLAN_CUT = 4, PLAN_LIST = 8, PLAN_WAYS = 16 };

struct world_items {
    struct gpu_tile_item prefixes[WORLD_ITEMS], tiles[WORLD_ITEMS];
    struct gpu_decode_item decode[WORLD_ITEMS];
    struct gpu_merge_item merges[WORLD_ITEMS];
    uint32_t prefix_rows[WORLD_PARTIALS], tile_rows[WORLD_ROWS];
    uint32_t partials;
};

struct world_step {
    struct gpu_step step;
    struct gpu_group groups[2];
    int32_t tokens[WORLD_ROWS];
    uint32_t positions[WORLD_ROWS], wanted[WORLD_ROWS], sequences[WORLD_ROWS];
    uint32_t slots[2][WORLD_ROWS];
    uint32_t pages[2][WORLD_SEQUENCES * WORLD_BLOCKS];
    struct world_items items[2][2]; /* by group; all, kept */
    struct gpu_page_copy copies[2 * WORLD_SEQUENCES];
    struct gpu_state_item states[WORLD_SEQUENCES];
};

/* States: sequence i has place i. The state of the common prefix is saved at WORLD_SHARED in the
 * next place, by each step in which sequence 0 passes it and nobody begins there; and behind
 * WORLD_PART further tokens in another. */
#define WORLD_STATES (WORLD_SEQUENCES + 2)

/* Wants the last row of each run; with wants_all every row. */
void world_plan(struct world *world, struct world_step *ret_step, uint64_t number,
                const struct world_run *runs, uint32_t run_count, bool wants_all, unsigned how);

/* Step 0 has sequence 0 alone; step 1 has sequences 1 and 2 from position WORLD_SHARED + WORLD_PART
 * on, with copies of its page. */
#define WORLD_COPY_STEPS 2u
void world_plan_copies(struct world *world, struct world_step *ret_step, uint64_t number,
                       uint32_t index, unsigned how);

/* A prompt in pieces, sequences that join behind a common prefix, and decode. */
#define WORLD_COURSE 5u
extern const struct world_run world_course[WORLD_COURSE][WORLD_SEQUENCES];
/* The runs of a step of the course. */
uint32_t world_course_runs(uint32_t step);

/* The largest difference of a step's logits from the reference. */
struct world_difference {
    double off; /* INFINITY: a logit is NaN */
    uint32_t sequence, position, token;
};
struct world_difference world_compare(const struct world *world,
                                      const struct world_references *references,
                                      const struct world_step *step, const float *logits);
