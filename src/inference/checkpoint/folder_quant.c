/* SPDX-License-Identifier: Apache-2.0 */

/* Weights that a folder stores small: finds the parts of each and checks that they fit together. */

#include "checkpoint/checkpoint_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX ((uint64_t)1 << 28) /* the limits of kernels/matrix.c */
#define COLS_MAX ((uint64_t)1 << 24)

/* One weight while its parts are looked for. */
struct packing_job {
    const struct checkpoint *checkpoint;
    struct str module;
    struct checkpoint_tensor *tensor;
    struct packed_weight *weight;
    struct error *error;
    size_t source_count;
};

/* "MODULE.ending"; a file of NULL when it is not there. */
static struct shard_tensor find(const struct packing_job *job, const char *ending) {
    char name[SAFETENSORS_NAME_BYTES_MAX + 32];
    int bytes = snprintf(name, sizeof name, "%.*s%s", STR_ARGS(job->module), ending);
    return shards_find(&job->checkpoint->shards, (struct str){name, (size_t)bytes});
}

/* Takes a part of two axes (a scalar or a vector counts as one with axes of 1). */
static enum err take(struct packing_job *job, const char *ending, struct shard_tensor *ret_part,
                     uint64_t ret_axes[2]) {
    struct shard_tensor part = *ret_part = find(job, ending);
    ret_axes[0] = ret_axes[1] = 0;
    if (!part.file)
        return err_set(job->error, ERR_INVALID, "tensor %.*s%s is missing", STR_ARGS(job->module),
                       ending);
    const struct safetensors_tensor *tensor = part.tensor;
    if (tensor->axis_count > 2 || tensor->bytes == 0)
        return err_set(job->error, ERR_INVALID, "tensor %.*s is no matrix", STR_ARGS(tensor->name));
    ret_axes[0] = tensor->axes[0];
    ret_axes[1] = tensor->axes[1];
    job->tensor->sources[job->source_count++] = part;
    return OK;
}

static enum err take_typed(struct packing_job *job, const char *ending, enum safetensors_type type,
                           struct shard_tensor *ret_part, uint64_t ret_axes[2]) {
    enum err err = take(job, ending, ret_part, ret_axes);
    if (err != OK) return err;
    assert(ret_part->tensor);
    if (ret_part->tensor->type == type) return OK;
    return err_set(job->error, ERR_INVALID, "tensor %.*s: dtype %s instead of %s",
                   STR_ARGS(ret_part->tensor->name), safetensors_type_name(ret_part->tensor->type),
                   safetensors_type_name(type));
}

static enum err take_scales(struct packing_job *job, const char *ending, uint64_t ret_axes[2]) {
    struct shard_tensor part;
    enum err err = take(job, ending, &part, ret_axes);
    if (err != OK) return err;
    assert(part.tensor);
    switch (part.tensor->type) {
    case SAFETENSORS_F32: job->weight->scale_type = TENSOR_F32; break;
    case SAFETENSORS_F16: job->weight->scale_type = TENSOR_F16; break;
    case SAFETENSORS_BF16: job->weight->scale_type = TENSOR_BF16; break;
    default:
        return err_set(job->error, ERR_INVALID, "tensor %.*s: dtype %s is not supported here",
                       STR_ARGS(part.tensor->name), safetensors_type_name(part.tensor->type));
    }
    job->weight->scales = part.tensor->at;
    return OK;
}

static enum err wrong_shape(const struct packing_job *job, const char *ending,
                            const uint64_t axes[2], uint64_t rows, uint64_t cols) {
    return err_set(job->error, ERR_INVALID, "tensor %.*s%s is %llu x %llu instead of %llu x %llu",
                   STR_ARGS(job->module), ending, (unsigned long long)axes[0],
                   (unsigned long long)axes[1], (unsigned long long)rows, (unsigned long long)cols);
}

static void type_weight(struct packing_job *job, enum tensor_type type) {
    job->weight->type = type;
    job->tensor->type = type;
    job->tensor->row_bytes = tensor_type_row_bytes(type, job->weight->cols);
    job->tensor->bytes = job->weight->rows * job->tensor->row_bytes;
}

/* The shape of the weight that comes out. */
static enum err size_weight(struct packing_job *job, uint64_t rows, uint64_t cols) {
    if (rows > ROWS_MAX || cols > COLS_MAX)
        return err_set(job->error, ERR_INVALID, "tensor %.*s.weight is too large: %llu x %llu",
                       STR_ARGS(job->module), (unsigned long long)rows, (unsigned long long)cols);
    struct checkpoint_tensor *tensor = job->tensor;
    job->weight->rows = (uint32_t)rows;
    job->weight->cols = (uint32_t)cols;
    tensor->axis_count = 2;
    for (int i = 0; i < GGUF_AXES_MAX; i++) tensor->axes[i] = 1;
    tensor->axes[0] = cols;
    tensor->axes[1] = rows;
    tensor->packed = job->weight;
    type_weight(job, TENSOR_BF16);
    return OK;
}

/* Four bits stay four bits where blocks of INT4 can hold them: unless a group ends inside a block,
 * or inputs are in no order of groups. */
static void keep_integers(struct packing_job *job) {
    const struct packed_weight *weight = job->weight;
    uint32_t block = tensor_type_block_elements(TENSOR_INT4);
    if (weight->bits == 4 && weight->cols % block == 0 && weight->block_cols % block == 0 &&
        !weight->groups)
        type_weight(job, TENSOR_INT4);
}

static uint64_t groups_of(uint64_t count, uint64_t group) {
    return (count + group - 1) / group;
}

/* One scale for all, one for each output, or one for each block. */
static enum err pack_fp8(struct packing_job *job) {
    const struct quantisation *how = &job->checkpoint->json->quantisation;
    struct packed_weight *weight = job->weight;
    struct shard_tensor values;
    uint64_t axes[2], scales[2];
    const bool is_inverse = how->block_rows > 0 && !find(job, ".weight_scale").file;
    const char *ending = is_inverse ? ".weight_scale_inv" : ".weight_scale";
    enum err err = take_typed(job, ".weight", SAFETENSORS_F8_E4M3, &values, axes);
    if (err == OK) err = size_weight(job, axes[0], axes[1]);
    if (err == OK) err = take_scales(job, ending, scales);
    if (err != OK) return err;
    weight->packing = PACKING_FP8;
    weight->values = values.tensor->at;
    if (how->block_rows > 0) {
        weight->block_rows = how->block_rows;
        weight->block_cols = how->block_cols;
    } else {
        weight->block_rows = scales[0] == 1 ? weight->rows : 1;
        weight->block_cols = weight->cols;
    }
    uint64_t rows = groups_of(axes[0], weight->block_rows);
    uint64_t cols = groups_of(axes[1], weight->block_cols);
    weight->scale_cols = (uint32_t)cols;
    return scales[0] == rows && scales[1] == cols ? OK
                                                  : wrong_shape(job, ending, scales, rows, cols);
}

/* Integers of 8 bits, with scales as FP8 has them or for each group of inputs. */
static enum err pack_int8(struct packing_job *job) {
    const struct quantisation *how = &job->checkpoint->json->quantisation;
    struct packed_weight *weight = job->weight;
    struct shard_tensor values;
    uint64_t axes[2], scales[2];
    enum err err = take_typed(job, ".weight", SAFETENSORS_I8, &values, axes);
    if (err == OK) err = size_weight(job, axes[0], axes[1]);
    if (err == OK) err = take_scales(job, ".weight_scale", scales);
    if (err != OK) return err;
    if (find(job, ".weight_zero_point").file)
        return err_set(job->error, ERR_INVALID,
                       "tensor %.*s.weight_zero_point: int-quantized weights with zero points are "
                       "not supported",
                       STR_ARGS(job->module));
    weight->packing = PACKING_INT8;
    weight->values = values.tensor->at;
    weight->block_rows = scales[0] == 1 ? weight->rows : 1;
    weight->block_cols = how->group > 0 ? how->group : weight->cols;
    const uint64_t rows = groups_of(axes[0], weight->block_rows);
    const uint64_t cols = groups_of(axes[1], weight->block_cols);
    weight->scale_cols = (uint32_t)cols;
    return scales[0] == rows && scales[1] == cols
               ? OK
               : wrong_shape(job, ".weight_scale", scales, rows, cols);
}

/* weight_shape: outputs and inputs, for inputs that do not fill their last word. */
static enum err read_inputs(const struct packing_job *job, uint64_t rows, uint64_t most,
                            uint64_t each, uint64_t *ret_cols) {
    const struct shard_tensor part = find(job, ".weight_shape");
    int64_t shape[2];
    *ret_cols = most;
    if (!part.file) return OK;
    if (part.tensor->type != SAFETENSORS_I64 || part.tensor->bytes != sizeof shape)
        return err_set(job->error, ERR_INVALID, "tensor %.*s.weight_shape is no pair of I64",
                       STR_ARGS(job->module));
    memcpy(shape, part.tensor->at, sizeof shape);
    if (shape[0] < 0 || (uint64_t)shape[0] != rows || shape[1] < 1 || (uint64_t)shape[1] > most ||
        most - (uint64_t)shape[1] >= each)
        return err_set(job->error, ERR_INVALID,
                       "tensor %.*s.weight_shape: %lld x %lld do not fit its words",
                       STR_ARGS(job->module), (long long)shape[0], (long long)shape[1]);
    *ret_cols = (uint64_t)shape[1];
    return OK;
}

static enum err take_order(struct packing_job *job, const char *ending);

/* Words of neighbouring inputs; scales of (rows, groups); zero points in words of outputs. */
static enum err pack_rows(struct packing_job *job) {
    const struct quantisation *how = &job->checkpoint->json->quantisation;
    struct packed_weight *weight = job->weight;
    struct shard_tensor values, zeros;
    uint64_t axes[2], scales[2], zero_axes[2], cols = 0;
    const uint64_t each = 32 / how->bits;
    enum err err = take_typed(job, ".weight_packed", SAFETENSORS_I32, &values, axes);
    if (err == OK && axes[1] > COLS_MAX) axes[1] = COLS_MAX; /* refused by its product */
    if (err == OK) err = read_inputs(job, axes[0], axes[1] * each, each, &cols);
    if (err == OK) err = size_weight(job, axes[0], cols);
    if (err == OK) err = take_scales(job, ".weight_scale", scales);
    if (err != OK) return err;
    weight->packing = PACKING_ROWS;
    weight->values = values.tensor->at;
    weight->bits = how->bits;
    weight->block_cols = how->group > 0 ? how->group : weight->cols;
    const uint64_t groups = groups_of(weight->cols, weight->block_cols);
    weight->scale_cols = (uint32_t)groups;
    if (scales[0] != axes[0] || scales[1] != groups)
        return wrong_shape(job, ".weight_scale", scales, axes[0], groups);
    if (find(job, ".weight_zero_point").file) {
        const uint64_t words = groups_of(axes[0], each);
        err = take_typed(job, ".weight_zero_point", SAFETENSORS_I32, &zeros, zero_axes);
        if (err != OK) return err;
        if (zero_axes[0] != words || zero_axes[1] != groups)
            return wrong_shape(job, ".weight_zero_point", zero_axes, words, groups);
        weight->zeros = zeros.tensor->at;
    }
    err = take_order(job, ".weight_g_idx");
    if (err == OK) keep_integers(job);
    return err;
}

/* Pairs of 4-bit floats; a scale of 8 bits for 16 inputs, and one divisor for all. */
static enum err pack_nvfp4(struct packing_job *job) {
    struct packed_weight *weight = job->weight;
    struct shard_tensor values, scales, divisor;
    uint64_t axes[2], scale_axes[2], ones[2];
    float global;
    enum err err = take_typed(job, ".weight_packed", SAFETENSORS_U8, &values, axes);
    if (err == OK && axes[1] > COLS_MAX) axes[1] = COLS_MAX; /* refused by its product */
    if (err == OK) err = size_weight(job, axes[0], axes[1] * 2);
    if (err == OK) err = take_typed(job, ".weight_scale", SAFETENSORS_F8_E4M3, &scales, scale_axes);
    if (err == OK) err = take_typed(job, ".weight_global_scale", SAFETENSORS_F32, &divisor, ones);
    if (err != OK) return err;
    const uint64_t groups = groups_of(weight->cols, NVFP4_GROUP);
    if (scale_axes[0] != axes[0] || scale_axes[1] != groups)
        return wrong_shape(job, ".weight_scale", scale_axes, axes[0], groups);
    if (ones[0] != 1 || ones[1] != 1) return wrong_shape(job, ".weight_global_scale", ones, 1, 1);
    memcpy(&global, divisor.tensor->at, sizeof global);
    if (!(global > 0.0f && isfinite(global) && isfinite(1.0f / global)))
        return err_set(job->error, ERR_INVALID,
                       "tensor %.*s.weight_global_scale is no divisor above 0",
                       STR_ARGS(job->module));
    weight->packing = PACKING_NVFP4;
    weight->values = values.tensor->at;
    weight->scales = scales.tensor->at;
    weight->scale_cols = (uint32_t)groups;
    weight->factor = 1.0f / global;
    return OK;
}

/* Scales and zero points of (groups, rows); they are alike in both layouts. */
static enum err take_groups(struct packing_job *job) {
    const struct quantisation *how = &job->checkpoint->json->quantisation;
    struct packed_weight *weight = job->weight;
    struct shard_tensor zeros;
    uint64_t each = 32 / how->bits, zero_axes[2], scale_axes[2];
    weight->bits = how->bits;
    weight->zero_add = how->zero_add;
    weight->block_cols = how->group > 0 ? how->group : weight->cols;
    uint64_t groups = groups_of(weight->cols, weight->block_cols);
    enum err err = take_typed(job, ".qzeros", SAFETENSORS_I32, &zeros, zero_axes);
    if (err == OK) err = take_scales(job, ".scales", scale_axes);
    if (err != OK) return err;
    if (weight->rows % each != 0)
        return err_set(job->error, ERR_INVALID,
                       "tensor %.*s.qweight: %u outputs do not fill whole words",
                       STR_ARGS(job->module), weight->rows);
    if (zero_axes[0] != groups || zero_axes[1] != weight->rows / each)
        return wrong_shape(job, ".qzeros", zero_axes, groups, weight->rows / each);
    if (scale_axes[0] != groups || scale_axes[1] != weight->rows)
        return wrong_shape(job, ".scales", scale_axes, groups, weight->rows);
    weight->zeros = zeros.tensor->at;
    return OK;
}

static enum err pack_awq(struct packing_job *job) {
    struct shard_tensor values;
    uint64_t axes[2];
    enum err err = take_typed(job, ".qweight", SAFETENSORS_I32, &values, axes);
    if (err == OK && axes[1] > ROWS_MAX) axes[1] = ROWS_MAX; /* refused by its product */
    if (err == OK) err = size_weight(job, axes[1] * 8, axes[0]);
    if (err != OK) return err;
    job->weight->packing = PACKING_AWQ;
    job->weight->values = values.tensor->at;
    err = take_groups(job);
    if (err == OK) keep_integers(job);
    return err;
}

/* g_idx: each input's group; in order unless the inputs were sorted by their activations. */
static enum err take_order(struct packing_job *job, const char *ending) {
    struct packed_weight *weight = job->weight;
    struct shard_tensor part;
    uint64_t axes[2];
    if (!find(job, ending).file) return OK;
    enum err err = take_typed(job, ending, SAFETENSORS_I32, &part, axes);
    if (err != OK) return err;
    if (axes[0] != weight->cols || axes[1] != 1)
        return wrong_shape(job, ending, axes, weight->cols, 1);
    uint64_t groups = groups_of(weight->cols, weight->block_cols);
    bool is_in_order = true;
    for (size_t i = 0; i < weight->cols; i++) {
        uint32_t group;
        memcpy(&group, part.tensor->at + i * sizeof group, sizeof group);
        if (group >= groups)
            return err_set(job->error, ERR_INVALID, "tensor %.*s: element %zu is not below %llu",
                           STR_ARGS(part.tensor->name), i, (unsigned long long)groups);
        is_in_order = is_in_order && group == i / weight->block_cols;
    }
    if (!is_in_order) weight->groups = part.tensor->at;
    return OK;
}

static enum err pack_gptq(struct packing_job *job) {
    struct shard_tensor values;
    uint64_t axes[2], each = 32 / job->checkpoint->json->quantisation.bits;
    enum err err = take_typed(job, ".qweight", SAFETENSORS_I32, &values, axes);
    if (err == OK && axes[0] > COLS_MAX) axes[0] = COLS_MAX; /* refused by its product */
    if (err == OK) err = size_weight(job, axes[1], axes[0] * each);
    if (err != OK) return err;
    job->weight->packing = PACKING_GPTQ;
    job->weight->values = values.tensor->at;
    err = take_groups(job);
    if (err == OK) err = take_order(job, ".g_idx");
    if (err == OK) keep_integers(job);
    return err;
}

/* ---- matrices of all experts, in one tensor ---- */

/* The shape of one matrix of three axes. */
static enum err size_matrices(struct packing_job *job, uint64_t count, uint64_t rows,
                              uint64_t cols) {
    enum err err = size_weight(job, rows, cols);
    if (err != OK) return err;
    if (count > CONFIG_EXPERTS_MAX || rows == 0 || cols == 0)
        return err_set(job->error, ERR_INVALID, "tensor %.*s: %llu x %llu x %llu is not supported",
                       STR_ARGS(job->module), (unsigned long long)count, (unsigned long long)rows,
                       (unsigned long long)cols);
    job->tensor->axis_count = 3;
    job->tensor->axes[2] = count;
    return OK;
}

static void type_matrices(struct packing_job *job, enum tensor_type type) {
    type_weight(job, type);
    job->tensor->bytes *= job->tensor->axes[2];
}

/* "X_blocks", (experts, rows, blocks, 16), and "X_scales", (experts, rows, blocks). */
static enum err pack_mxfp4(struct packing_job *job) {
    const struct shard_tensor blocks = find(job, "_blocks"), scales = find(job, "_scales");
    if (!blocks.file || !scales.file)
        return err_set(job->error, ERR_INVALID, "tensor %.*s%s is missing", STR_ARGS(job->module),
                       blocks.file ? "_scales" : "_blocks");
    const struct safetensors_tensor *values = blocks.tensor, *powers = scales.tensor;
    const uint32_t block = tensor_type_block_elements(TENSOR_MXFP4);
    if (values->type != SAFETENSORS_U8 || values->axis_count != 4 || values->axes[3] != block / 2)
        return err_set(job->error, ERR_INVALID, "tensor %.*s is no U8 of four axes, the last of %u",
                       STR_ARGS(values->name), block / 2);
    if (powers->type != SAFETENSORS_U8 || powers->axis_count != 3 ||
        memcmp(powers->axes, values->axes, 3 * sizeof *values->axes) != 0)
        return err_set(job->error, ERR_INVALID, "tensor %.*s does not fit its blocks",
                       STR_ARGS(powers->name));
    const uint64_t most = COLS_MAX / block;
    const uint64_t cols = values->axes[2] < most ? values->axes[2] * block : COLS_MAX + 1;
    enum err err = size_matrices(job, values->axes[0], values->axes[1], cols);
    if (err != OK) return err;
    job->weight->packing = PACKING_MXFP4;
    job->weight->values = values->at;
    job->weight->scales = powers->at;
    job->tensor->sources[0] = blocks;
    job->tensor->sources[1] = scales;
    type_matrices(job, TENSOR_MXFP4);
    return OK;
}

enum err folder_turn(struct checkpoint *checkpoint, const struct shard_tensor *from,
                     struct checkpoint_tensor *tensor, struct error *error) {
    const struct safetensors_tensor *source = from->tensor;
    struct packing_job job = {.checkpoint = checkpoint,
                              .module = source->name,
                              .tensor = tensor,
                              .error = error,
                              .weight = arena_alloc(&checkpoint->arena, sizeof *job.weight)};
    if (!job.weight) abort();
    assert(source->axis_count == 3);
    const enum tensor_type type = (enum tensor_type)tensor->type; /* as it was taken */
    enum err err = size_matrices(&job, source->axes[0], source->axes[2], source->axes[1]);
    if (err != OK) return err;
    job.weight->packing = PACKING_TURNED;
    job.weight->values = source->at;
    tensor->sources[0] = *from;
    tensor->at = NULL;
    type_matrices(&job, type);
    return OK;
}

enum err folder_pack(struct checkpoint *checkpoint, struct str module,
                     struct checkpoint_tensor *tensor, struct error *error) {
    struct packing_job job = {
        .checkpoint = checkpoint, .module = module, .tensor = tensor, .error = error};
    job.weight = arena_alloc(&checkpoint->arena, sizeof *job.weight);
    if (!job.weight) abort();
    switch (checkpoint->json->quantisation.method) {
    case QUANTISATION_FP8: return pack_fp8(&job);
    case QUANTISATION_AWQ: return pack_awq(&job);
    case QUANTISATION_GPTQ: return pack_gptq(&job);
    case QUANTISATION_ROWS: return pack_rows(&job);
    case QUANTISATION_INT8: return pack_int8(&job);
    case QUANTISATION_NVFP4: return pack_nvfp4(&job);
    case QUANTISATION_MXFP4: return pack_mxfp4(&job);
    case QUANTISATION_NONE: break;
    }
    return err_set(error, ERR_INVALID, "tensor %.*s: config.json has no quantization_config",
                   STR_ARGS(module));
}
