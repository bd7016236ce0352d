/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU: an accelerator as a table of functions over plain structs, which a plugin gives.
 *
 * The table computes a whole forward pass: it takes a program (program/op.h as numbers), the rows
 * of its weight matrices, and steps whose attention work the host has laid out. It knows no
 * architecture, no file, no request and no text. src/inference/gpu/cuda is one such plugin; the
 * tests have another in plain C, so everything above the table is tested without an accelerator.
 *
 * Life of a GPU, in this order:
 *   1. list      names the GPUs without opening one.
 *   2. open      takes all memory that the GPU will ever have. It is the last call that opens
 *                a file, maps code or starts a thread: the sandbox follows it.
 *   3. prepare   lays out weights, buffers and the KV cache for one program, and tells the ledger.
 *                It refuses what does not fit before the first weight is read.
 *   4. fill      once per part of each matrix.
 *   5. warm      tunes and runs each shape once. Between two calls, `recall` and `tell`, the host
 *                brings what an earlier process found out, and takes what this one did. Behind it
 *                `trial` tells how long steps take.
 *   6. submit, sample, wait, logits, counters; then close.
 *
 * A plugin is of one build: the loader compares abi, size and version. So structs may change with
 * every release, and none has room for later fields.
 *
 * THE KV CACHE has page_count pages. A page has room for GPU_PAGE_TOKENS positions in each of
 * layer_places layers, which are those of one group (program/kv_layout.h). A slot is page ·
 * GPU_PAGE_TOKENS + offset. With latent layers a page has entries alone, which are keys and values.
 *
 * SEVERAL GPUS. `open` may take several, which compute every step together behind one struct gpu:
 * the plugin splits the program (gpu_shard.h) and refuses in `prepare` what it cannot split. GPUs
 * that do not reach each other's memory go through the host's, which is slower. The
 * ledger is that of the first GPU, which has the most; an error of any ends all.
 *
 * STATES. A recurrent layer keeps no keys but the last inputs of its convolution, and perhaps a
 * matrix per head. Those of a sequence in all layers lie in a place, 0..state_places-1.
 *
 * Thread: one at a time, the same from open to close; a GPU may have threads of its own.
 * Memory: arguments are borrowed for the call alone, unless a comment says otherwise.
 * Invariant: steps touch the KV cache in the order of their submits. An error of submit, sample,
 *     wait or logits is fatal: the GPU can only be closed after it. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/table_program.h"
#include "kernels/draw.h"
#include "program/memory_ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_ABI 29u
#define GPU_SYMBOL "quern_gpu_table" /* name of the function that gives the table */

#define GPU_PAGE_TOKENS 16u
#define GPU_GROUPS_MAX 64u
#define GPU_STEPS_MAX 2u /* steps that can be under way at once */
#define GPU_TOP_MAX 20u  /* most likely tokens per answer */
#define GPU_RANKS_MAX 8u /* GPUs that compute together */
#define GPU_NONE UINT32_MAX

struct gpu; /* private to the plugin */

/* ---- GPUs ---- */

struct gpu_info {
    uint32_t index; /* as the driver counts */
    char name[64];
    char uuid[48];    /* "GPU-…"; empty when the driver has none */
    uint32_t compute; /* capability · 10: 89 for 8.9; 0 without such a number */
    uint32_t multiprocessors;
    uint64_t memory_bytes;
    uint64_t free_bytes;
    char refusal[192]; /* the reason why it cannot be opened, a sentence; empty: it can be */
};

struct gpu_options {
    uint32_t index;
    uint32_t more_count; /* further GPUs, which compute every step together with this one */
    uint32_t more[GPU_RANKS_MAX - 1]; /* (more_count) their indices; a GPU may come twice */
    uint64_t memory_bytes;   /* most memory to take of each GPU, context and libraries included */
    const char *library;     /* path of the library for products; NULL: wherever it is found */
    bool measures_ops;       /* gpu_counters.op_ns, at the cost of pauses between operations */
    bool has_no_graphs;      /* each kernel is launched by itself in all steps: to compare */
    uint32_t graph_rows_max; /* steps of more rows are no graph; 0: the GPU decides */
    bool adds_in_host; /* several GPUs add up in memory of the host, though they reach each other */
    bool clears_memory; /* cache and sums begin as zeros: for compute-sanitizer's initcheck */
    /* In so many first steps, those of warm included, submit and sample wait for each operation, so
     * that the sentence of an error names the operation that caused it. 0: an error that is found
     * later names the step alone. Results are the same. */
    uint32_t careful_steps;
};

/* ---- limits ---- */

struct gpu_limits {
    uint32_t rows_max;       /* rows of a step */
    uint32_t logit_rows_max; /* rows of a step that have logits */
    uint32_t sequences_max;  /* slots of last tokens: 0..sequences_max-1 */
    uint32_t context_max;    /* positions of a sequence */
    uint32_t layer_places;   /* layers of a page */
    uint32_t group_count;
    uint32_t page_count_max; /* pages that can be of use; the cache has no more */
    uint32_t page_count_min; /* with fewer, prepare refuses */
    uint32_t steps_max;      /* 1..GPU_STEPS_MAX */
    /* Sizes of a step's arrays, which a GPU has no memory to enlarge later. */
    uint32_t pages_max;    /* sum of gpu_group.page_count over the groups of a step */
    uint32_t items_max;    /* items of each kind in a gpu_attention */
    uint32_t partials_max; /* partials of a gpu_attention: 0..partials_max-1 */
    uint32_t edits_max;    /* edits of a call that draws */
    uint32_t named_max;    /* named tokens of a step, over all calls */
    enum gpu_form kv_form;
    uint32_t state_places;    /* 0 without recurrent layers */
    enum gpu_form state_form; /* form of their matrices: GPU_F32 or GPU_BF16 */
    uint32_t experts_away;    /* layers whose experts lie in the host's memory (gpu/away.h) */
};

/* A part of a matrix: rows as a file has them (kernels/quant.h), one after another without gaps. */
struct gpu_rows {
    uint32_t matrix;
    uint32_t row_first; /* first row in the matrix */
    uint32_t rows;
    enum tensor_type type;
    const void *blocks;        /* (rows in the file's order) */
    const uint32_t *row_order; /* (rows) or NULL: row i is file row row_order[i], of more rows */
};

/* ---- a step ---- */

/* Keys begin..end-1 of the sequence whose page table begins at pages[pages]. A row at position p
 * sees of them the positions up to p, and of these the window. Table entries that the item's rows
 * do not see are not read. Together the items of a row have each key that it sees exactly once.
 *
 * A partial is the result of attention over a part of a row's keys, which the item that continues
 * from it adds to its own. It belongs to one row, is left once and read once. Partials last for one
 * gpu_attention of one layer. */

/* One row. */
struct gpu_decode_item {
    uint32_t row;
    uint32_t position;
    uint32_t begin;
    uint32_t end;
    uint32_t pages;         /* index into gpu_group.pages */
    uint32_t partial_in;    /* the first of partial_count partials to continue from */
    uint32_t partial_count; /* 0: begins anew */
    uint32_t partial_out;   /* partial that the item leaves, and no result; or GPU_NONE */
};

/* Several rows that have the same pages: a piece of a prompt, or rows of several sequences with a
 * common prefix. */
struct gpu_tile_item {
    uint32_t row;       /* the first row, or index of the first one in gpu_tiles.rows */
    uint32_t row_count; /* at most gpu_table.tile_rows_heads / (heads / kv_heads) */
    uint32_t begin;
    uint32_t end;
    uint32_t pages;        /* index into gpu_group.pages */
    uint32_t partial_in;   /* partial for the first row, or GPU_NONE; in prefixes GPU_NONE */
    uint32_t partial_out;  /* partial for the first row, or GPU_NONE: the item leaves the result */
    uint32_t partial_step; /* from a row's partial to the next row's */
};

/* Adds partials first..first+count-1 up to the result of a row. */
struct gpu_merge_item {
    uint32_t row;
    uint32_t first;
    uint32_t count;
    uint32_t reserved; /* 0; makes the size a multiple of 16 bytes */
};

struct gpu_tiles {
    const struct gpu_tile_item *items; /* (count), the costly ones first */
    uint32_t count;
    const uint32_t
        *rows; /* (row_count): row i of an item is rows[item.row + i]; NULL: item.row + i */
    uint32_t row_count; /* at most partials_max in prefixes, rows_max in tiles */
};

/* The attention of a group's layers in a step. Prefixes run first, then tiles and decode, then
 * merges; no item reads a partial of its own launch (tiles and decode are one). Each row has one
 * item or merge that leaves its result. */
struct gpu_attention {
    struct gpu_tiles prefixes;            /* leave partials */
    struct gpu_tiles tiles;               /* leave results */
    const struct gpu_decode_item *decode; /* (decode_count), the costly ones first */
    uint32_t decode_count;
    const struct gpu_merge_item *merges; /* (merge_count) */
    uint32_t merge_count;
};

struct gpu_group {
    const uint32_t *slots; /* (row_count) the place of each row's key and value; all different */
    /* (row_count) in steps of texts whose rows see later ones: the position up to which a row sees
     * keys, as far as its items have them, and from which its window counts back. NULL: its own. */
    const uint32_t *seen;
    const uint32_t *pages; /* (page_count) page tables, one after another */
    uint32_t page_count;
    struct gpu_attention all;  /* before OP_KEEP; rows are the step's */
    struct gpu_attention kept; /* behind OP_KEEP; row i is the step's wanted[i]. Only the group
                                     of the last layer has one */
};

/* The rows of one sequence, for recurrent layers. Items of a step touch disjoint places, but for
 * several that read one stored state. */
struct gpu_state_item {
    uint32_t row, rows; /* the first one, and how many: at least 1 */
    uint32_t from;      /* place of the state before them; GPU_NONE: a state of zeros */
    uint32_t to;        /* place for the state after them; may be `from` */
    uint32_t save;      /* place for the state after the first save_rows of them; GPU_NONE: none */
    uint32_t save_rows; /* 1..rows, with `save` */
};

/* The rows of a text that its vector is the sum of, as OP_KEEP leaves them. */
struct gpu_pool {
    uint32_t row, rows; /* the first one, and how many: at least 1 */
};

/* A page that is copied whole before the rows of a step store anything. */
struct gpu_page_copy {
    uint32_t from;
    uint32_t to; /* another page */
};

struct gpu_step {
    uint64_t number; /* ascending; for messages and wait */
    uint32_t row_count;
    uint32_t wanted_count; /* at most logit_rows_max */
    uint32_t copy_count;
    uint32_t state_count;      /* sequences, with state_places; else 0 */
    const int32_t *tokens;     /* (row_count) id, or ~slot: the token sampled last for that slot */
    const uint32_t *positions; /* (row_count) */
    const uint32_t *places;    /* (row_count) rows of EMBED's positions; NULL without these */
    const uint32_t *wanted;    /* (wanted_count) ascending rows that have logits */
    const struct gpu_group *groups;      /* (group_count) */
    const struct gpu_page_copy *copies;  /* (copy_count) in the order in which they are made */
    const struct gpu_state_item *states; /* (state_count) ascending; each row is in one of them */
    const struct gpu_pool *pools;        /* (pool_count), if the program pools */
    uint32_t pool_count;                 /* at most sequences_max */
};

/* ---- sampling ---- */

/* How a wanted row's token is drawn (kernels/draw.h). */
struct gpu_draw {
    uint64_t seed;
    uint32_t counter;
    float factor;   /* draw_factor(temperature); 0: greedy */
    float offset;   /* draw_offset(temperature, min_p) */
    float top_p;    /* 0 and 1 are off */
    uint32_t top_k; /* 0 is off */
    int32_t mask;   /* row of `masks`, or -1; each mask allows at least one token */
    uint32_t edit_begin, edit_count; /* in `edits`: those of the row, by token, in their order */
    int32_t fallback; /* the token of a row in which nothing can be taken: the lowest allowed id */
    int32_t slot;     /* last token to be set; -1: none */
};

/* What is wanted of one row, from the logits as the model gave them. */
struct gpu_ask {
    uint32_t row;         /* index into the step's wanted rows */
    int32_t token;        /* -1: the sampled one */
    uint32_t top_count;   /* 0..GPU_TOP_MAX */
    uint32_t named_begin; /* in `named`: tokens whose logits are wanted */
    uint32_t named_count;
};

struct gpu_answer {
    int32_t token;
    float logit;   /* cleaned (draw_clean); its log-probability is logit - lse */
    uint32_t rank; /* 1 for the most likely, the lower id first among equals */
    uint32_t top_count;
    double lse;
    int32_t top[GPU_TOP_MAX]; /* most likely first */
    float top_logits[GPU_TOP_MAX];
};

/* The draws of some wanted rows of a step. A step's rows may come in several calls: the rows whose
 * edits do not depend on a token that is still on the GPU, then the others; and either of them
 * in parts whose edits are at most edits_max. */
struct gpu_samples {
    uint64_t number; /* number of the step */
    uint32_t count;
    const uint32_t *rows;          /* (count) ascending indices into the step's wanted rows */
    const struct gpu_draw *draws;  /* (count) */
    const uint32_t *masks;         /* (mask_count, mask_words): bit t % 32 of word t / 32 */
    uint32_t mask_count;           /* at most count */
    uint32_t mask_words;           /* (vocab + 31) / 32 */
    const struct draw_edit *edits; /* (edit_count); draw_edit.row is an index into `rows` */
    uint32_t edit_count;
    const struct gpu_ask *asks; /* (ask_count) at most one a row, for these or scored ones */
    uint32_t ask_count;
    const int32_t *named; /* (named_count) */
    uint32_t named_count;
};

/* Filled by wait, in memory of the caller with room for all that the calls of sample asked for. */
struct gpu_result {
    int32_t *tokens;            /* (wanted_count) by the wanted row; without a draw: not set */
    struct gpu_answer *answers; /* in the order of the asks, over all calls */
    float *named_logits;        /* in the order of the named tokens, over all calls */
    float *vectors;             /* (pool_count, width), if the program pools */
    uint32_t nonfinite_rows;    /* wanted rows with a logit that is NaN or +inf */
};

/* One operation of the program over buffers of the host, for tests. The operation reads and changes
 * them as program/op.h tells; the KV cache is the GPU's. Buffers that the operation does not use
 * may be NULL. A prepared result stands as numbers in the buffer of its maker: NORM's in h,
 * ATTENTION's in attended, GATE's in the first half of each row of wide, which keep their distance.
 * A GPU that computes CONV, DELTA and GATED_NORM at once leaves the numbers of all three behind
 * DELTA, or MAMBA, and the other two change nothing.
 * MATMUL and LOGITS read it there; the maker is the nearest operation before whose `next` is their
 * matrix. KEEP moves the wanted rows of x and wide to the front.
 * POOL reads h and leaves vectors in logits. ROUTE reads h, too, for the form
 * of the experts; its choice stays with the GPU for EXPERTS behind it, which reads h again. What
 * INPUTS and ASIDE leave stays there, too, and so do the queries of LATENT_Q for LATENT behind it.
 * LATENT_ENTRY leaves in attended what q's second product reads, LATENT its result, which
 * LATENT_OUT reads; LATENT_OUT leaves in wide what the product behind it reads. */
struct gpu_op_call {
    uint32_t op;                 /* index into gpu_program.ops */
    const struct gpu_step *step; /* rows, slots, attention; not counted as a step */
    bool is_behind_keep;         /* rows are the wanted ones */
    float *x;                    /* (rows, width) */
    float *h;                    /* (rows, width) */
    float *wide;                 /* (rows, as the product before), without gaps */
    float *narrow;               /* (rows, as the product before: rates of heads, or 1) */
    float *shared;               /* (rows, width) */
    float *attended;             /* (rows, heads · head_dim), or what a state leaves */
    float *logits;               /* (rows, vocab_rows) */
};

struct gpu_counters {
    uint64_t steps;
    uint64_t rows;
    uint64_t unfolded_rows;   /* rows of latent layers that attended by keys and values of heads */
    uint64_t busy_ns;         /* time in which a step was being computed */
    uint64_t op_ns[OP_KINDS]; /* per kind of operation; zero unless it is measured */
    /* Graphs: what a GPU prepares so that most of a step starts with one call. */
    uint64_t graph_steps; /* steps that were started so */
    uint32_t graphs;
    uint64_t graph_bytes;      /* bytes of the GPU's memory, which are in the ledger's context */
    const char *graph_refusal; /* the reason why warm made fewer, a sentence; NULL: it made all */
    bool is_apart; /* GPUs that do not reach each other's memory add up their parts in the host's */
    uint64_t compile_ns; /* in open, for the driver's compiler, if the plugin lacks code; else 0 */
};

/* ---- the table ---- */

struct gpu_table {
    uint32_t abi;              /* GPU_ABI */
    uint32_t bytes;            /* sizeof(struct gpu_table) */
    const char *version;       /* QUERN_VERSION of the build */
    const char *kind;          /* "cuda" */
    uint32_t tile_rows_heads;  /* query heads of a tile: it has tile_rows_heads / (heads / kv_heads)
                                 rows */
    uint32_t split_tokens;     /* decode items are cut at multiples of it */
    uint64_t prefix_reads_min; /* keys times rows that the prefixes of a step must save together:
                                  fewer are read in less time than a launch takes */

    /* Fills up to `room` entries and tells how many GPUs there are. Opens no GPU. ERR_UNAVAILABLE
     * with a sentence and the remedy: no driver, or one too old. */
    enum err (*list)(struct gpu_info *ret_infos, uint32_t room, uint32_t *ret_count,
                     struct error *error);
    /* ERR_UNAVAILABLE: GPU or library cannot be used. ERR_LIMIT: the memory is not free. */
    enum err (*open)(struct gpu **ret_gpu, const struct gpu_options *options, struct error *error);
    void (*close)(struct gpu *gpu); /* NULL is allowed */

    /* ERR_LIMIT when page_count_min pages do not fit; the ledger then tells all parts, with
     * page_count and kv of the least cache and `used` above `limit`. ERR_INVALID for a shape
     * without kernels. Once per GPU; after ERR_LIMIT again, with a smaller program. */
    enum err (*prepare)(struct gpu *gpu, const struct gpu_program *program,
                        const struct gpu_limits *limits, struct memory_ledger *ret_ledger,
                        struct error *error);
    enum err (*fill)(struct gpu *gpu, const struct gpu_rows *rows, struct error *error);
    /* Before warm: the notes that `tell` gave after an earlier warm, which spare it trials. Notes
     * of another GPU, library or build, and damaged ones, change nothing. NULL: never any notes. */
    void (*recall)(struct gpu *gpu, const char *notes, size_t bytes);
    enum err (*warm)(struct gpu *gpu, struct error *error);
    /* After warm: what it found out by trials, for `recall` of a later process; *ret_notes lives
     * until close. False: nothing that recalled notes did not have. NULL: never any notes. */
    bool (*tell)(struct gpu *gpu, const char **ret_notes, size_t *ret_bytes);
    /* After warm and before the first step: computes a made-up step of `rows` rows, of which two in
     * five have logits, and tells its time in nanoseconds. 0: there is no room for these rows, or
     * the GPU has no clock. The counters do not count it. */
    enum err (*trial)(struct gpu *gpu, uint32_t rows, uint64_t *ret_ns, struct error *error);

    /* Starts the step, and the draws that `samples` has (NULL: none yet). Copies its arguments and
     * returns at once, but for a careful step. At most steps_max are under way. */
    enum err (*submit)(struct gpu *gpu, const struct gpu_step *step,
                       const struct gpu_samples *samples, struct error *error);
    /* Starts further draws of the step submitted last, before the next submit: so ~slot in a step
     * stands for the last token that was drawn for the slot by calls before its submit. As often as
     * needed: the first one of a step returns at once while its edits and those of submit are at
     * most edits_max together; any other may block until the draws before it are done. */
    enum err (*sample)(struct gpu *gpu, const struct gpu_samples *samples, struct error *error);
    /* Blocks until the oldest step under way is done, whose number this is. */
    enum err (*wait)(struct gpu *gpu, uint64_t number, struct gpu_result *result,
                     struct error *error);
    /* Logits of wanted rows first..first+count-1 of the step waited for last, as the model gave
     * them: ret_logits (count, vocab_rows). No step has been submitted behind it. */
    enum err (*logits)(struct gpu *gpu, uint32_t first, uint32_t count, float *ret_logits,
                       struct error *error);
    /* Runs one operation between steps: none is under way. */
    enum err (*run_op)(struct gpu *gpu, const struct gpu_op_call *call, struct error *error);
    enum err (*counters)(struct gpu *gpu, struct gpu_counters *ret_counters, struct error *error);
};

/* The type of the plugin's function. */
typedef const struct gpu_table *gpu_table_fn(void);

#ifdef __cplusplus
}
#endif
