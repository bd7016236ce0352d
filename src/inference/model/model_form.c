/* SPDX-License-Identifier: Apache-2.0 */

/* In which form a device holds a model's weights: which one is tried first, and what is tried next
 * where the memory is too small. */

#include "base/log.h"
#include "gpu/gpu_choose.h"
#include "gpu/gpu_shapes.h"
#include "model/model_internal.h"

#include <inttypes.h>

/* The next smaller form in which the device may hold the weights; false: there is none. A file
 * whose own weights have 8 bits or fewer may be held in 8 bits: in bf16 they are two to four times
 * the file, and a file is chosen by its size. One of fewer than 8 bits may stay as it is. */
static bool choose_smaller_form(struct model *model, const struct model_options *options) {
    const enum tensor_type type = model->weights ? model->weights->type : TENSOR_F32;
    const size_t bytes = tensor_type_block_bytes(type), numbers = tensor_type_block_elements(type);
    const bool is_stored_small =
        model->weights && (bytes < 2 * numbers || checkpoint_is_packed(model->checkpoint));
    if (!options->device || !is_stored_small || !gpu_load_may_shrink(options->device)) return false;
    const bool is_small = model->weight_form == GPU_SMALL_FORM;
    if (model->weight_form == GPU_BLOCKS || (is_small && bytes >= numbers)) return false;
    model->weight_form = is_small ? GPU_BLOCKS : GPU_SMALL_FORM;
    return true;
}

const char *model_form_name(enum gpu_form form) {
    switch (form) {
    case GPU_F32: return "f32";
    case GPU_BF16: return "bf16";
    case GPU_E4M3: return "fp8";
    case GPU_INT8: return "int8";
    case GPU_BLOCKS: break;
    }
    return "file";
}

bool model_take_less(struct model *model, const struct model_options *options) {
    if (choose_smaller_form(model, options)) return true;
    if (!options->device || model->config.experts == 0 || model->leaves_experts) return false;
    model->leaves_experts = true;
    return true;
}

enum gpu_form model_choose_form(const struct model *model, const struct model_options *options,
                                const struct executor_limits *limits) {
    const struct loaded_gpu *device = options->device;
    const bool has_blocks = gpu_shapes_has_blocks(model->checkpoint);
    const enum gpu_form form = gpu_load_weight_form(device, has_blocks);
    if (form != GPU_BF16 || !gpu_load_may_shrink(device) || model->is_for_texts ||
        !gpu_choose_is_small(model->checkpoint))
        return form;
    const struct tensor_name head = tensor_name_of(ROLE_HEAD, 0);
    const struct card_fit_options fit = {
        .config = &model->config,
        .is_tied = !checkpoint_find(model->checkpoint, str_from(head.text)),
        .checkpoint = model->checkpoint,
        .kv = gpu_load_kv_form(device),
        .state = gpu_load_state_form(device),
        .memory_bytes = device->memory_bytes,
        .host_bytes = options->weight_bytes_max,
        .ranks = device->settings.ranks,
        .wanted = *limits};
    const struct gpu_choice choice = gpu_choose(&fit, has_blocks);
    if (choice.form == GPU_BF16) return GPU_BF16;
    log_info("event=weights_form form=%s sequences=%" PRIu64 " in_bf16=%" PRIu64 " wanted=%" PRIu32
             " tokens=%" PRIu32
             "; --quantization none holds them in bf16, which is nearer to the file",
             model_form_name(choice.form), choice.sequences, choice.in_bf16, choice.wanted,
             choice.tokens);
    return choice.form;
}
