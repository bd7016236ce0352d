/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config_json: the numbers of one model from a config.json, as Hugging Face's tools write it.
 *
 * A family is a row of a table: the model_type, the architecture of config.h that it runs as, and
 * the defaults of its configuration class. Both spellings of positions are read: rope_theta with
 * rope_scaling, and rope_parameters. A field that asks for more than quern can run is refused by
 * name.
 *
 * Thread: any.
 * Memory: the struct only, which must not move while its config is used: the config's rope factors
 *     lie in it.
 * Invariant: the config is within the bounds of config.h; the caller fills vocab_rows and
 *     token_count from the embedding. */

#include "checkpoint/config.h"
#include "json/json.h"

enum quantisation_method {
    QUANTISATION_NONE,
    QUANTISATION_FP8,   /* F8_E4M3 weights with scales: compressed-tensors, fp8 */
    QUANTISATION_AWQ,   /* 4 bits, "gemm" order */
    QUANTISATION_GPTQ,  /* 4 or 8 bits */
    QUANTISATION_ROWS,  /* integers of 4 or 8 bits, words of neighbours: pack-quantized */
    QUANTISATION_INT8,  /* int-quantized */
    QUANTISATION_NVFP4, /* 4-bit floats, 16 to an 8-bit scale: nvfp4-pack-quantized */
    QUANTISATION_MXFP4, /* experts in blocks of 4-bit floats with a power of two */
};

/* The facts of quantization_config that the tensors do not show. */
struct quantisation {
    enum quantisation_method method;
    uint32_t bits;       /* AWQ, GPTQ, ROWS */
    uint32_t group;      /* AWQ, GPTQ, ROWS, INT8: inputs that share a scale; 0: all inputs */
    uint32_t zero_add;   /* GPTQ: the first format stores one less than the zero point */
    uint32_t block_rows; /* FP8 with weight_block_size, or in blocks; else 0 */
    uint32_t block_cols;
};

struct json_config {
    struct model_config config;
    uint32_t vocab_size; /* rows of the embedding */
    bool head_is_tied;
    bool norms_lack_one;     /* the weight of an RMSNorm is stored less one (Gemma) */
    bool is_part_of_another; /* the text part of a model that also sees or hears */
    struct quantisation quantisation;
    float rope_factors[CONFIG_HEAD_DIM_MAX / 2]; /* memory of config.rope_factors, if it has any */
};

/* ERR_INVALID with one sentence naming the field that is missing, out of bounds, contradictory or
 * not supported. */
enum err config_json_init(struct json_config *ret_config, const json_t *root,
                          struct error *error) MUST_CHECK;

/* Parts of config_json_init, in config_json_encoder.c, config_json_experts.c, config_json_family.c,
 * config_json_gemma.c, config_json_groups.c, config_json_labels.c, config_json_latent.c,
 * config_json_lfm2.c, config_json_mamba.c,
 * config_json_recurrent.c, config_json_rope.c and config_json_quant.c. `text` is the object with the
 * fields of the text model. */
enum err config_json_read_encoder(struct json_config *json, const json_t *root,
                                  struct error *error) MUST_CHECK;
struct json_rope_defaults {
    float base, base_local;
};
/* What a family's class does not take as others do. */
struct json_rope_needs {
    bool is_by_kind; /* rope_parameters is of each kind of layer, and rope_scaling of one of them */
    bool is_stated;  /* without any field the class turns as no other does: a file states it */
};
enum err config_json_read_rope(struct json_config *json, const json_t *text,
                               const struct json_rope_defaults *defaults,
                               struct json_rope_needs needs, struct error *error) MUST_CHECK;
enum err config_json_read_multipliers(struct model_config *config, const json_t *text,
                                      struct error *error) MUST_CHECK;
enum err config_json_read_unrotated(struct model_config *config, const json_t *text,
                                    struct error *error) MUST_CHECK;
struct family; /* config_json_families.h */
enum err config_json_read_experts(struct model_config *config, const json_t *text,
                                  const struct family *family, struct error *error) MUST_CHECK;
/* The fields of DeepSeek and GLM: groups of experts, how they are chosen, the shared ones. */
enum err config_json_read_groups(struct model_config *config, const json_t *text,
                                 const struct family *family, struct error *error) MUST_CHECK;
enum err config_json_read_latent(struct model_config *config, const json_t *text,
                                 struct error *error) MUST_CHECK;
enum err config_json_read_recurrent(struct model_config *config, const json_t *text,
                                    struct error *error) MUST_CHECK;
enum err config_json_read_lfm2(struct model_config *config, const json_t *text,
                               struct error *error) MUST_CHECK;
enum err config_json_read_labels(struct json_config *json, const json_t *root,
                                 struct error *error) MUST_CHECK;
/* After windows and labels are read. */
enum err config_json_read_modern_bert(struct json_config *json, const json_t *text,
                                      struct error *error) MUST_CHECK;
/* The kind of each layer, and their number, where a layer is one half (Nemotron-H). */
enum err config_json_read_halves(struct model_config *config, const json_t *text,
                                 struct error *error) MUST_CHECK;
enum err config_json_read_nemotron_h(struct model_config *config, const json_t *text,
                                     struct error *error) MUST_CHECK;
enum err config_json_read_falcon_h1(struct model_config *config, const json_t *text,
                                    struct error *error) MUST_CHECK;
/* The factors of Falcon-H1, after the scale of its scores is known. */
enum err config_json_read_factors(struct model_config *config, const json_t *text,
                                  struct error *error) MUST_CHECK;
/* What the sizes of Mamba-2 are called; the defaults are there already. */
struct mamba_keys {
    const char *taps, *groups, *heads, *state, *has_bias;
};
enum err config_json_read_mamba_sizes(struct model_config *config, const json_t *text,
                                      const struct mamba_keys *keys,
                                      struct error *error) MUST_CHECK;
/* Cuts `width` into the heads. */
enum err config_json_cut_mamba_heads(struct model_config *config, const json_t *text,
                                     uint64_t width, struct error *error) MUST_CHECK;
enum err config_json_read_mamba(struct model_config *config, const json_t *text,
                                struct error *error) MUST_CHECK;
enum err config_json_read_gemma(struct model_config *config, const json_t *text,
                                struct error *error) MUST_CHECK;
enum err config_json_read_quantisation(struct json_config *config, const json_t *root,
                                       struct error *error) MUST_CHECK;

/* A file's text for a sentence, or "?" when it is not short and printable. */
struct str config_json_shown(struct str text);
/* Read a field with a default: *value does not change when the field is absent or null. ERR_INVALID
 * for another type or a value out of range. */
enum err config_json_count(const json_t *object, const char *key, uint32_t max, uint32_t *value,
                           struct error *error) MUST_CHECK;
enum err config_json_number(const json_t *object, const char *key, double min, double max,
                            float *value, struct error *error) MUST_CHECK;
enum err config_json_bool(const json_t *object, const char *key, bool *value,
                          struct error *error) MUST_CHECK;
