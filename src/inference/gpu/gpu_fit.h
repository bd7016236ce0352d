/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* card_fit: how a decoder, or a model for texts, would fit into a GPU's memory, from its config and
 * its tensors' types.
 *
 * It makes the executor's program (gpu_shapes), in the forms that a GPU can keep, and asks
 * gpu_limits and memory_ledger, as the executor does; or those of text_runner_gpu. It opens no
 * GPU and reads no weight.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "gpu/gpu_ledger.h"
#include "program/executor.h"

/* For the GPU that is not there; as an H100 and an H200 have. Another number changes the buffers by
 * a few KiB for each. */
#define CARD_FIT_MULTIPROCESSORS 132u

struct card_fit_options {
    const struct model_config *config;
    bool is_tied;                        /* the embedding is the head */
    enum gpu_form weights;               /* GPU_BF16, GPU_E4M3, GPU_INT8 or GPU_BLOCKS */
    const struct checkpoint *checkpoint; /* with GPU_BLOCKS: its tensors' types count */
    enum gpu_form kv;                    /* GPU_BF16 or GPU_E4M3 */
    enum gpu_form state;                 /* GPU_F32 or GPU_BF16, of recurrent layers */
    uint64_t memory_bytes;               /* that the engine may take, of each GPU */
    uint64_t host_bytes;                 /* the host's memory that experts of all ranks may take;
                                            0: no limit */
    uint32_t ranks;                      /* GPUs that compute together; 0 or 1: one */
    uint32_t sequence_tokens;            /* at most the context; 0: GPU_CACHE_TOKENS_LEAST */
    struct executor_limits wanted;       /* zeros: the model's context, and the defaults */
    /* A model for texts: then sequence_tokens is not read, and the rest is as text_runner_gpu.h has
     * it. */
    bool is_for_texts, is_bidirectional, pools_all;
    uint32_t tokens_max;
};

#define FIT_REFUSAL 192u /* bytes of a sentence */

struct card_fit {
    struct gpu_limits limits;    /* with which an executor without options would open the GPU */
    struct memory_ledger ledger; /* the first GPU's, which has the most */
    bool is_refused;             /* the model is not split over so many GPUs; the rest is zero */
    char why_not[FIT_REFUSAL];
    bool is_fitting;     /* the executor opens, and the cache has room for one sequence */
    uint64_t away_bytes; /* experts that stay in the host's memory; 0: all is on the GPU */
    uint64_t missing_bytes;
    uint32_t sequence_tokens;
    uint64_t kv_bytes_per_token; /* mean over a sequence of that length */
    uint64_t sequences;          /* sequences of that length that run at once; texts of a step */
};

/* Whether there are kernels for keys of that form in all layers. */
bool card_fit_has_kernels(const struct model_config *config, enum gpu_form kv);
struct card_fit card_fit_of(const struct card_fit_options *options);
