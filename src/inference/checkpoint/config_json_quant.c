/* SPDX-License-Identifier: Apache-2.0 */

/* quantization_config: how weights were quantised. An unknown value is refused by its name, because
 * the tensors alone do not show everything. */

#include "checkpoint/config_json.h"

#include <string.h>

static enum err refuse(struct error *error, const char *field, struct str text, const char *known) {
    bool is_printable = text.bytes > 0 && text.bytes <= 64;
    for (size_t i = 0; is_printable && i < text.bytes; i++)
        is_printable = text.at[i] >= 0x20 && text.at[i] < 0x7F;
    if (!is_printable) text = STR("?");
    return err_set(error, ERR_INVALID, "quantization_config: %s '%.*s' is not supported (%s)",
                   field, STR_ARGS(text), known);
}

/* -1: one group of all inputs. */
static enum err read_group(struct quantisation *to, const json_t *from, struct error *error) {
    const json_t *group = json_member(from, "group_size");
    to->group = 128;
    if (json_is_integer(group) && json_integer_value(group) == -1) {
        to->group = 0;
        return OK;
    }
    return config_json_count(from, "group_size", CONFIG_FFN_MAX, &to->group, error);
}

static enum err read_awq(struct quantisation *to, const json_t *from, struct error *error) {
    struct str version = json_member_str(from, "version");
    bool has_zeros = true;
    to->method = QUANTISATION_AWQ;
    to->bits = 4;
    if (version.bytes > 0 && !str_is(version, "gemm") && !str_is(version, "GEMM"))
        return refuse(error, "version", version, "gemm is");
    enum err err = config_json_count(from, "bits", 32, &to->bits, error);
    if (err == OK && to->bits != 4)
        err = err_set(error, ERR_INVALID,
                      "quantization_config: awq of %u bits is not supported (4 is)", to->bits);
    if (err == OK) err = config_json_bool(from, "zero_point", &has_zeros, error);
    if (err == OK && !has_zeros)
        err = err_set(error, ERR_INVALID,
                      "quantization_config: awq without zero points is not supported");
    return err == OK ? read_group(to, from, error) : err;
}

static enum err read_gptq(struct quantisation *to, const json_t *from, struct error *error) {
    struct str format = json_member_str(from, "checkpoint_format");
    bool is_marlin = false;
    to->method = QUANTISATION_GPTQ;
    to->zero_add = str_is(format, "gptq_v2") ? 0 : 1;
    if (format.bytes > 0 && !str_is(format, "gptq") && !str_is(format, "gptq_v2"))
        return refuse(error, "checkpoint_format", format, "gptq and gptq_v2 are");
    enum err err = config_json_bool(from, "is_marlin_format", &is_marlin, error);
    if (err == OK && is_marlin)
        err = err_set(error, ERR_INVALID,
                      "quantization_config: is_marlin_format true is not supported");
    to->bits = 4;
    if (err == OK) err = config_json_count(from, "bits", 32, &to->bits, error);
    if (err == OK && to->bits != 4 && to->bits != 8)
        err = err_set(error, ERR_INVALID,
                      "quantization_config: gptq of %u bits is not supported (4 and 8 are)",
                      to->bits);
    return err == OK ? read_group(to, from, error) : err;
}

static enum err read_block(struct quantisation *to, const json_t *block, const char *key,
                           struct error *error) {
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t cols = json_integer_value(json_array_get(block, 1));
    if (json_array_size(block) != 2 || rows < 1 || cols < 1 || rows > CONFIG_FFN_MAX ||
        cols > CONFIG_FFN_MAX)
        return err_set(error, ERR_INVALID, "quantization_config: %s is no pair of 1..%u", key,
                       CONFIG_FFN_MAX);
    to->block_rows = (uint32_t)rows;
    to->block_cols = (uint32_t)cols;
    return OK;
}

static enum err read_fp8(struct quantisation *to, const json_t *from, struct error *error) {
    struct str format = json_member_str(from, "fmt");
    const json_t *block = json_member(from, "weight_block_size");
    to->method = QUANTISATION_FP8;
    if (format.bytes > 0 && !str_is(format, "e4m3")) return refuse(error, "fmt", format, "e4m3 is");
    return block ? read_block(to, block, "weight_block_size", error) : OK;
}

/* The formats of compressed-tensors: how their weights are stored, and which are read. */
static const struct compressed_format {
    const char *name;
    enum quantisation_method method;
    const char *type;
    uint32_t bits, other_bits;
    const char *strategies[3];
    const char *known;
} compressed_formats[] = {
    {"float-quantized",
     QUANTISATION_FP8,
     "float",
     8,
     8,
     {"tensor", "channel", "block"},
     "tensor, channel and block are"},
    {"naive-quantized",
     QUANTISATION_FP8,
     "float",
     8,
     8,
     {"tensor", "channel", "block"},
     "tensor, channel and block are"},
    {"pack-quantized",
     QUANTISATION_ROWS,
     "int",
     4,
     8,
     {"group", "channel", NULL},
     "group and channel are"},
    {"int-quantized",
     QUANTISATION_INT8,
     "int",
     8,
     8,
     {"channel", "tensor", "group"},
     "tensor, channel and group are"},
    {"nvfp4-pack-quantized",
     QUANTISATION_NVFP4,
     "float",
     4,
     4,
     {"tensor_group", NULL, NULL},
     "tensor_group is"},
};

/* The sizes of one group of modules. */
static enum err read_weights(struct quantisation *to, const struct compressed_format *format,
                             const json_t *weights, struct error *error) {
    struct str type = json_member_str(weights, "type");
    struct str strategy = json_member_str(weights, "strategy");
    bool is_known = false;
    to->bits = format->bits;
    enum err err = config_json_count(weights, "num_bits", 32, &to->bits, error);
    if (err != OK) return err;
    if (!str_is(type, format->type) || (to->bits != format->bits && to->bits != format->other_bits))
        return err_set(error, ERR_INVALID,
                       "quantization_config: %s of %.*s with %u bits is not supported (%s of %u "
                       "bits%s)",
                       format->name, STR_ARGS(config_json_shown(type)), to->bits, format->type,
                       format->bits, format->bits < format->other_bits ? " or 8" : "");
    for (int i = 0; i < 3 && format->strategies[i]; i++)
        is_known = is_known || str_is(strategy, format->strategies[i]);
    if (!is_known) return refuse(error, "strategy", strategy, format->known);
    if (str_is(strategy, "block"))
        return read_block(to, json_member(weights, "block_structure"), "block_structure", error);
    if (!str_is(strategy, "group") && !str_is(strategy, "tensor_group")) return OK;
    if (!json_member(weights, "group_size"))
        return err_set(error, ERR_INVALID, "quantization_config: group_size is missing");
    err = config_json_count(weights, "group_size", CONFIG_FFN_MAX, &to->group, error);
    if (err == OK && format->method == QUANTISATION_NVFP4 && to->group != 16)
        err =
            err_set(error, ERR_INVALID,
                    "quantization_config: group_size %u is not supported here (16 is)", to->group);
    return err;
}

/* Groups of modules, whose weights must be stored in one way. */
static enum err read_compressed(struct quantisation *to, const json_t *from, struct error *error) {
    struct str name = json_member_str(from, "format");
    json_t *groups = json_member(from, "config_groups");
    const struct compressed_format *format = NULL;
    for (size_t i = 0; i < sizeof compressed_formats / sizeof *compressed_formats; i++)
        if (str_is(name, compressed_formats[i].name)) format = &compressed_formats[i];
    if (!format)
        return refuse(error, "format", name,
                      "of compressed-tensors, float-quantized, pack-quantized, int-quantized and "
                      "nvfp4-pack-quantized are");
    *to = (struct quantisation){.method = format->method, .bits = format->bits};
    bool is_first = true;
    for (void *at = json_object_iter(groups); at; at = json_object_iter_next(groups, at)) {
        const json_t *group = json_object_iter_value(at), *weights = json_member(group, "weights");
        struct str own = json_member_str(group, "format");
        struct quantisation one = {.method = format->method};
        if (!weights) continue;
        if (own.bytes > 0 && !str_equals(own, name))
            return refuse(error, "format of a group", own, "only that of all is");
        enum err err = read_weights(&one, format, weights, error);
        if (err != OK) return err;
        if (!is_first && (one.bits != to->bits || one.group != to->group ||
                          one.block_rows != to->block_rows || one.block_cols != to->block_cols))
            return err_set(error, ERR_INVALID,
                           "quantization_config: groups with different weights are not supported");
        *to = one;
        is_first = false;
    }
    if (is_first && format->method != QUANTISATION_FP8)
        return err_set(error, ERR_INVALID,
                       "quantization_config: format '%s' is not supported without the weights of "
                       "config_groups",
                       format->name);
    return OK;
}

enum err config_json_read_quantisation(struct json_config *config, const json_t *root,
                                       struct error *error) {
    const json_t *from = json_member(root, "quantization_config");
    struct quantisation *to = &config->quantisation;
    if (!from) return OK;
    struct str method = json_member_str(from, "quant_method");
    if (str_is(method, "awq")) return read_awq(to, from, error);
    if (str_is(method, "gptq")) return read_gptq(to, from, error);
    if (str_is(method, "fp8")) return read_fp8(to, from, error);
    if (str_is(method, "compressed-tensors")) return read_compressed(to, from, error);
    if (str_is(method, "mxfp4")) {
        to->method = QUANTISATION_MXFP4;
        return OK;
    }
    return refuse(error, "quant_method", method,
                  "awq, gptq, fp8, mxfp4 and compressed-tensors are");
}
