/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/served_drafts.h"

#include "base/log.h"
#include "checkpoint/checkpoint.h"

#include <limits.h>
#include <stdio.h>

/* Tokens that only one of the two has: makers fill a vocabulary up to a round number. */
#define OTHERS_MAX 128u

static enum err check_vocabulary(const struct tokenizer *ours, const struct tokenizer *theirs,
                                 struct error *error) {
    const size_t our_count = tokenizer_count(ours), their_count = tokenizer_count(theirs);
    const size_t both = our_count < their_count ? our_count : their_count;
    if (our_count - both > OTHERS_MAX || their_count - both > OTHERS_MAX)
        return err_set(error, ERR_INVALID,
                       "it has %zu tokens, and the model that it guesses for %zu", their_count,
                       our_count);
    for (size_t id = 0; id < both; id++)
        if (!str_equals(tokenizer_bytes(ours, (int32_t)id), tokenizer_bytes(theirs, (int32_t)id)))
            return err_set(error, ERR_INVALID,
                           "its vocabulary is another one: token %zu has another text", id);
    return OK;
}

static enum err open_source(struct served_model *model, const char *path,
                            const struct wire_hello *options, struct error *error) {
    char kernels[64], packed_dir[PATH_MAX];
    struct vocabulary vocabulary = {0};
    snprintf(kernels, sizeof kernels, "%.*s", STR_ARGS(options->kernels));
    snprintf(packed_dir, sizeof packed_dir, "%.*s", STR_ARGS(options->packed_dir));
    enum err err = vocabulary_open_file(&vocabulary, path, error);
    if (err == OK) err = check_vocabulary(model->vocabulary.tokenizer, vocabulary.tokenizer, error);
    struct model_options wanted = {
        .kernels = *kernels ? kernels : NULL,
        .reference = options->reference,
        .beside = model->model,
        .sequences_max = SCHEDULER_GUESSED_MAX,
        .kv_bytes = UINT64_MAX, /* as many pages as its sequences can use */
        .packed_dir = *packed_dir ? packed_dir : NULL,
        .packed_bytes_max = options->packed_bytes_max,
    };
    if (err == OK && checkpoint_is_folder(path))
        wanted.token_count = (uint32_t)tokenizer_count(vocabulary.tokenizer);
    vocabulary_close(&vocabulary);
    return err == OK ? model_open(&model->draft_source, path, &wanted, error) : err;
}

static enum err open_drafts(struct served_model *model, const char *path,
                            const struct wire_hello *options, struct error *error) {
    struct model_description is, draft;
    model_describe(model->model, &is);
    if (*is.card) return err_set(error, ERR_INVALID, "guesses are computed on the CPU only so far");
    if (!is.generates)
        return err_set(error, ERR_INVALID,
                       "the model does not generate: there is nothing to guess");
    if (model->backend->caps.state_places > 0)
        return err_set(error, ERR_INVALID,
                       "the model has recurrent layers, which cannot take a wrong guess back");
    if (options->num_speculative_tokens == 0)
        return err_set(error, ERR_INVALID, "--num-speculative-tokens 0 allows no guess");
    enum err err = open_source(model, path, options, error);
    if (err != OK) return err;
    model_describe(model->draft_source, &draft);
    if (!draft.generates) return err_set(error, ERR_INVALID, "it does not generate");
    err = draft_model_open(&model->drafts, model_backend(model->draft_source), error);
    if (err != OK) return err;
    model->about.memory_bytes += draft.weight_bytes + draft.kv_bytes + draft.workspace_bytes;
    log_info("event=draft_model architecture=%s parameters=%.0fM weight_mib=%.0f kv_mib=%.0f",
             draft.architecture, (double)draft.parameters / 1e6,
             (double)draft.weight_bytes / (1 << 20), (double)draft.kv_bytes / (1 << 20));
    return OK;
}

enum err served_drafts_open(struct served_model *model, const struct wire_hello *options,
                            struct error *error) {
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%.*s", STR_ARGS(options->speculative_model));
    if (bytes >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "--speculative-model: a path of %d bytes", bytes);
    enum err err = open_drafts(model, path, options, error);
    return err == OK ? OK : err_prefix(error, "--speculative-model");
}
