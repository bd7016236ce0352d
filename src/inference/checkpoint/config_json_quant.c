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

static enum err read_fp8(struct quantisation *to, const json_t *from, struct error *error) {
    struct str format = json_member_str(from, "fmt");
    const json_t *block = json_member(from, "weight_block_size");
    to->method = QUANTISATION_FP8;
    if (format.bytes > 0 && !str_is(format, "e4m3")) return refuse(error, "fmt", format, "e4m3 is");
    if (!block) return OK;
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t cols = json_integer_value(json_array_get(block, 1));
    if (json_array_size(block) != 2 || rows < 1 || cols < 1 || rows > CONFIG_FFN_MAX ||
        cols > CONFIG_FFN_MAX)
        return err_set(error, ERR_INVALID,
                       "quantization_config: weight_block_size is no pair of 1..%u",
                       CONFIG_FFN_MAX);
    to->block_rows = (uint32_t)rows;
    to->block_cols = (uint32_t)cols;
    return OK;
}

/* Groups of modules, each with how its weights are stored. */
static enum err read_compressed(struct quantisation *to, const json_t *from, struct error *error) {
    struct str format = json_member_str(from, "format");
    json_t *groups = json_member(from, "config_groups");
    to->method = QUANTISATION_FP8;
    if (!str_is(format, "float-quantized") && !str_is(format, "naive-quantized"))
        return refuse(error, "format", format, "of compressed-tensors, float-quantized is");
    for (void *at = json_object_iter(groups); at; at = json_object_iter_next(groups, at)) {
        const json_t *weights = json_member(json_object_iter_value(at), "weights");
        struct str type = json_member_str(weights, "type");
        struct str strategy = json_member_str(weights, "strategy");
        uint32_t bits = 8;
        if (!weights) continue;
        enum err err = config_json_count(weights, "num_bits", 32, &bits, error);
        if (err != OK) return err;
        if (!str_is(type, "float") || bits != 8)
            return refuse(error, "weights of type", type, "float of 8 bits is");
        if (!str_is(strategy, "tensor") && !str_is(strategy, "channel"))
            return refuse(error, "strategy", strategy, "tensor and channel are");
    }
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
