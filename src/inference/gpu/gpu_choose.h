/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_choose: in which form a GPU holds the weights of a file of 8 bits or fewer, where the
 * settings leave it open.
 *
 * bf16 is taken if it leaves room for the wanted sequences. Else the form is taken whose steps
 * answer most: sequences at a time, divided by the bytes that a step of them reads. In the order
 * bf16, INT8, as the file has it, a later form must gain a quarter. Why: docs/adr/0031.
 *
 * An engine and `quern models inspect` ask here, so that both tell the same form. It opens no GPU
 * and reads no weight.
 *
 * Thread: any.
 * Memory: the caller's structs. */

#include "gpu/gpu_fit.h"

struct gpu_choice {
    enum gpu_form form;
    uint32_t wanted;    /* sequences of `tokens` that are to run at once */
    uint32_t tokens;    /* each has so many */
    uint64_t in_bf16;   /* sequences that would run at once in bf16; 0: it does not fit */
    uint64_t sequences; /* those that run in `form`, at most `wanted`; 0: none is predicted */
};

/* Whether most of the file's numbers have 8 bits or fewer: only then there is a choice. */
bool gpu_choose_is_small(const struct checkpoint *checkpoint);
/* `options`: how much memory there is for what; their `weights` and `sequence_tokens` are not read,
 * and they name a checkpoint. `has_blocks`: its weights may stay as they are. GPU_BF16 where no form
 * fits without leaving experts to the host. */
struct gpu_choice gpu_choose(const struct card_fit_options *options, bool has_blocks);
