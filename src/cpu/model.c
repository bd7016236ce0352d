/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cpu/model_state.h"

#include "base/os.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_DEFAULT 512u
#define ROWS_MAX 65536u
#define SEQUENCES_DEFAULT 128u
#define PAGES_MAX (1u << 24)
#define KV_BYTES_DEFAULT ((uint64_t)1 << 30)
/* Rows of logits made at a time: enough to pay for reading the head once, and 134 MB at the
 * largest vocabulary. */
#define LOGIT_ROWS_MAX 128u

/* Rows of an urgent step: a long prompt comes in several, between which a short one may start. */
#define URGENT_ROWS_MAX 256u

/* ---- the backend ---- */

struct sample_job {
    struct model *model;
    const struct logit_row *rows;
    const float *logits;
    struct sample *samples;
};

static void sample_task(void *context, uint32_t task, uint32_t worker) {
    const struct sample_job *job = context;
    struct model *model = job->model;
    sampler_sample(&model->samplers[worker], &job->rows[task],
                   job->logits + (size_t)task * model->config.vocab_rows, &job->samples[task]);
}

static void begin_step(struct lane *lane, const struct step *step) {
    assert(step->logit_count <= step->row_count);
    for (uint32_t i = 0; i < step->logit_count; i++) lane->wanted[i] = step->logit_rows[i].row;
    lane->step = step;
    lane->sampled = 0;
    forward_begin(lane->forward, step, lane->wanted, step->logit_count);
    lane->is_computed = false;
}

/* A slice of the layers, or of the head. True when all is done. */
static bool advance_step(struct model *model, struct lane *lane) {
    const struct step *step = lane->step;
    if (!lane->is_computed) {
        lane->is_computed = forward_advance(lane->forward);
        return lane->is_computed && step->logit_count == 0;
    }
    uint32_t done = lane->sampled;
    uint32_t count = step->logit_count - done;
    if (count > lane->logit_rows_max) count = lane->logit_rows_max;
    if (count > 0) {
        struct sample_job job = {.model = model,
                                 .rows = step->logit_rows + done,
                                 .logits = forward_logits(lane->forward, done, count),
                                 .samples = lane->samples + done};
        pool_run(model->pool, sample_task, &job, count);
    }
    lane->sampled = done + count;
    return lane->sampled == step->logit_count;
}

static void end_step(struct model *model, struct lane *lane, struct step_result *result) {
    while (!advance_step(model, lane)) continue;
    for (uint32_t i = 0; i < lane->sampled; i++)
        sample_copy(&result->samples[i], &lane->samples[i]);
}

static enum err submit(void *self, const struct step *step, struct error *error) {
    (void)error; /* arithmetic cannot fail */
    struct model *model = self;
    begin_step(&model->lanes[LANE_PLAIN], step);
    return OK;
}

static enum err advance(void *self, bool *ret_done, struct error *error) {
    (void)error;
    struct model *model = self;
    *ret_done = advance_step(model, &model->lanes[LANE_PLAIN]);
    return OK;
}

static enum err wait_for_step(void *self, struct step_result *result, struct error *error) {
    (void)error;
    struct model *model = self;
    end_step(model, &model->lanes[LANE_PLAIN], result);
    return OK;
}

static enum err interject(void *self, const struct step *step, struct step_result *result,
                          struct error *error) {
    (void)error;
    struct model *model = self;
    begin_step(&model->lanes[LANE_URGENT], step);
    end_step(model, &model->lanes[LANE_URGENT], result);
    return OK;
}

static void close_backend(void *self) {
    model_close(self);
}

static const struct backend_ops ops = {.submit = submit,
                                       .wait = wait_for_step,
                                       .close = close_backend,
                                       .advance = advance,
                                       .interject = interject};

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
    if (options->block_count > PAGES_MAX)
        return err_set(error, ERR_INVALID, "block_count is %u, more than %u", options->block_count,
                       PAGES_MAX);
    if (options->context_max > config->context_max)
        return err_set(error, ERR_INVALID, "context_max is %u, but the model was made for %u",
                       options->context_max, config->context_max);
    if (options->context_max == 1 || config->context_max == 1)
        return err_set(error, ERR_INVALID, "a context of one token cannot be used");
    return OK;
}

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value > 0 ? value : fallback;
}

static uint64_t page_bytes(const struct model *model) {
    return forward_page_bytes(&model->config, &model->layout, model->kernels);
}

/* How many KV pages the options ask for. */
static enum err count_pages(const struct model *model, const struct model_options *options,
                            uint32_t *ret_count, struct error *error) {
    const struct backend_caps *caps = &model->backend.caps;
    uint64_t groups = kv_layout_groups(&model->layout);
    uint64_t bytes = options->kv_bytes > 0 ? options->kv_bytes : KV_BYTES_DEFAULT;
    uint64_t count = bytes / page_bytes(model);
    uint64_t useful = (uint64_t)caps->sequences_max *
                      ((caps->context_tokens_max + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS) * groups;
    if (count > useful) count = useful;
    if (options->block_count > 0) count = options->block_count * groups;
    if (count > PAGES_MAX) count = PAGES_MAX;
    if (count < groups)
        return err_set(error, ERR_INVALID,
                       "kv_bytes is %llu, less than the %llu that one block of %d tokens takes",
                       (unsigned long long)bytes, (unsigned long long)(groups * page_bytes(model)),
                       KV_BLOCK_TOKENS);
    *ret_count = (uint32_t)count;
    return OK;
}

static enum err open_samplers(struct model *model, struct error *error) {
    uint32_t threads = pool_threads(model->pool);
    model->samplers = mem_new(threads, sizeof *model->samplers);
    enum err err = OK;
    for (uint32_t i = 0; i < threads && err == OK; i++)
        err = sampler_open(&model->samplers[i], model->kernels, model->config.token_count, error);
    return err;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static void open_lane(struct lane *lane, const struct backend_caps *caps, uint32_t rows_max) {
    lane->logit_rows_max = least(least(caps->sequences_max, rows_max), LOGIT_ROWS_MAX);
    lane->wanted = mem_new(rows_max, sizeof *lane->wanted);
    lane->samples = mem_new(rows_max, sizeof *lane->samples);
}

/* Opens the parts that a scheduler needs to generate. */
static enum err open_lanes(struct model *model, const struct model_options *options,
                           struct error *error) {
    struct backend_caps *caps = &model->backend.caps;
    *caps = (struct backend_caps){
        .block_tokens = BACKEND_BLOCK_TOKENS,
        .rows_max = or_default(options->rows_max, ROWS_DEFAULT),
        .sequences_max = or_default(options->sequences_max, SEQUENCES_DEFAULT),
        .context_tokens_max = or_default(options->context_max, model->config.context_max),
        .vocab = model->config.token_count,
        .steps_max = 1};
    caps->full_pages = model->layout.full_groups;
    caps->window_pages = model->layout.window_groups;
    caps->window_tokens = model->layout.window_tokens;
    enum err err = count_pages(model, options, &caps->page_count, error);
    if (err != OK) return err;
    caps->urgent_rows_max = least(caps->rows_max, URGENT_ROWS_MAX);
    struct lane *plain = &model->lanes[LANE_PLAIN];
    struct lane *urgent = &model->lanes[LANE_URGENT];
    open_lane(plain, caps, caps->rows_max);
    open_lane(urgent, caps, caps->urgent_rows_max);
    struct forward_options forward = {.config = &model->config,
                                      .weights = model->weights,
                                      .kernels = model->kernels,
                                      .pool = model->pool,
                                      .rows_max = caps->rows_max,
                                      .logit_rows_max = plain->logit_rows_max,
                                      .layout = &model->layout,
                                      .page_count = caps->page_count};
    err = forward_open(&plain->forward, &forward, error);
    if (err == OK)
        err = forward_open_beside(&urgent->forward, plain->forward, caps->urgent_rows_max,
                                  urgent->logit_rows_max, error);
    return err == OK ? open_samplers(model, error) : err;
}

static enum err open_embedder(struct model *model, const struct model_options *options,
                              struct error *error) {
    uint32_t context = or_default(options->context_max, model->config.context_max);
    struct embedder_options embed = {.config = &model->config,
                                     .weights = model->weights,
                                     .kernels = model->kernels,
                                     .pool = model->pool,
                                     .pooling = embed_pooling(&model->config, options->pooling),
                                     .rows_max = or_default(options->rows_max, ROWS_DEFAULT),
                                     .tokens_max = embed_tokens_max(&model->config, context)};
    if (embed.pooling == POOLING_NONE) return OK;
    return embedder_open(&model->embedder, &embed, error);
}

static enum err open_forward(struct model *model, const struct model_options *options,
                             struct error *error) {
    enum err err = open_embedder(model, options, error);
    if (err == OK && model_generates(model)) return open_lanes(model, options, error);
    model->backend.caps = (struct backend_caps){
        .context_tokens_max = or_default(options->context_max, model->config.context_max),
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

static enum err open_weights(struct model *model, const struct tiled_cache_options *cache,
                             struct error *error) {
    struct tile_store_options store = {.checkpoint = model->checkpoint,
                                       .config = &model->config,
                                       .kernels = model->kernels,
                                       .pool = model->pool,
                                       .cache = cache};
    model->store = tile_store_open(&store);
    struct weights_options weights = {.checkpoint = model->checkpoint,
                                      .config = &model->config,
                                      .store = tile_store_interface(model->store),
                                      .pool = model->pool};
    return weights_open(&model->weights, &weights, error);
}

static enum err open_all(struct model *model, const char *path, const struct model_options *options,
                         struct error *error) {
    _Static_assert(BACKEND_BLOCK_TOKENS == KV_BLOCK_TOKENS, "one block size for both sides");
    struct tiled_cache_options cache = cache_options(path, options);
    enum err err = choose_kernels(model, options, error);
    const struct checkpoint_options from = {.token_count = options->token_count,
                                            .dummy_weights = options->dummy_weights};
    if (err == OK) err = checkpoint_open(&model->checkpoint, path, &from, error);
    if (err != OK) return err;
    model->config = *checkpoint_config(model->checkpoint);
    err = check_options(options, &model->config, error);
    model->layout =
        kv_layout_of(&model->config, or_default(options->context_max, model->config.context_max));
    if (err == OK) err = pool_open(&model->pool, options->threads, error);
    if (err == OK) err = open_weights(model, &cache, error);
    if (err == OK) err = open_forward(model, options, error);
    return err == OK ? weights_fill(model->weights, error) : err;
}

enum err model_open(struct model **ret_model, const char *path, const struct model_options *options,
                    struct error *error) {
    struct model *model = mem_new(1, sizeof *model);
    enum err err = open_all(model, path, options, error);
    if (err != OK) {
        model_close(model);
        return err;
    }
    model->backend.ops = &ops;
    model->backend.self = model;
    model->peak_rss_bytes = os_peak_rss_bytes();
    *ret_model = model;
    return OK;
}

void model_close(struct model *model) {
    if (!model) return;
    for (uint32_t i = 0; model->samplers && i < pool_threads(model->pool); i++)
        sampler_close(&model->samplers[i]);
    free(model->samplers);
    embedder_close(model->embedder);
    for (int i = LANE_COUNT; i-- > 0;) {
        free(model->lanes[i].samples);
        free(model->lanes[i].wanted);
        forward_close(model->lanes[i].forward);
    }
    tile_store_close(model->store);
    weights_close(model->weights);
    pool_close(model->pool);
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

static uint64_t workspace_bytes(const struct model *model) {
    uint64_t bytes = model->embedder ? embedder_bytes(model->embedder) : 0;
    if (!model_generates(model)) return bytes;
    bytes += pool_threads(model->pool) * sampler_bytes(model->config.token_count);
    for (int i = 0; i < LANE_COUNT; i++) bytes += forward_workspace_bytes(model->lanes[i].forward);
    const struct backend_caps *caps = &model->backend.caps;
    return bytes + (caps->rows_max + caps->urgent_rows_max) * sizeof(struct sample);
}

void model_describe(const struct model *model, struct model_description *ret_description) {
    const struct model_config *config = &model->config;
    const struct backend_caps *caps = &model->backend.caps;
    uint32_t groups = kv_layout_groups(&model->layout);
    uint32_t threads = pool_threads(model->pool);
    const char *form = checkpoint_form(model->checkpoint);
    *ret_description = (struct model_description){
        .architecture = config->architecture->name,
        .type = form ? form : tensor_type_name(model->weights->type),
        .kernels = model->kernels->name,
        .kv_type = tensor_type_name(model->kernels->kv_type),
        .parameters = model->weights->parameters,
        .layers = config->layers,
        .width = config->width,
        .vocab = config->token_count,
        .context_model = config->context_max,
        .context_max = caps->context_tokens_max,
        .threads = threads,
        .kv_blocks = caps->page_count / groups,
        .embeds = model->embedder != NULL,
        .generates = model_generates(model),
        .file_bytes = checkpoint_file_bytes(model->checkpoint),
        .weight_bytes = model->weights->bytes,
        .is_from_packed = tile_store_is_from_cache(model->store),
        .kv_bytes_per_token = page_bytes(model) * groups / KV_BLOCK_TOKENS,
        .kv_bytes = page_bytes(model) * caps->page_count,
        .workspace_bytes = workspace_bytes(model),
        .peak_rss_bytes = model->peak_rss_bytes};
    if (model->embedder) {
        ret_description->embedding_width = config->width;
        ret_description->embed_tokens_max = embed_tokens_max(config, caps->context_tokens_max);
    }
    copy_printable(ret_description->name, sizeof ret_description->name, config->name);
}

enum err model_embed(struct model *model, const struct embed_sequence *sequences, uint32_t count,
                     float *ret_vectors, struct error *error) {
    if (model->embedder) return embedder_run(model->embedder, sequences, count, ret_vectors, error);
    return err_set(error, ERR_INVALID,
                   "the model does not embed: its file says no pooling, so --pooling must");
}
