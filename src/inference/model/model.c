/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/min_max.h"
#include "base/os.h"
#include "cpu/executor_cpu.h"
#include "gpu/executor_gpu.h"
#include "gpu/text_runner_gpu.h"
#include "model/model_internal.h"

#include <stdlib.h>

#define ROWS_MAX 65536u

/* ---- opening ---- */

static enum err choose_kernels(struct model *model, const struct model_options *options,
                               struct error *error) {
    const char *name = options->reference ? "ref" : options->kernels;
    model->kernels = kernels_choose(name);
    if (model->kernels) return OK;
    return err_set(error, ERR_INVALID, "this build or CPU has no kernels '%.32s'", name);
}

static enum err check_options(const struct model_options *options,
                              const struct model_config *config, struct error *error) {
    if (options->rows_max > ROWS_MAX)
        return err_set(error, ERR_INVALID, "rows_max is %u, more than %u", options->rows_max,
                       ROWS_MAX);
    if (options->sequences_max > MODEL_SEQUENCES_MAX)
        return err_set(error, ERR_INVALID, "sequences_max is %u, more than %u",
                       options->sequences_max, MODEL_SEQUENCES_MAX);
    if (options->block_count > EXECUTOR_PAGES_MAX)
        return err_set(error, ERR_INVALID, "block_count is %u, more than %u", options->block_count,
                       EXECUTOR_PAGES_MAX);
    if (options->context_max > config->context_max)
        return err_set(error, ERR_INVALID, "context_max is %u, but the model was made for %u",
                       options->context_max, config->context_max);
    if (options->context_max == 1 || config->context_max == 1)
        return err_set(error, ERR_INVALID, "a context of one token cannot be used");
    if (options->kv_is_int8 && config_is_latent(config))
        return err_set(error, ERR_INVALID,
                       "--kv-cache-dtype int8_per_token_head: latent attention keeps one entry for "
                       "all heads, and no keys and values, so the CPU has no 8 bits for it");
    return OK;
}

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value > 0 ? value : fallback;
}

static enum err open_runner(struct model *model, const struct model_options *options,
                            const struct embedder_options *embed, struct error *error) {
    const struct loaded_gpu *device = options->device;
    const struct weights *weights = model->weights;
    const struct model_config *config = &model->config;
    const struct text_runner_gpu_options runner = {
        .table = device->table,
        .gpu = device->gpu,
        .card = &device->card,
        .store = model->gpu_store,
        .config = config,
        .weights = {.layers = weights->layers,
                    .embedding = weights->embedding,
                    .embedding_norm = weights->embedding_norm,
                    .embedding_norm_bias = weights->embedding_norm_bias,
                    .positions = weights->positions,
                    .position_rows = config->architecture->is_rotary_encoder ? 1
                                     : weights->positions                    ? config->context_max
                                                                             : 0,
                    .output_norm = weights->output_norm,
                    .output_norm_bias = weights->output_norm_bias},
        .second_type = weights->second_type,
        .is_bidirectional = embed_sees_both(config, embed->pooling),
        .pools_all = embed->pooling == POOLING_MEAN,
        .kv_form = gpu_load_kv_form(device),
        .rows_max = options->rows_max,
        .tokens_max = embed->tokens_max};
    enum err err = text_runner_gpu_open(&model->runner, &runner, error);
    return err == ERR_INVALID ? (error->code = ERR_UNAVAILABLE) : err;
}

static enum err open_embedder(struct model *model, const struct model_options *options,
                              uint32_t context_max, struct error *error) {
    struct embedder_options embed = {.config = &model->config,
                                     .weights = model->weights,
                                     .kernels = model->kernels,
                                     .pool = model->pool,
                                     .pooling = embed_pooling(&model->config, options->pooling),
                                     .rows_max = or_default(options->rows_max, EXECUTOR_CPU_ROWS),
                                     .tokens_max = embed_tokens_max(&model->config, context_max)};
    if (embed.pooling == POOLING_NONE) return OK;
    if (options->device) {
        enum err err = open_runner(model, options, &embed, error);
        if (err != OK) return err;
        embed.runner = &model->runner;
        embed.rows_max = model->runner.rows_max;
    }
    return embedder_open(&model->embedder, &embed, error);
}

static struct executor_limits limits_of(const struct model_options *options, uint32_t context_max) {
    return (struct executor_limits){.rows_max = options->rows_max,
                                    .sequences_max = options->sequences_max,
                                    .context_max = context_max,
                                    .block_count = options->block_count,
                                    .kv_bytes = options->kv_bytes,
                                    .state_bytes = options->state_bytes};
}

static enum err open_on_cpu(struct model *model, const struct model_options *options,
                            uint32_t context_max, struct error *error) {
    const struct executor_cpu_options executor = {.config = &model->config,
                                                  .layout = &model->layout,
                                                  .weights = model->weights,
                                                  .kernels = model->kernels,
                                                  .pool = model->pool,
                                                  .kv_is_int8 = options->kv_is_int8,
                                                  .limits = limits_of(options, context_max)};
    return executor_cpu_open(&model->executor, &executor, error);
}

static enum err open_on_device(struct model *model, const struct model_options *options,
                               uint32_t context_max, struct error *error) {
    const struct loaded_gpu *device = options->device;
    const struct weights *weights = model->weights;
    const struct executor_gpu_options executor = {
        .table = device->table,
        .gpu = device->gpu,
        .card = &device->card,
        .ranks = device->settings.ranks,
        .memory_bytes = device->memory_bytes,
        .store = model->gpu_store,
        .config = &model->config,
        .layout = &model->layout,
        .weights = {.layers = weights->layers,
                    .embedding = weights->embedding,
                    .input_table = weights->input_table,
                    .input_projection = weights->input_projection,
                    .input_norm = weights->input_norm,
                    .head = weights->head,
                    .output_norm = weights->output_norm,
                    .output_norm_bias = weights->output_norm_bias},
        .kv_form = gpu_load_kv_form(device),
        .state_form = gpu_load_state_form(device),
        .leaves_experts = model->leaves_experts,
        .host_bytes = options->weight_bytes_max,
        .urgent_sequences = options->urgent_sequences,
        .limits = limits_of(options, context_max)};
    enum err err = executor_gpu_open(&model->executor, &executor, error);
    return err == ERR_INVALID ? (error->code = ERR_UNAVAILABLE) : err;
}

static enum err open_executor(struct model *model, const struct model_options *options,
                              uint32_t context_max, struct error *error) {
    enum err err = options->device ? open_on_device(model, options, context_max, error)
                                   : open_on_cpu(model, options, context_max, error);
    if (err != OK) return err;
    model->backend = (struct backend){.ops = model->executor.ops->backend,
                                      .self = model->executor.self,
                                      .caps = model->executor.caps};
    return OK;
}

/* Opens the parts that compute: vectors, tokens, or both. */
static enum err open_computers(struct model *model, const struct model_options *options,
                               struct error *error) {
    const uint32_t context_max = or_default(options->context_max, model->config.context_max);
    enum err err = open_embedder(model, options, context_max, error);
    if (err == OK && model_generates(model))
        return open_executor(model, options, context_max, error);
    model->backend.caps = (struct backend_caps){.context_tokens_max = context_max,
                                                .vocab = model->config.token_count};
    if (err == OK && !model->embedder)
        err = err_set(error, ERR_INVALID,
                      "the model is not causal, so it cannot generate, and says no pooling_type");
    return err;
}

/* Before the model's files are opened: they may change meanwhile. */
static struct tiled_cache_options cache_options(const char *path,
                                                const struct model_options *options) {
    struct tiled_cache_options cache = {.dir = options->dummy_weights ? NULL : options->packed_dir,
                                        .bytes_max = options->packed_bytes_max,
                                        .model_path = path};
    struct error ignored;
    if (cache.dir && tiled_cache_stamp(path, &cache.stamp, &ignored) != OK) cache.dir = NULL;
    return cache;
}

/* The matrices go to the device, or into tiles. */
static struct weight_store open_store(struct model *model, const struct model_options *options,
                                      const struct tiled_cache_options *cache) {
    if (options->device) {
        const struct gpu_store_options store = {.table = options->device->table,
                                                .gpu = options->device->gpu,
                                                .form = model->weight_form,
                                                .notes_dir = options->packed_dir,
                                                .card_uuid = options->device->card.uuid};
        model->gpu_store = gpu_store_open(&store);
        return gpu_store_interface(model->gpu_store);
    }
    const struct tile_store_options store = {.checkpoint = model->checkpoint,
                                             .config = &model->config,
                                             .kernels = model->kernels,
                                             .pool = model->pool,
                                             .cache = cache,
                                             .bytes_max = options->weight_bytes_max};
    model->store = tile_store_open(&store);
    return tile_store_interface(model->store);
}

static enum err open_weights(struct model *model, const struct model_options *options,
                             const struct tiled_cache_options *cache, struct error *error) {
    struct weights_options weights = {.checkpoint = model->checkpoint,
                                      .config = &model->config,
                                      .store = open_store(model, options, cache),
                                      .pool = model->pool};
    return weights_open(&model->weights, &weights, error);
}

/* A device computes texts, or generates: a model that could do both embeds there if its file says
 * how it pools, or if it judges. */
static enum err check_device(struct model *model, const struct model_options *options,
                             struct error *error) {
    const bool embeds = embed_pooling(&model->config, options->pooling) != POOLING_NONE;
    model->is_for_texts = options->device && embeds && embed_is_for_texts(&model->config);
    const char *cpu_only = model->is_for_texts ? config_texts_cpu_only(&model->config)
                                               : config_cpu_only(&model->config);
    if (options->device && cpu_only)
        return err_set(error, ERR_UNAVAILABLE,
                       "%s is computed on the CPU only so far: run with --device cpu", cpu_only);
    if (config_is_recurrent(&model->config) && embeds)
        return err_set(error, ERR_INVALID,
                       "embeddings of a model with recurrent layers are not supported");
    if (!options->device || model->is_for_texts || !embeds) return OK;
    return err_set(error, ERR_UNAVAILABLE,
                   "embeddings of a model that generates, and whose files name no pooling, are "
                   "computed on the CPU only: run with --device cpu");
}

static enum err open_parts(struct model *model, const struct model_options *options,
                           const struct tiled_cache_options *cache, struct error *error) {
    enum err err = open_weights(model, options, cache, error);
    return err == OK ? open_computers(model, options, error) : err;
}

static enum err open_on_processor(struct model *model, const struct model_options *options,
                                  const struct tiled_cache_options *cache, struct error *error) {
    const uint32_t context_max = or_default(options->context_max, model->config.context_max);
    const struct executor_limits limits = limits_of(options, context_max);
    if (options->device) model->weight_form = model_choose_form(model, options, &limits);
    enum err err = open_parts(model, options, cache, error);
    while (err == ERR_LIMIT && model_take_less(model, options)) {
        const char *form = checkpoint_form(model->checkpoint);
        log_info("event=small_weights form=%s file_has=%s experts=%s reason=\"%s\"",
                 model_form_name(model->weight_form),
                 form ? form : tensor_type_name(model->weights->type),
                 model->leaves_experts ? "host" : "gpu", error->text);
        gpu_store_close(model->gpu_store);
        weights_close(model->weights);
        model->gpu_store = NULL;
        model->weights = NULL;
        err = open_parts(model, options, cache, error);
    }
    return err;
}

/* The rows of a step that the CPU computes fastest. */
static void limit_rows(struct model *model, const struct tiled_cache_options *cache) {
    struct backend_caps *caps = &model->backend.caps;
    const struct executor_cpu_notes notes = {.dir = cache->dir,
                                             .may_write = cache->bytes_max > 0,
                                             .model = cache->stamp.bytes,
                                             .model_bytes = sizeof cache->stamp.bytes};
    caps->rows_max = executor_cpu_rows(&model->executor, &notes);
    caps->urgent_rows_max = min_u32(caps->urgent_rows_max, caps->rows_max);
}

/* Fills the weights. Then, unless the caller wants a number of rows, the executor tells how many
 * rows of a step are enough. */
static enum err fill_weights(struct model *model, const struct model_options *options,
                             const struct tiled_cache_options *cache, struct error *error) {
    struct backend_caps *caps = &model->backend.caps;
    enum err err = weights_fill(model->weights, error);
    if (err != OK || options->rows_max > 0 || !model_generates(model)) return err;
    if (options->device) return executor_gpu_rows(&model->executor, &caps->rows_max, error);
    if (!options->reference) limit_rows(model, cache);
    return OK;
}

static enum err open_all(struct model *model, const char *path, const struct model_options *options,
                         struct error *error) {
    struct tiled_cache_options cache = cache_options(path, options);
    enum err err = choose_kernels(model, options, error);
    const struct checkpoint_options from = {.token_count = options->token_count,
                                            .dummy_weights = options->dummy_weights};
    if (err == OK) err = checkpoint_open(&model->checkpoint, path, &from, error);
    if (err != OK) return err;
    model->config = *checkpoint_config(model->checkpoint);
    err = check_options(options, &model->config, error);
    if (err == OK) err = check_device(model, options, error);
    model->layout =
        kv_layout_of(&model->config, or_default(options->context_max, model->config.context_max));
    model->borrows_pool = options->beside != NULL;
    if (options->beside) model->pool = options->beside->pool;
    if (err == OK && !options->beside) err = pool_open(&model->pool, options->threads, error);
    if (err == OK) err = open_on_processor(model, options, &cache, error);
    return err == OK ? fill_weights(model, options, &cache, error) : err;
}

enum err model_open(struct model **ret_model, const char *path, const struct model_options *options,
                    struct error *error) {
    struct model *model = mem_new(1, sizeof *model);
    enum err err = open_all(model, path, options, error);
    if (err != OK) {
        model_close(model);
        return err;
    }
    model->peak_rss_bytes = os_peak_rss_bytes();
    *ret_model = model;
    return OK;
}

void model_close(struct model *model) {
    if (!model) return;
    if (model->executor.ops) model->executor.ops->close(model->executor.self);
    embedder_close(model->embedder);
    if (model->runner.ops) model->runner.ops->close(model->runner.self);
    tile_store_close(model->store);
    gpu_store_close(model->gpu_store);
    weights_close(model->weights);
    if (!model->borrows_pool) pool_close(model->pool);
    checkpoint_close(model->checkpoint);
    free(model);
}

/* ---- looking at it ---- */

const struct backend *model_backend(const struct model *model) {
    return &model->backend;
}

const struct checkpoint_vocab *model_vocab(const struct model *model) {
    return checkpoint_vocab(model->checkpoint);
}

static void copy_printable(char *ret_text, size_t text_bytes, struct str text) {
    size_t count = text.bytes < text_bytes - 1 ? text.bytes : text_bytes - 1;
    for (size_t i = 0; i < count; i++)
        ret_text[i] = text.at[i] >= 0x20 && text.at[i] < 0x7F ? text.at[i] : '?';
    ret_text[count] = '\0';
}

void model_describe(const struct model *model, struct model_description *ret_description) {
    const struct tile_store_left left =
        model->store ? tile_store_left(model->store) : (struct tile_store_left){0, 0};
    const struct model_config *config = &model->config;
    const struct backend_caps *caps = &model->backend.caps;
    struct executor_description executor = {.kv_type = NULL};
    struct text_runner_description runner = {.ledger = {0}};
    if (model->executor.ops) model->executor.ops->describe(model->executor.self, &executor);
    if (model->runner.ops) model->runner.ops->describe(model->runner.self, &runner);
    const char *form = checkpoint_form(model->checkpoint);
    const char *type = form ? form : tensor_type_name(model->weights->type);
    const char *mixture = checkpoint_file_type(model->checkpoint);
    *ret_description = (struct model_description){
        .architecture = config->architecture->name,
        .type = type,
        .mixture = mixture ? mixture : type,
        .is_gguf = checkpoint_is_gguf(model->checkpoint),
        .kernels = model->kernels->name,
        .kv_type = executor.kv_type,
        .parameters = model->weights->parameters,
        .layers = config->layers,
        .width = config->width,
        .vocab = config->token_count,
        .context_model = config->context_max,
        .context_max = caps->context_tokens_max,
        .threads = pool_threads(model->pool),
        .kv_blocks = caps->page_count / kv_layout_groups(&model->layout),
        .embeds = model->embedder != NULL,
        .generates = model_generates(model),
        .file_bytes = checkpoint_file_bytes(model->checkpoint),
        .weight_bytes = model->weights->bytes - left.tiled_bytes,
        .left_file_bytes = left.file_bytes,
        .is_from_packed = model->store && tile_store_is_from_cache(model->store),
        .kv_bytes_per_token = executor.kv_bytes_per_token,
        .kv_bytes = executor.kv_bytes,
        .state_bytes = executor.state_bytes,
        .states_bytes = executor.states_bytes,
        .workspace_bytes = executor.workspace_bytes + embedder_bytes(model->embedder),
        .ledger = model->runner.ops ? runner.ledger : executor.ledger,
        .peak_rss_bytes = model->peak_rss_bytes};
    if (model->gpu_store)
        copy_printable(ret_description->card, sizeof ret_description->card,
                       str_from(model->runner.ops ? runner.name : executor.name));
    if (model->runner.ops) ret_description->text_rows = model->runner.rows_max;
    if (model->embedder) {
        ret_description->embedding_width = embed_width(config);
        ret_description->labels = config->labels;
        ret_description->is_judge = embed_is_judge(config);
        ret_description->labels_are_raw = config->labels_are_raw;
        ret_description->pair_form = config->architecture->pair_form;
        ret_description->embed_tokens_max = embed_tokens_max(config, caps->context_tokens_max);
    }
    copy_printable(ret_description->name, sizeof ret_description->name, config->name);
}

enum err model_set_answers(struct model *model, int32_t yes, int32_t no, struct error *error) {
    const struct model_config *config = &model->config;
    const int32_t ids[2] = {yes, no};
    enum err err = OK;
    if (yes < 0 || no < 0 || (uint32_t)yes >= config->vocab_rows ||
        (uint32_t)no >= config->vocab_rows)
        return err_set(error, ERR_INVALID, "the vocabulary has no tokens for yes and no");
    float *rows = mem_new(2 * (size_t)config->width, sizeof *rows);
    for (int i = 0; i < 2 && err == OK; i++) {
        float *row = rows + (size_t)i * config->width;
        if (model->gpu_store) /* whose rows are on the device */
            err =
                weights_read_head_row(model->checkpoint, model->pool, (uint32_t)ids[i], row, error);
        else
            matrix_row(model->weights->head, (uint32_t)ids[i], row);
    }
    if (err == OK) embedder_set_answers(model->embedder, rows, rows + config->width);
    free(rows);
    return err;
}

enum err model_embed(struct model *model, const struct embed_sequence *sequences, uint32_t count,
                     float *ret_vectors, struct error *error) {
    if (model->embedder) return embedder_run(model->embedder, sequences, count, ret_vectors, error);
    return err_set(error, ERR_INVALID,
                   "the model does not embed: its file says no pooling, so --pooling must");
}
