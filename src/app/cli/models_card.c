/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models_card.h"

#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "cpu/embed.h"
#include "gpu/gpu_settings.h"
#include "gpu/gpu_shapes.h"
#include "node/nvml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* The first three are those that an engine without options tries, in this order. */
static const struct form {
    const char *weights_name, *kv_name;
    enum gpu_form weights, kv;
} forms[MODELS_CARD_FORMS] = {
    {"bfloat16", "bfloat16", GPU_BF16, GPU_BF16}, {"int8", "bfloat16", GPU_INT8, GPU_BF16},
    {"file", "bfloat16", GPU_BLOCKS, GPU_BF16},   {"bfloat16", "fp8", GPU_BF16, GPU_E4M3},
    {"int8", "fp8", GPU_INT8, GPU_E4M3},          {"fp8", "fp8", GPU_E4M3, GPU_E4M3},
    {"file", "fp8", GPU_BLOCKS, GPU_E4M3}};

static void predict(struct models_card *card, const struct checkpoint *checkpoint,
                    const struct models_card_query *query) {
    struct card_fit_options options = {.config = checkpoint_config(checkpoint),
                                       .memory_bytes = query->memory_bytes,
                                       .host_bytes = query->host_bytes,
                                       .ranks = query->ranks,
                                       .sequence_tokens = query->sequence_tokens};
    const struct model_config *config = options.config;
    card->is_for_texts = embed_is_for_texts(config);
    card->is_for_card =
        !(card->is_for_texts ? config_texts_cpu_only(config) : config_cpu_only(config));
    if (!card->is_for_card) return;
    if (card->is_for_texts) {
        const enum pooling pooling = embed_pooling(config, POOLING_NONE);
        options.is_for_texts = true;
        options.is_bidirectional = embed_sees_both(config, pooling);
        options.pools_all = pooling == POOLING_MEAN;
        options.tokens_max = embed_tokens_max(config, config->context_max);
    }
    struct tensor_name head = tensor_name_of(ROLE_HEAD, 0);
    options.is_tied = !checkpoint_find(checkpoint, str_from(head.text));
    options.checkpoint = checkpoint;
    const bool has_blocks = gpu_shapes_has_blocks(checkpoint);
    if (!card->is_for_texts && gpu_choose_is_small(checkpoint)) {
        options.kv = GPU_BF16;
        card->choice = gpu_choose(&options, has_blocks);
        for (size_t i = 0; i < MODELS_CARD_FORMS && !card->usual; i++)
            if (forms[i].weights == card->choice.form && card->choice.sequences > 0)
                card->usual = forms[i].weights_name;
    }
    for (size_t i = 0; i < MODELS_CARD_FORMS; i++) {
        if (forms[i].weights == GPU_BLOCKS && !has_blocks) continue;
        if (!card_fit_has_kernels(options.config, forms[i].kv)) continue;
        options.weights = forms[i].weights;
        options.kv = forms[i].kv;
        card->forms[card->form_count++] = (struct models_card_form){
            .weights = forms[i].weights_name, .kv = forms[i].kv_name, .is = card_fit_of(&options)};
    }
}

void models_card_of(struct models_card *ret_card, const struct checkpoint *checkpoint,
                    const struct models_card_query *query) {
    *ret_card = (struct models_card){.memory_bytes = query->memory_bytes, .ranks = query->ranks};
    predict(ret_card, checkpoint, query);
}

enum err models_card_read(struct models_card *ret_card, const char *path,
                          const struct models_card_query *query, struct error *error) {
    struct checkpoint *checkpoint;
    const struct checkpoint_options options = {.dummy_weights = false};
    enum err err = checkpoint_open(&checkpoint, path, &options, error);
    if (err != OK) return err;
    models_card_of(ret_card, checkpoint, query);
    checkpoint_close(checkpoint);
    return OK;
}

static uint64_t buffers_of(const struct memory_ledger *ledger) {
    return ledger->activations + ledger->logits + ledger->steps + ledger->workspace;
}

static uint64_t mib(uint64_t bytes) {
    return (bytes + MIB - 1) / MIB;
}

struct away_text {
    char text[64];
};

static struct away_text away_text(const struct card_fit *fit) {
    struct away_text away = {""};
    if (fit->away_bytes > 0)
        snprintf(away.text, sizeof away.text, "experts in the host's memory %" PRIu64 " MiB, ",
                 mib(fit->away_bytes));
    return away;
}

static void show_choice(const struct models_card *card) {
    const struct gpu_choice *choice = &card->choice;
    if (!card->usual) return;
    printf("  without --quantization: %s", card->usual);
    if (choice->form == GPU_BF16)
        putchar('\n');
    else if (choice->in_bf16 == 0)
        printf(", bfloat16 does not fit\n");
    else
        printf(", bfloat16 has room for %" PRIu64 " of %" PRIu32 " sequences of %" PRIu32
               " tokens\n",
               choice->in_bf16, choice->wanted, choice->tokens);
}

void models_card_show(const struct models_card *card) {
    if (card->ranks > 1)
        printf("%-2" PRIu32 " GPUs      %" PRIu64 " MiB each", card->ranks,
               mib(card->memory_bytes));
    else
        printf("GPU          %" PRIu64 " MiB", mib(card->memory_bytes));
    if (!card->is_for_card) {
        printf(": this model is computed on the CPU only\n");
        return;
    }
    printf(", of which the driver takes %" PRIu64 "\n", mib(GPU_CONTEXT_BYTES));
    for (size_t i = 0; i < card->form_count; i++) {
        const struct card_fit *fit = &card->forms[i].is;
        if (fit->is_refused) {
            printf("  weights %-8s KV %-8s  %s\n", card->forms[i].weights, card->forms[i].kv,
                   fit->why_not);
            continue;
        }
        printf("  weights %-8s KV %-8s  weights %" PRIu64 " MiB, buffers %" PRIu64 ", KV %" PRIu64
               " (%" PRIu64 " bytes a token): ",
               card->forms[i].weights, card->forms[i].kv, mib(fit->ledger.weights),
               mib(buffers_of(&fit->ledger)), mib(fit->ledger.kv), fit->kv_bytes_per_token);
        if (fit->ledger.states > 0)
            printf("states %" PRIu64 " MiB (%" PRIu64 " KiB a sequence), ", mib(fit->ledger.states),
                   fit->ledger.state_bytes >> 10);
        if (fit->is_fitting && card->is_for_texts)
            printf("texts of up to %" PRIu32 " tokens, %" PRIu32 " rows of a step\n",
                   fit->sequence_tokens, fit->limits.rows_max);
        else if (fit->is_fitting)
            printf("%s%" PRIu64 " %s of %" PRIu32 " tokens\n", away_text(fit).text, fit->sequences,
                   plural(fit->sequences, "sequence", "sequences"), fit->sequence_tokens);
        else
            printf("it does not fit, %" PRIu64 " MiB are missing\n", mib(fit->missing_bytes));
    }
    show_choice(card);
}

bool models_card_is_better(const struct models_card_form *form,
                           const struct models_card_form *than) {
    return form->is.away_bytes < than->is.away_bytes;
}

void models_card_brief(const struct models_card *card, char ret_text[MODELS_CARD_BRIEF]) {
    const struct models_card_form *chosen = NULL;
    for (size_t i = 0; i < card->form_count; i++) {
        const struct models_card_form *form = &card->forms[i];
        if (!form->is.is_fitting || form->is.sequences == 0) continue;
        const bool is_usual = card->usual && strcmp(form->weights, card->usual) == 0;
        if (chosen && !is_usual && !models_card_is_better(form, chosen)) continue;
        chosen = form;
        if (is_usual) break;
    }
    if (chosen)
        snprintf(ret_text, MODELS_CARD_BRIEF, "%s/%s %" PRIu64, chosen->weights, chosen->kv,
                 chosen->is.sequences);
    else
        snprintf(ret_text, MODELS_CARD_BRIEF, card->is_for_card ? "too large" : "CPU");
}

void models_card_add_json(struct buf *line, const struct models_card *card) {
    buf_printf(line,
               ", \"card\": {\"memory_bytes\": %" PRIu64 ", \"tensor_parallel_size\": %" PRIu32
               ", \"forms\": [",
               card->memory_bytes, card->ranks);
    for (size_t i = 0; i < card->form_count; i++) {
        const struct card_fit *fit = &card->forms[i].is;
        buf_printf(
            line,
            "%s{\"weights\": \"%s\", \"kv\": \"%s\", \"fits\": %s, \"driver_bytes\": %" PRIu64
            ", \"weight_bytes\": %" PRIu64 ", \"buffer_bytes\": %" PRIu64
            ", \"states_bytes\": %" PRIu64 ", \"kv_bytes\": %" PRIu64 ", \"used_bytes\": %" PRIu64
            ", \"kv_bytes_per_token\": %" PRIu64 ", \"sequence_tokens\": %" PRIu32
            ", \"sequences\": %" PRIu64 ", \"experts_in_host_bytes\": %" PRIu64 "}",
            i ? ", " : "", card->forms[i].weights, card->forms[i].kv,
            fit->is_fitting ? "true" : "false", fit->ledger.context, fit->ledger.weights,
            buffers_of(&fit->ledger), fit->ledger.states, fit->ledger.kv, fit->ledger.used,
            fit->kv_bytes_per_token, fit->sequence_tokens, fit->sequences, fit->away_bytes);
    }
    buf_add_text(line, "]");
    if (card->usual) buf_printf(line, ", \"auto\": \"%s\"", card->usual);
    buf_add_text(line, "}");
}

int64_t models_card_mib(void) {
    struct nvml *nvml;
    struct error error;
    if (nvml_open(&nvml, NULL, &error) != OK) return 0;
    const double bytes = (double)nvml_largest_bytes(nvml) * GPU_SHARE_DEFAULT;
    nvml_close(nvml);
    return (int64_t)(bytes / (1 << 20));
}
