/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_choose.h"

#include "base/min_max.h"
#include "gpu/gpu_limits.h"
#include "gpu/gpu_shapes.h"

/* A more exact form may be so much slower. In INT8 a trained model is off by a mean KL of 0.01
 * (docs/measurements/gpu-exactness.md), which a tenth more answers is not worth. */
#define WORTH 1.25
/* Sequences that are to run at once where nobody says how many: fewer than 32 leave a GPU idle. */
#define SEQUENCES 64u
/* With more rows, blocks are unpacked before a product: written once in bf16, and read. */
#define UNPACKED_ROWS 32u

bool gpu_choose_is_small(const struct checkpoint *checkpoint) {
    const enum tensor_type type = checkpoint_main_type(checkpoint);
    return checkpoint_is_packed(checkpoint) ||
           (tensor_type_is_known(type) &&
            tensor_type_block_bytes(type) < 2 * tensor_type_block_elements(type));
}

/* What unpacking reads and writes in a step. Experts stay codes. */
static uint64_t unpacked_bytes(const struct card_fit_options *options, uint64_t bf16_bytes) {
    const struct model_config *config = options->config;
    const uint64_t each = (uint64_t)config->experts * config->expert_ffn * config->width * 3 * 2;
    uint64_t experts = 0;
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].ffn == FFN_EXPERTS) experts += each / max_u32(1, options->ranks);
    return bf16_bytes > experts ? 2 * (bf16_bytes - experts) : 0;
}

/* Answers of a step per byte that it reads. */
static double rate_of(const struct card_fit *fit, uint64_t sequences, uint64_t unpacked) {
    const uint64_t each = fit->kv_bytes_per_token * fit->sequence_tokens + fit->ledger.state_bytes;
    return (double)sequences / (double)(fit->ledger.weights + unpacked + sequences * each);
}

struct gpu_choice gpu_choose(const struct card_fit_options *options, bool has_blocks) {
    static const enum gpu_form forms[] = {GPU_BF16, GPU_INT8, GPU_BLOCKS};
    const uint32_t asked = options->wanted.sequences_max;
    const uint32_t context = options->wanted.context_max;
    struct card_fit_options each = *options;
    struct gpu_choice choice = {
        .form = GPU_BF16,
        .wanted = asked > 0 ? asked : SEQUENCES,
        .tokens = min_u32(GPU_AWAY_TOKENS, context > 0 ? context : options->config->context_max)};
    double best = 0;
    uint64_t bf16_bytes = 0;
    each.sequence_tokens = choice.tokens;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (forms[i] == GPU_BLOCKS && !has_blocks) continue;
        each.weights = forms[i];
        const struct card_fit fit = card_fit_of(&each);
        const uint64_t sequences = min_u64(fit.sequences, choice.wanted);
        if (forms[i] == GPU_BF16) bf16_bytes = fit.ledger.weights;
        if (!fit.is_fitting || fit.away_bytes > 0 || sequences == 0) continue;
        if (forms[i] == GPU_BF16) choice.in_bf16 = fit.sequences;
        const bool is_unpacked = forms[i] == GPU_BLOCKS && sequences > UNPACKED_ROWS;
        const double rate =
            rate_of(&fit, sequences, is_unpacked ? unpacked_bytes(options, bf16_bytes) : 0);
        if (rate <= best * WORTH) continue;
        best = rate;
        choice.form = forms[i];
        choice.sequences = sequences;
        if (sequences == choice.wanted) break;
    }
    return choice;
}
