/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/inspect_verdict.h"

#include "chat/thought.h"
#include "chat/tool_format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensors.h"
#include "engine/vocabulary.h"
#include "kernels/kernels.h"

/* Keys and values in F16, of the layers that have their own, or lines that are both. */
static void take_keys(struct inspection *inspection, const struct model_config *config) {
    const bool is_latent = config_is_latent(config);
    const uint64_t each = is_latent ? 2 : 4;
    uint64_t all = 0, far = 0, in_int8 = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        const uint64_t bytes = each * config_kv_width(config, i);
        all += bytes;
        if (bytes > 0)
            in_int8 += 2 * (uint64_t)config_kv_heads(config, i) *
                       (config_head_dim(config, i) + kv_type_extra(TENSOR_KV_INT8));
        if (!config_layer_is_local(config, i)) far += bytes;
    }
    inspection->window = config->window;
    inspection->kv_bytes_per_token = all;
    inspection->kv_far_bytes_per_token = far;
    inspection->kv_int8_bytes_per_token = is_latent ? 0 : in_int8;
    inspection->state_bytes = config_state_bytes(config);
}

/* Bytes of a tensor as the CPU keeps it: vectors and routers in F32, blocks as integers with F32
 * scales, and tables that are only looked up as the file has them. */
static uint64_t memory_of(const struct model_config *config, const struct checkpoint_tensor *tensor,
                          bool is_tied) {
    const enum tensor_type type = (enum tensor_type)tensor->type;
    const bool is_table =
        str_is(tensor->name, tensor_name_of(ROLE_INPUT_TABLE, 0).text) ||
        (str_is(tensor->name, tensor_name_of(ROLE_EMBEDDING, 0).text) && !is_tied);
    uint64_t elements = checkpoint_numbers(tensor);
    if (tensor->axis_count == 1 || str_ends_with(tensor->name, STR("ffn_gate_inp.weight")) ||
        str_ends_with(tensor->name, STR("_exps.bias")))
        return elements * sizeof(float);
    if (is_table || !tensor_type_is_quantised(type)) return tensor->bytes;
    const struct quant_form form = quant_form_of(type);
    const uint64_t numbers = form.has_minimum ? 2 : 1;
    if (str_ends_with(tensor->name, STR(".attn_kv_b.weight"))) { /* turned keys are in F32 */
        const struct latent_sizes *latent = &config->latent;
        const uint64_t keys = (uint64_t)config->heads * latent->still_dim * latent->rank;
        elements -= keys;
        return keys * sizeof(float) + elements / 8 * form.bits +
               elements / form.group * numbers * sizeof(float);
    }
    return elements / 8 * form.bits + elements / form.group * numbers * sizeof(float);
}

/* True for the weights of one expert, or of all of a layer, that lie in the file as they are used.
 * The names end in "_exps.weight" or "ffn_up.7.weight". */
static bool may_stay(const struct checkpoint_tensor *tensor) {
    struct str name = tensor->name;
    if (tensor->packed || !str_ends_with(name, STR(".weight"))) return false;
    name.bytes -= sizeof ".weight" - 1;
    if (str_ends_with(name, STR("_exps"))) return true;
    size_t digits = 0;
    while (digits < name.bytes && name.at[name.bytes - 1 - digits] >= '0' &&
           name.at[name.bytes - 1 - digits] <= '9')
        digits++;
    return digits > 0 && digits < name.bytes && name.at[name.bytes - 1 - digits] == '.';
}

/* The memory of the weights of a decoder. */
static void take_memory(struct inspection *inspection, const struct checkpoint *checkpoint) {
    const bool is_tied = !checkpoint_find(checkpoint, STR("output.weight"));
    inspection->memory_bytes = inspection->expert_bytes = 0;
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        const uint64_t bytes = memory_of(checkpoint_config(checkpoint), tensor, is_tied);
        inspection->memory_bytes += bytes;
        if (may_stay(tensor)) inspection->expert_bytes += bytes;
    }
}

void inspect_take(struct inspection *inspection, const struct checkpoint *checkpoint) {
    take_keys(inspection, checkpoint_config(checkpoint));
    take_memory(inspection, checkpoint);
}

static enum err open_templates(struct vocabulary *words, const struct checkpoint_vocab *vocab,
                               struct error *error) {
    enum err err = jinja_template_open(&words->template, vocab->chat_template, error);
    if (err == OK && vocab->tool_template.bytes > 0)
        err = jinja_template_open(&words->tool_template, vocab->tool_template, error);
    return err;
}

/* Reads the templates of a file, or those of a folder, which has no `vocab`. One that cannot be
 * read leaves it unknown: the engine says why it does not load. */
static void take_template(struct inspection *inspection, const char *path,
                          const struct checkpoint_vocab *vocab) {
    struct vocabulary words = {.template = NULL};
    struct error ignored;
    enum err err = vocab ? open_templates(&words, vocab, &ignored)
                         : vocabulary_read_templates(&words, path, &ignored);
    if (err == OK && words.template) {
        inspection->is_template_read = true;
        inspection->takes_tools =
            tool_format_of(vocabulary_template(&words, true)) != TOOL_FORMAT_NONE;
        inspection->thinks = thought_marks_of(words.template).begin != NULL;
        buf_add_str(&inspection->template, jinja_template_source(words.template));
    }
    vocabulary_close(&words);
}

enum err inspect_verdict(struct inspection *inspection, const char *path, struct error *error) {
    struct checkpoint *checkpoint;
    const struct checkpoint_options options = {.dummy_weights = false};
    enum err err = checkpoint_open(&checkpoint, path, &options, error);
    if (err != OK) return err;
    const struct model_config *config = checkpoint_config(checkpoint);
    const bool is_encoder = config->architecture->is_encoder;
    err = tensors_check(checkpoint, config, error);
    if (!is_encoder) take_keys(inspection, config);
    if (err == OK && !is_encoder) take_memory(inspection, checkpoint);
    const struct checkpoint_vocab *vocab = checkpoint_vocab(checkpoint);
    if (err == OK && inspection->has_template) take_template(inspection, path, vocab);
    checkpoint_close(checkpoint);
    return err;
}
