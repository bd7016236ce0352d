/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/served_model.h"

#include "base/clock.h"
#include "base/log.h"
#include "chat/thought.h"
#include "checkpoint/checkpoint.h"
#include "engine/served_drafts.h"
#include "model/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KERNELS_NAME_BYTES 64

static double seconds_since(int64_t begin_ns) {
    return (double)(clock_monotonic_ns() - begin_ns) * 1e-9;
}

/* Copies a text with a NUL after it; `what` names it in the error. */
static enum err copy_text(char *ret_text, size_t text_bytes, struct str text, const char *what,
                          struct error *error) {
    if (text.bytes >= text_bytes)
        return err_set(error, ERR_INVALID, "%s: a name of %zu bytes", what, text.bytes);
    memcpy(ret_text, text.bytes ? text.at : "", text.bytes);
    ret_text[text.bytes] = '\0';
    return OK;
}

/* Opens the model on the device if there is one. A model that only the CPU computes goes there,
 * with the reason in the log, unless a GPU was asked for. */
static enum err open_somewhere(struct served_model *model, const char *path,
                               struct model_options *wanted, struct loaded_gpu *device,
                               struct error *error) {
    bool has_device = device && device->gpu;
    wanted->device = has_device ? device : NULL;
    enum err err = model_open(&model->model, path, wanted, error);
    if (err != ERR_UNAVAILABLE || !has_device || device->settings.choice == GPU_CHOICE_CARD)
        return err;
    log_warn("event=device device=cpu reason=\"%s\"", error->text);
    gpu_load_close(device);
    err = gpu_settings_check_cpu(&device->settings, error);
    if (err != OK) return err;
    wanted->device = NULL;
    if (wanted->sequences_max == 0)
        wanted->sequences_max = SERVED_SEQS_DEFAULT + SERVED_URGENT_SEQS;
    return model_open(&model->model, path, wanted, error);
}

/* Sequences that the model shall run at a time, with room for those of interactive requests; 0 with
 * a device, which has its own default. */
static uint32_t sequences_of(const struct wire_hello *options, const struct loaded_gpu *device) {
    uint32_t count = options->max_num_seqs;
    if (count == 0 && device && device->gpu) return 0;
    if (count == 0) count = SERVED_SEQS_DEFAULT;
    return count <= MODEL_SEQUENCES_MAX - SERVED_URGENT_SEQS ? count + SERVED_URGENT_SEQS : count;
}

static enum err open_model(struct served_model *model, const char *path,
                           const struct wire_hello *options, struct loaded_gpu *device,
                           struct error *error) {
    char kernels[KERNELS_NAME_BYTES], packed_dir[PATH_MAX];
    enum err err = copy_text(kernels, sizeof kernels, options->kernels, "kernels", error);
    if (err == OK)
        err = copy_text(packed_dir, sizeof packed_dir, options->packed_dir, "packed_dir", error);
    if (err != OK) return err;
    struct model_options wanted = {
        .kernels = kernels[0] ? kernels : NULL,
        .reference = options->reference,
        .threads = options->threads,
        .kv_is_int8 = device && device->settings.kv == GPU_KV_INT8,
        .kv_bytes = options->kv_bytes,
        .state_bytes = options->state_bytes,
        .weight_bytes_max = options->weight_bytes,
        .rows_max = options->max_num_batched_tokens,
        .sequences_max = sequences_of(options, device),
        .urgent_sequences = SERVED_URGENT_SEQS,
        .context_max = options->max_model_len,
        .dummy_weights = options->dummy_weights,
        .packed_dir = packed_dir[0] ? packed_dir : NULL,
        .packed_bytes_max = options->packed_bytes_max,
    };
    if (model->vocabulary.tokenizer)
        wanted.token_count = (uint32_t)tokenizer_count(model->vocabulary.tokenizer);
    if (options->pooling.bytes > 0 && !pooling_of_name(options->pooling, &wanted.pooling))
        return err_set(error, ERR_INVALID, "pooling: not mean, cls or last");
    int64_t begin_ns = clock_monotonic_ns();
    err = open_somewhere(model, path, &wanted, device, error);
    if (err != OK) return err;
    struct model_description is;
    model_describe(model->model, &is);
    log_info("event=model_loaded seconds=%.3f weights=%s", seconds_since(begin_ns),
             *is.card            ? "card"
             : is.is_from_packed ? "mapped"
                                 : "packed");
    if (is.left_file_bytes > 0)
        log_info(
            "event=experts_in_file bytes=%llu reason=\"the tiles of all weights need more memory "
            "than the %llu bytes for them (--weight-memory-bytes): a step reads the experts "
            "that it meets\"",
            (unsigned long long)is.left_file_bytes, (unsigned long long)options->weight_bytes);
    return OK;
}

static bool has_word(const char *text, const char *word) {
    return strcasestr(text, word) != NULL;
}

/* True for models trained so that the beginning of a vector is a vector. Their names have these
 * parts; no file says it. */
static bool is_matryoshka(const char *name) {
    static const char *const names[] = {
        "embeddinggemma",      "qwen3-embedding",   "nomic-embed-text-v1.5", "mxbai-embed-large-v1",
        "arctic-embed-m-v1.5", "arctic-embed-m-v2", "arctic-embed-l-v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_word(name, names[i])) return true;
    return false;
}

static enum err embed(void *self, const struct embed_sequence *sequences, uint32_t count,
                      float *ret_vectors, struct error *error) {
    return model_embed(self, sequences, count, ret_vectors, error);
}

/* Qwen3-Reranker whose two answers were made a head with one label. */
static bool judges_by_head(const struct served_model *model, const struct model_description *is) {
    return strcmp(is->architecture, "qwen3") == 0 &&
           (has_word(is->name, "reranker") || has_word(model->name, "reranker"));
}

/* Fills in what the model does: generate, embed, or both. */
static void fill_uses(struct served_model *model, const struct model_description *is,
                      const struct wire_hello *options) {
    if (is->generates) model->backend = model_backend(model->model);
    if (!is->embeds) return;
    model->embedder = (struct served_embedder){
        .embed = embed,
        .self = model->model,
        .width = is->embedding_width,
        .vocab = is->vocab,
        .text_tokens_max = is->embed_tokens_max,
        .step_tokens = is->text_rows > 0                 ? SERVED_DEVICE_STEPS * is->text_rows
                       : options->max_num_batched_tokens ? options->max_num_batched_tokens
                                                         : SERVED_EMBED_TOKENS_DEFAULT,
        .takes_instruction =
            is->generates && (has_word(is->name, "gritlm") || has_word(model->name, "gritlm")),
        .is_matryoshka = is->labels == 0 && !is->is_judge &&
                         (is_matryoshka(is->name) || is_matryoshka(model->name)),
        .head = {.labels = is->is_judge ? 1 : is->labels,
                 .is_raw = is->labels_are_raw,
                 .is_judge = is->is_judge || (is->labels == 1 && judges_by_head(model, is)),
                 .pair_form = is->pair_form},
    };
}

/* The tokens with which a judge answers. */
static enum err set_answers(struct served_model *model, const struct model_description *is,
                            struct error *error) {
    const struct tokenizer *tokenizer = model->vocabulary.tokenizer;
    if (!is->is_judge) return OK;
    return model_set_answers(model->model, tokenizer_find(tokenizer, STR("yes")),
                             tokenizer_find(tokenizer, STR("no")), error);
}

/* Opens a folder. Its vocabulary is read first, because it tells the number of tokens. */
static enum err open_folder(struct served_model *model, const char *path,
                            const struct wire_hello *options, struct loaded_gpu *device,
                            struct error *error) {
    enum err err = vocabulary_open_folder(&model->vocabulary, path, error);
    return err == OK ? open_model(model, path, options, device, error) : err;
}

static enum err open_file(struct served_model *model, const char *path,
                          const struct wire_hello *options, struct loaded_gpu *device,
                          struct error *error) {
    enum err err = open_model(model, path, options, device, error);
    if (err != OK) return err;
    err = vocabulary_open(&model->vocabulary, model_vocab(model->model), error);
    if (err != OK) return err;
    size_t count = tokenizer_count(model->vocabulary.tokenizer);
    uint32_t vocab = model_backend(model->model)->caps.vocab;
    if (count > vocab)
        return err_set(error, ERR_INVALID, "the vocabulary has %zu tokens, the model only %u",
                       count, vocab);
    return OK;
}

/* The name "SmolLM2" of "/models/SmolLM2.gguf" and of the folder "/models/SmolLM2". */
static struct str name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    struct str name = str_from(slash ? slash + 1 : path);
    if (str_ends_with(name, STR(".gguf")) && name.bytes > 5) name.bytes -= 5;
    return name;
}

static void describe(struct served_model *model, const struct model_description *is,
                     const char *path) {
    struct buf text;
    buf_init(&text, 64 * 1024);
    buf_add_str(&text, name_of(path));
    buf_add_byte(&text, '\0');
    size_t title_at = text.bytes;
    buf_add_text(&text, is->name);
    buf_add_byte(&text, '\0');
    size_t description_at = text.bytes;
    buf_printf(&text,
               "%s %s, %.0fM parameters, %s; %u layers of %u; context %u of %u; %s %s, "
               "threads %u; weights %.0f MiB, workspace %.0f MiB",
               is->architecture, is->name[0] ? is->name : "(unnamed)", (double)is->parameters / 1e6,
               is->type, is->layers, is->width, is->context_max, is->context_model,
               *is->card ? "GPU" : "kernels", *is->card ? is->card : is->kernels, is->threads,
               (double)is->weight_bytes / (1 << 20), (double)is->workspace_bytes / (1 << 20));
    if (is->left_file_bytes > 0)
        buf_printf(&text, ", experts of %.0f MiB in the file",
                   (double)is->left_file_bytes / (1 << 20));
    if (is->generates)
        buf_printf(&text, ", KV %u blocks of %.1f KiB (%s)", is->kv_blocks,
                   (double)is->kv_bytes_per_token * BACKEND_BLOCK_TOKENS / 1024, is->kv_type);
    const struct backend_caps *caps = &model_backend(model->model)->caps;
    if (caps->window_pages > 0)
        buf_printf(&text, ", %u of %u pages of a block given back after %u tokens",
                   caps->window_pages, caps->full_pages + caps->window_pages, caps->window_tokens);
    if (caps->state_places > 0)
        buf_printf(&text, ", %u states of %.1f KiB, of %u sequences and of prefixes",
                   caps->state_places, (double)is->state_bytes / 1024, caps->sequences_max);
    if (is->embeds)
        buf_printf(&text, "; vectors of %u of texts up to %u tokens", is->embedding_width,
                   is->embed_tokens_max);
    model->text = text.at; /* owned from here */
    model->name = text.at;
    model->title = text.at + title_at;
    model->description = text.at + description_at;
    struct stat file;
    model->created_unix_s = stat(path, &file) == 0 ? (int64_t)file.st_mtime : 0;
}

/* Fills in what clients are told about the model; `is` has its texts as constants, but its name. */
static void tell_about(struct served_model *model, const struct model_description *is) {
    const struct vocabulary *words = &model->vocabulary;
    const struct jinja_template *for_tools = vocabulary_template(words, true);
    bool is_named = model->tool_format == TOOL_FORMAT_HARMONY;
    model->about = (struct model_about){
        .architecture = str_from(is->architecture),
        .title = str_from(model->title),
        .format = is->is_gguf ? STR("gguf") : STR("safetensors"),
        .quantization = str_from(is->mixture),
        .parameters = is->parameters,
        .file_bytes = is->file_bytes,
        .memory_bytes = is->weight_bytes + is->kv_bytes + is->states_bytes + is->workspace_bytes,
        .context_tokens = is->context_model,
        .layers = is->layers,
        .width = is->width,
        .knows_template = true,
        .takes_tools = is->generates && tool_format_of(for_tools) != TOOL_FORMAT_NONE,
        .thinks = is->generates && words->template &&
                  (is_named || thought_marks_of(words->template).begin),
    };
    if (words->template) model->about.template = jinja_template_source(words->template);
}

static struct card_ledger ledger_of(const struct memory_ledger *from) {
    return (struct card_ledger){.limit_bytes = from->limit,
                                .part_bytes = {[CARD_PART_CONTEXT] = from->context,
                                               [CARD_PART_WEIGHTS] = from->weights,
                                               [CARD_PART_ACTIVATIONS] = from->activations,
                                               [CARD_PART_LOGITS] = from->logits,
                                               [CARD_PART_STEPS] = from->steps,
                                               [CARD_PART_WORKSPACE] = from->workspace,
                                               [CARD_PART_STATES] = from->states,
                                               [CARD_PART_KV] = from->kv}};
}

/* The operator's template takes the place of all of the model's. */
static enum err take_template(struct served_model *model, struct str text, struct error *error) {
    struct jinja_template *template;
    if (text.bytes == 0) return OK;
    enum err err = jinja_template_open(&template, text, error);
    if (err != OK) return err_prefix(error, "--chat-template");
    jinja_template_close(model->vocabulary.template);
    jinja_template_close(model->vocabulary.tool_template);
    model->vocabulary.template = template;
    model->vocabulary.tool_template = NULL;
    return OK;
}

enum err served_model_check_parser(const char *name, struct error *error) {
    if (!name || tool_format_named(str_from(name)) != TOOL_FORMAT_NONE) return OK;
    struct buf known;
    buf_init(&known, 1024);
    tool_format_list(&known);
    err_set(error, ERR_INVALID, "--tool-call-parser '%.64s' is not supported (%.*s are)", name,
            STR_ARGS(buf_str(&known)));
    buf_release(&known);
    return ERR_INVALID;
}

enum err served_model_open(struct served_model *ret_model, const struct wire_hello *options,
                           struct loaded_gpu *device, struct error *error) {
    char path[PATH_MAX];
    if (options->model_path.bytes == 0 || options->model_path.bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "a model path of %zu bytes", options->model_path.bytes);
    memcpy(path, options->model_path.at, options->model_path.bytes);
    path[options->model_path.bytes] = '\0';
    struct served_model model = {.tool_format = tool_format_named(options->tool_call_parser)};
    int64_t begin_ns = clock_monotonic_ns();
    enum err err = checkpoint_is_folder(path) ? open_folder(&model, path, options, device, error)
                                              : open_file(&model, path, options, device, error);
    if (err == OK) err = take_template(&model, options->chat_template, error);
    if (err == OK) {
        struct model_description is;
        model_describe(model.model, &is);
        describe(&model, &is, path);
        tell_about(&model, &is);
        model.ledger = ledger_of(&is.ledger);
        fill_uses(&model, &is, options);
        err = set_answers(&model, &is, error);
    }
    if (err == OK && options->speculative_model.bytes > 0)
        err = served_drafts_open(&model, options, error);
    if (err == OK) {
        log_info("event=loaded seconds=%.3f", seconds_since(begin_ns));
        *ret_model = model;
    } else {
        served_model_close(&model);
    }
    return err;
}

void served_model_close(struct served_model *model) {
    draft_model_close(model->drafts);
    model_close(model->draft_source);
    vocabulary_close(&model->vocabulary);
    model_close(model->model);
    free(model->text);
    *model = (struct served_model){.name = NULL};
}

static bool scores_pairs(const struct served_head *head) {
    return head->labels == 0 || head->is_judge ||
           (head->labels == 1 && head->pair_form != PAIR_NONE);
}

/* What a model is for; *ret_paths are the endpoints that go with it. */
static const char *purpose_of(const struct served_model *model, const char **ret_paths) {
    const struct served_head *head = &model->embedder.head;
    const bool scores = scores_pairs(head);
    if (!model->embedder.embed) {
        *ret_paths = "/v1/chat/completions, /v1/completions, /v1/decisions and /v1/systemone";
        return "generates text";
    }
    if (head->labels > 0) {
        *ret_paths = scores ? model->backend
                                  ? "/v1/chat/completions, /v1/completions, /v1/decisions, "
                                    "/v1/systemone, /v1/score, /v1/rerank and /v1/pooling"
                                  : "/v1/score, /v1/rerank, /v1/classify and /v1/pooling"
                            : "/v1/classify and /v1/pooling";
        return scores ? "scores pairs of texts" : "gives texts labels";
    }
    *ret_paths = model->backend ? "/v1/chat/completions, /v1/completions, /v1/decisions, "
                                  "/v1/systemone, /v1/embeddings, /v1/score, /v1/rerank and "
                                  "/v1/pooling"
                                : "/v1/embeddings, /v1/score, /v1/rerank and /v1/pooling";
    return model->backend ? "generates text and makes embeddings" : "makes embeddings";
}

bool served_model_does(const struct served_model *model, enum endpoint endpoint,
                       struct refusal *ret_refusal) {
    const struct served_head *head = &model->embedder.head;
    const char *paths, *purpose = purpose_of(model, &paths);
    if (model->embedder.embed) {
        if (endpoint == ENDPOINT_POOLING) return true;
        if (endpoint == ENDPOINT_CLASSIFY && head->labels > 0 && !head->is_judge) return true;
        if (endpoint == ENDPOINT_EMBEDDINGS && head->labels == 0) return true;
        if ((endpoint == ENDPOINT_SCORE || endpoint == ENDPOINT_RERANK) && scores_pairs(head))
            return true;
    }
    bool is_for_words = endpoint == ENDPOINT_CHAT || endpoint == ENDPOINT_COMPLETIONS ||
                        endpoint_is_decision(endpoint);
    if (is_for_words && model->backend) return true;
    return refuse(ret_refusal, "unsupported_endpoint", NULL, "This model %s; it serves %s only.",
                  purpose, paths);
}
