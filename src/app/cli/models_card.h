/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* models_card: how a model would fit a GPU, for `quern models`.
 *
 * Thread: main, in the sandbox.
 * Memory: the caller's struct. */

#include "base/buf.h"
#include "gpu/gpu_choose.h"
#include "gpu/gpu_fit.h"

#define MODELS_CARD_FORMS 7 /* at most */

/* Names are those of --quantization and --kv-cache-dtype, or "file": as files of fewer than 8 bits
 * per weight have them. */
struct models_card_form {
    const char *weights;
    const char *kv;
    struct card_fit is;
};

struct models_card_query {
    uint64_t memory_bytes;    /* that an engine may take of each GPU */
    uint64_t host_bytes;      /* the host's memory that experts may take; 0: no limit */
    uint32_t ranks;           /* GPUs that compute together */
    uint32_t sequence_tokens; /* 0: card_fit's */
};

struct models_card {
    uint64_t memory_bytes; /* that each GPU has */
    uint32_t ranks;        /* GPUs that compute together */
    bool is_for_card;      /* otherwise the CPU computes, and the rest is zero */
    bool is_for_texts;     /* a GPU computes its texts, and it does not generate there */
    struct models_card_form forms[MODELS_CARD_FORMS];
    size_t form_count;
    /* The weights that an engine without --quantization begins with. NULL: a file of 16 bits, or
     * none fits whole; then they are tried in the order of `forms`. */
    const char *usual;
    struct gpu_choice choice;
};

/* MiB that an engine takes of this machine's largest GPU; 0 without a GPU. Not in the sandbox,
 * which opens no library. */
int64_t models_card_mib(void);
/* Reads the model's config. Errors of checkpoint_open. */
enum err models_card_read(struct models_card *ret_card, const char *path,
                          const struct models_card_query *query, struct error *error) MUST_CHECK;
/* The same of an open checkpoint. */
void models_card_of(struct models_card *ret_card, const struct checkpoint *checkpoint,
                    const struct models_card_query *query);
void models_card_show(const struct models_card *card);
/* Whether an engine without options takes a form rather than one before it, both of which fit: it
 * leaves as few experts in the host's memory as it can. */
bool models_card_is_better(const struct models_card_form *form,
                           const struct models_card_form *than);
#define MODELS_CARD_BRIEF 32
/* The form that an engine would take and its sequences: "int8/bfloat16 124"; "too large" or "CPU". */
void models_card_brief(const struct models_card *card, char ret_text[MODELS_CARD_BRIEF]);
/* Appends `, "card": {…}` to an object. */
void models_card_add_json(struct buf *line, const struct models_card *card);
