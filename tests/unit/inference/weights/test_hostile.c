/* SPDX-License-Identifier: Apache-2.0 */
#include "../checkpoint/gguf_builder.h"
#include "checkpoint/config.h"
#include "checkpoint/vocab.h"
#include "plain_store.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* All that is checked before weights are read. */
static enum err check_bytes(const char *bytes, size_t count, struct error *error) {
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    struct model_config config;
    enum err err = gguf_open_bytes(&gguf, bytes, count, error);
    if (err != OK) return err;
    err = checkpoint_vocab_init(&vocab, gguf, error);
    if (err == OK) {
        err = config_init(&config, gguf, vocab.token_count, error);
        struct checkpoint *checkpoint = NULL;
        if (err == OK) err = checkpoint_of_gguf(&checkpoint, gguf, error);
        if (err == OK) err = tensors_check(checkpoint, &config, error);
        checkpoint_close(checkpoint);
        checkpoint_vocab_release(&vocab);
    }
    gguf_close(gguf);
    return err;
}

/* check_bytes that loads the weights too. The bytes are copied to a block of their exact size, so
 * that a sanitizer sees one byte too far. */
static enum err load_bytes(const struct buf *file, struct error *error) {
    char *copy = malloc(file->bytes + 1);
    memcpy(copy, file->at, file->bytes);
    copy = realloc(copy, file->bytes > 0 ? file->bytes : 1);
    struct gguf *gguf;
    struct checkpoint_vocab vocab;
    struct model_config config;
    struct weights *weights = NULL;
    struct plain_store store = {0};
    struct pool *pool;
    enum err err = check_bytes(copy, file->bytes, error);
    if (err == OK) {
        assert_int_equal(gguf_open_bytes(&gguf, copy, file->bytes, error), OK);
        assert_int_equal(checkpoint_vocab_init(&vocab, gguf, error), OK);
        assert_int_equal(config_init(&config, gguf, vocab.token_count, error), OK);
        assert_int_equal(pool_open(&pool, 1, error), OK);
        struct checkpoint *checkpoint;
        assert_int_equal(checkpoint_of_gguf(&checkpoint, gguf, error), OK);
        struct weights_options options = {.checkpoint = checkpoint,
                                          .config = &config,
                                          .store = plain_store_interface(&store),
                                          .pool = pool};
        err = weights_open(&weights, &options, error);
        if (err == OK) err = weights_fill(weights, error);
        weights_close(weights);
        checkpoint_close(checkpoint);
        pool_close(pool);
        checkpoint_vocab_release(&vocab);
        gguf_close(gguf);
    }
    free(copy);
    return err;
}

static void the_sound_file_is_accepted(void **state) {
    (void)state;
    struct buf file;
    struct error error = {0};
    buf_init(&file, 1 << 20);
    build_gguf(&(struct recipe){0}, &file);
    assert_int_equal(load_bytes(&file, &error), OK);
    buf_release(&file);
}

#define TENSOR(...)                                                                                \
    { __VA_ARGS__ }
#define HUGE (UINT64_MAX / 2 + 7)

static const unsigned char nested_array[] = {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char huge_array[] = {4,    0,    0,    0,    0xFF, 0xFF,
                                           0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x3F};
static const unsigned char odd_array[] = {77, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char long_string[] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
static const unsigned char long_element[] = {8, 0, 0,    0,    1,    0,    0,    0, 0, 0,
                                             0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0};
static const unsigned char no_tokens[] = {8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char one_kind[] = {5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
static const unsigned char kind_seven[] = {0, 0, 0, 0, 8, 0, 0, 0, 0, 0,
                                           0, 0, 3, 3, 1, 1, 1, 1, 1, 7};
static const unsigned char one_score[] = {6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3F};
static const unsigned char nan_scores[] = {6, 0, 0, 0,    8,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                           0, 0, 0, 0xC0, 0x7F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                           0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char mixed_heads[] = {4, 0, 0, 0, 2, 0, 0, 0, 0, 0,
                                            0, 0, 4, 0, 0, 0, 2, 0, 0, 0};
static const unsigned char empty_array[] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char bad_bools[] = {7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2};

/* Each breach, and words its sentence must have. */
static const struct {
    const char *says;
    struct recipe recipe;
} breaches[] = {
    /* the header */
    {"does not start with GGUF", {.magic = "GGML"}},
    {"does not start with GGUF", {.magic = "FUGG"}},
    {"version 1 is not", {.version = 1}},
    {"version 4 is not", {.version = 4}},
    {"big-endian", {.version = 0x03000000}},
    {"keys, more than the file can hold", {.pair_count_add = HUGE}},
    {"keys, more than the file can hold", {.pair_count_add = 100000}},
    {"tensors, more than the file can hold", {.tensor_count_add = HUGE}},
    {"tensors, more than the file can hold", {.tensor_count_add = 90000}},
    {"goes past the end of the file", {.pair_count_add = 1}},
    {"the name of tensor 20", {.tensor_count_add = 1}},
    /* keys and values */
    {"general.name is there twice",
     {.extra_key = "general.name", .set_kind = GGUF_STRING, .set_str = "again"}},
    {"key 18 is empty", {.extra_key = "", .set_kind = GGUF_U32}},
    {"key 18 is not printable", {.extra_key = "a\nb", .set_kind = GGUF_U32}},
    {"key 18 is not printable", {.extra_key = "\xFF\xFE", .set_kind = GGUF_U32}},
    {"key x: unknown type 13", {.set_key = "x", .set_kind = 13}},
    {"key x: unknown type 4294967295", {.set_key = "x", .set_kind = UINT32_MAX}},
    {"neither 0 nor 1", {.set_key = "x", .set_kind = GGUF_BOOL, .set_u64 = 2}},
    {"key x: an array of arrays",
     {.set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = nested_array, .set_raw_bytes = 16}},
    {"key x: an array of 4611686018427387903 elements",
     {.set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = huge_array, .set_raw_bytes = 12}},
    {"key x: unknown element type 77",
     {.set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = odd_array, .set_raw_bytes = 13}},
    {"key x: its value goes past",
     {.set_key = "x", .set_kind = GGUF_STRING, .set_raw = long_string, .set_raw_bytes = 8}},
    {"key x: string 0 goes past",
     {.set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = long_element, .set_raw_bytes = 20}},
    {"key x: a bool is neither",
     {.set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = bad_bools, .set_raw_bytes = 14}},
    {"general.alignment is not of type u32",
     {.set_key = "general.alignment", .set_kind = GGUF_U64, .set_u64 = 32}},
    {"general.alignment is no power of two",
     {.set_key = "general.alignment", .set_kind = GGUF_U32, .set_u64 = 0}},
    {"general.alignment is no power of two",
     {.set_key = "general.alignment", .set_kind = GGUF_U32, .set_u64 = 48}},
    {"is no multiple of 2147483648",
     {.set_key = "general.alignment", .set_kind = GGUF_U32, .set_u64 = 0x80000000}},
    /* tensors */
    {"tensor output_norm.weight is there twice",
     {.extra = TENSOR("output_norm.weight", 1, {32}, 0)}},
    {"tensor 0 is 64 bytes long",
     {.change_tensor = "token_embd.weight",
      .change = {.name = "a234567890123456789012345678901234567890123456789012345678901234"}}},
    {"tensor 20 is not printable", {.extra = TENSOR("a\x01", 1, {32}, 0)}},
    {"tensor 20 is not printable", {.extra = TENSOR("\xC3", 1, {32}, 0)}},
    {"has 5 axes", {.change_tensor = "blk.0.attn_q.weight", .change = {.axis_count = 5}}},
    {"has 0 axes", {.change_tensor = "blk.0.attn_q.weight", .has_axis_count = true}},
    {"axes, not 1..4",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axis_count = 0x7FFFFFF}}},
    {"blk.0.attn_q.weight: axis 0 is zero",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axes = {TO_ZERO}}}},
    {"blk.0.attn_q.weight: axis 1 is zero",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axes = {0, TO_ZERO}}}},
    {"retired type 5", {.change_tensor = "blk.0.attn_q.weight", .change = {.type = 5}}},
    {"retired type 31", {.change_tensor = "blk.0.attn_q.weight", .change = {.type = 31}}},
    {"retired type 38", {.change_tensor = "blk.0.attn_q.weight", .change = {.type = 38}}},
    {"retired type 9999", {.change_tensor = "blk.0.attn_q.weight", .change = {.type = 9999}}},
    {"no multiple of the 32 of a Q8_0",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axes = {33}}}},
    {"no multiple of the 256 of a Q4_K",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.type = 12}}},
    {"product of its axes overflows",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axes = {1ull << 62, 1ull << 62}}}},
    {"product of its axes overflows",
     {.change_tensor = "blk.0.attn_q.weight",
      .change = {.axis_count = 4, .axes = {1 << 16, 1 << 16, 1 << 16, 1 << 16}}}},
    {"product of its axes overflows",
     {.change_tensor = "blk.0.attn_q.weight",
      .change = {.axes = {1ull << 31, 1ull << 31}, .type = 28}}},
    {"go past the end of the file",
     {.change_tensor = "blk.0.attn_q.weight", .change = {.axes = {32, 1ull << 40}}}},
    {"go past the end of the file",
     {.change_tensor = "output_norm.weight", .offset_add = UINT64_MAX - 31 - 32 * 1024 * 1024}},
    {"go past the end of the file",
     {.change_tensor = "output_norm.weight", .offset_add = 32 << 20}},
    {"go past the end of the file", {.no_data = true}},
    {"is no multiple of 32", {.change_tensor = "blk.0.attn_q.weight", .offset_add = 1}},
    {"overlap", {.change_tensor = "blk.0.attn_q.weight", .offset_add = 32}},
    {"overlap", {.change_tensor = "blk.0.attn_q.weight", .offset_add = (uint64_t)-32}},
    /* the architecture and its numbers */
    {"general.architecture is missing", {.drop_key = "general.architecture"}},
    {"general.architecture is of type u32",
     {.set_key = "general.architecture", .set_kind = GGUF_U32}},
    {"architecture 'mamba' is not supported",
     {.set_key = "general.architecture", .set_kind = GGUF_STRING, .set_str = "mamba"}},
    {"architecture '?' is not supported",
     {.set_key = "general.architecture", .set_kind = GGUF_STRING, .set_str = "a\033[31m"}},
    {"qwen2.block_count is missing",
     {.set_key = "general.architecture", .set_kind = GGUF_STRING, .set_str = "qwen2"}},
    {"split.count is 3", {.set_key = "split.count", .set_kind = GGUF_U16, .set_u64 = 3}},
    {"mixture of 8 experts", {.set_key = "llama.expert_count", .set_kind = GGUF_U32, .set_u64 = 8}},
    {"qwen3moe.expert_count is missing", {.experts = 4, .drop_key = "qwen3moe.expert_count"}},
    {"qwen3moe.expert_count is 4096, not 1..1024",
     {.experts = 4, .set_key = "qwen3moe.expert_count", .set_kind = GGUF_U32, .set_u64 = 4096}},
    {"qwen3moe.expert_used_count is 5, not 1..4",
     {.experts = 4, .set_key = "qwen3moe.expert_used_count", .set_kind = GGUF_U32, .set_u64 = 5}},
    {"qwen3moe.expert_used_count is missing",
     {.experts = 4, .drop_key = "qwen3moe.expert_used_count"}},
    {"qwen3moe.expert_feed_forward_length is 0",
     {.experts = 4, .set_key = "qwen3moe.expert_feed_forward_length", .set_kind = GGUF_U32}},
    {"tensor blk.0.ffn_gate_inp.weight has 2 axes, 32 x 4, instead of 32 x 3",
     {.experts = 4, .set_key = "qwen3moe.expert_count", .set_kind = GGUF_U32, .set_u64 = 3}},
    {"tensor blk.0.ffn_gate_exps.weight has 3 axes, 32 x 64 x 4, instead of 32 x 32 x 4",
     {.experts = 4,
      .set_key = "qwen3moe.expert_feed_forward_length",
      .set_kind = GGUF_U32,
      .set_u64 = 32}},
    {"tensor blk.1.ffn_down_exps.weight has 2 axes",
     {.experts = 4, .change_tensor = "blk.1.ffn_down_exps.weight", .change = {.axis_count = 2}}},
    {"tensor blk.0.ffn_gate_inp.weight is missing",
     {.experts = 4, .drop_tensor = "blk.0.ffn_gate_inp.weight"}},
    {"tensor blk.1.ffn_up_exps.weight is missing",
     {.experts = 4, .drop_tensor = "blk.1.ffn_up_exps.weight"}},
    {"tensor blk.0.ffn_up.weight is not part of architecture qwen3moe",
     {.experts = 4, .extra = {"blk.0.ffn_up.weight", 2, {32, 64}, 8}}},
    {"layer 1 has both ffn_gate_up_exps.weight and",
     {.experts = 4, .extra = {"blk.1.ffn_gate_up_exps.weight", 3, {32, 128, 4}, 8}}},
    {"a layer has an expert both alone and in a tensor of all",
     {.experts = 4, .extra = {"blk.1.ffn_down.2.weight", 2, {64, 32}, 8}}},
    {"llama.block_count is missing", {.drop_key = "llama.block_count"}},
    {"llama.block_count is 0", {.set_key = "llama.block_count", .set_kind = GGUF_U32}},
    {"llama.block_count is 4294967295",
     {.set_key = "llama.block_count", .set_kind = GGUF_U32, .set_u64 = UINT32_MAX}},
    {"llama.block_count is -1",
     {.set_key = "llama.block_count", .set_kind = GGUF_I32, .set_u64 = UINT32_MAX}},
    {"llama.block_count is no integer",
     {.set_key = "llama.block_count", .set_kind = GGUF_F32, .set_f32 = 2}},
    {"llama.block_count is no integer",
     {.set_key = "llama.block_count", .set_kind = GGUF_STRING, .set_str = "2"}},
    {"llama.block_count is no integer",
     {.set_key = "llama.block_count", .set_kind = GGUF_U64, .set_u64 = UINT64_MAX}},
    {"blk.2.attn_norm.weight is missing",
     {.set_key = "llama.block_count", .set_kind = GGUF_U32, .set_u64 = 3}},
    {"tensor blk.1.attn_norm.weight is not part of",
     {.set_key = "llama.block_count", .set_kind = GGUF_U8, .set_u64 = 1}},
    {"llama.embedding_length is missing", {.drop_key = "llama.embedding_length"}},
    {"llama.embedding_length is 70000",
     {.set_key = "llama.embedding_length", .set_kind = GGUF_U32, .set_u64 = 70000}},
    {"token_embd.weight is 32 x 8",
     {.set_key = "llama.embedding_length", .set_kind = GGUF_U32, .set_u64 = 64}},
    {"llama.context_length is 0", {.set_key = "llama.context_length", .set_kind = GGUF_U64}},
    {"llama.feed_forward_length is missing", {.drop_key = "llama.feed_forward_length"}},
    {"llama.attention.head_count is missing", {.drop_key = "llama.attention.head_count"}},
    {"llama.attention.head_count is 0",
     {.set_key = "llama.attention.head_count", .set_kind = GGUF_U32}},
    {"width of 32 cannot be cut into 6 heads",
     {.set_key = "llama.attention.head_count", .set_kind = GGUF_U32, .set_u64 = 6}},
    {"4 attention heads cannot share 3",
     {.set_key = "llama.attention.head_count_kv", .set_kind = GGUF_U32, .set_u64 = 3}},
    {"4 attention heads cannot share 8",
     {.set_key = "llama.attention.head_count_kv", .set_kind = GGUF_U32, .set_u64 = 8}},
    {"head_count_kv is 0", {.set_key = "llama.attention.head_count_kv", .set_kind = GGUF_U32}},
    {"head_count differs between layers",
     {.set_key = "llama.attention.head_count",
      .set_kind = GGUF_ARRAY,
      .set_raw = mixed_heads,
      .set_raw_bytes = 20}},
    {"head_count is 0",
     {.set_key = "llama.attention.head_count",
      .set_kind = GGUF_ARRAY,
      .set_raw = empty_array,
      .set_raw_bytes = 12}},
    {"heads of 2 are not supported",
     {.set_key = "llama.attention.head_count", .set_kind = GGUF_U32, .set_u64 = 16}},
    {"key_length is 4096",
     {.set_key = "llama.attention.key_length", .set_kind = GGUF_U32, .set_u64 = 4096}},
    {"value_length is 16, not the key length 8",
     {.set_key = "llama.attention.value_length", .set_kind = GGUF_U32, .set_u64 = 16}},
    {"blk.0.attn_q.weight has 2 axes, 32 x 32, instead of 32 x 64",
     {.set_key = "llama.attention.key_length", .set_kind = GGUF_U32, .set_u64 = 16}},
    {"epsilon is missing", {.drop_key = "llama.attention.layer_norm_rms_epsilon"}},
    {"epsilon is not a finite number",
     {.set_key = "llama.attention.layer_norm_rms_epsilon", .set_kind = GGUF_F32, .set_f32 = NAN}},
    {"epsilon is not a finite number",
     {.set_key = "llama.attention.layer_norm_rms_epsilon",
      .set_kind = GGUF_F64,
      .set_u64 = 0x7FE0000000000000}},
    {"epsilon is -1",
     {.set_key = "llama.attention.layer_norm_rms_epsilon", .set_kind = GGUF_F32, .set_f32 = -1}},
    {"epsilon is 0", {.set_key = "llama.attention.layer_norm_rms_epsilon", .set_kind = GGUF_F32}},
    {"epsilon is of type u32",
     {.set_key = "llama.attention.layer_norm_rms_epsilon", .set_kind = GGUF_U32, .set_u64 = 1}},
    {"rope.freq_base is 0", {.set_key = "llama.rope.freq_base", .set_kind = GGUF_F32}},
    {"rope.freq_base is not a finite",
     {.set_key = "llama.rope.freq_base", .set_kind = GGUF_F32, .set_f32 = INFINITY}},
    {"rope.dimension_count is 4",
     {.set_key = "llama.rope.dimension_count", .set_kind = GGUF_U32, .set_u64 = 4}},
    {"rope.scaling.type yarn is not supported",
     {.set_key = "llama.rope.scaling.type", .set_kind = GGUF_STRING, .set_str = "yarn"}},
    {"rope.scaling.type longrope is not supported",
     {.set_key = "llama.rope.scaling.type", .set_kind = GGUF_STRING, .set_str = "longrope"}},
    {"rope.scaling.type is unknown",
     {.set_key = "llama.rope.scaling.type", .set_kind = GGUF_STRING, .set_str = "dynamic"}},
    {"rope.scaling.factor is -8",
     {.set_key = "llama.rope.scaling.factor", .set_kind = GGUF_F32, .set_f32 = -8}},
    {"attention.scale is not above 0",
     {.set_key = "llama.attention.scale", .set_kind = GGUF_F32, .set_f32 = -1}},
    {"final_logit_softcapping is not within",
     {.set_key = "llama.final_logit_softcapping", .set_kind = GGUF_F32, .set_f32 = -30}},
    {"rope_freqs.weight is no F32 vector of 4", {.extra = TENSOR("rope_freqs.weight", 1, {5}, 0)}},
    {"rope_freqs.weight: factor 0",
     {.extra = TENSOR("rope_freqs.weight", 1, {4}, 0), .poison_tensor = "rope_freqs.weight"}},
    /* the vocabulary */
    {"tokenizer.ggml.model is missing", {.drop_key = "tokenizer.ggml.model"}},
    {"tokenizer.ggml.tokens is missing", {.drop_key = "tokenizer.ggml.tokens"}},
    {"tokenizer.ggml.tokens is missing or empty",
     {.set_key = "tokenizer.ggml.tokens",
      .set_kind = GGUF_ARRAY,
      .set_raw = no_tokens,
      .set_raw_bytes = 12}},
    {"tokenizer.ggml.tokens is no array of strings",
     {.set_key = "tokenizer.ggml.tokens", .set_kind = GGUF_U32}},
    {"tokenizer.ggml.merges is no array of strings",
     {.set_key = "tokenizer.ggml.merges",
      .set_kind = GGUF_ARRAY,
      .set_raw = one_kind,
      .set_raw_bytes = 16}},
    {"token_type has 1 elements for 8",
     {.set_key = "tokenizer.ggml.token_type",
      .set_kind = GGUF_ARRAY,
      .set_raw = one_kind,
      .set_raw_bytes = 16}},
    {"token 7 has no kind",
     {.set_key = "tokenizer.ggml.token_type",
      .set_kind = GGUF_ARRAY,
      .set_raw = kind_seven,
      .set_raw_bytes = 20}},
    {"scores has 1 elements for 8",
     {.set_key = "tokenizer.ggml.scores",
      .set_kind = GGUF_ARRAY,
      .set_raw = one_score,
      .set_raw_bytes = 16}},
    {"the score of token 1 is no finite number",
     {.set_key = "tokenizer.ggml.scores",
      .set_kind = GGUF_ARRAY,
      .set_raw = nan_scores,
      .set_raw_bytes = 44}},
    {"eos_token_id is 8, but there are 8",
     {.set_key = "tokenizer.ggml.eos_token_id", .set_kind = GGUF_U32, .set_u64 = 8}},
    {"eos_token_id is -2",
     {.set_key = "tokenizer.ggml.eos_token_id", .set_kind = GGUF_I64, .set_u64 = (uint64_t)-2}},
    {"eos_token_id is no integer",
     {.set_key = "tokenizer.ggml.eos_token_id", .set_kind = GGUF_STRING, .set_str = "1"}},
    {"chat_template is of type u32, not a string",
     {.set_key = "tokenizer.chat_template", .set_kind = GGUF_U32}},
    {"token_embd.weight has 7 rows for 8 tokens",
     {.change_tensor = "token_embd.weight", .change = {.axes = {32, 7}}}},
    /* the set of tensors */
    {"tensor token_embd.weight is missing", {.drop_tensor = "token_embd.weight"}},
    {"tensor output_norm.weight is missing", {.drop_tensor = "output_norm.weight"}},
    {"tensor blk.1.ffn_down.weight is missing", {.drop_tensor = "blk.1.ffn_down.weight"}},
    {"tensor blk.0.attn_v.weight is missing", {.drop_tensor = "blk.0.attn_v.weight"}},
    {"tensor blk.0.attn_q.bias is not part of", {.extra = TENSOR("blk.0.attn_q.bias", 1, {32}, 0)}},
    {"tensor blk.2.attn_norm.weight is not part of",
     {.extra = TENSOR("blk.2.attn_norm.weight", 1, {32}, 0)}},
    {"tensor blk.00.attn_norm.weight is not part of",
     {.extra = TENSOR("blk.00.attn_norm.weight", 1, {32}, 0)}},
    {"tensor surprise is not part of", {.extra = TENSOR("surprise", 1, {32}, 0)}},
    {"has both attn_qkv.weight", {.extra = TENSOR("blk.0.attn_qkv.weight", 2, {32, 64}, 8)}},
    {"output.weight has 2 axes, 32 x 16, instead of 32 x 8",
     {.extra = TENSOR("output.weight", 2, {32, 16}, 8)}},
    {"blk.0.ffn_down.weight has 3 axes",
     {.change_tensor = "blk.0.ffn_down.weight", .change = {.axis_count = 3, .axes = {0, 0, 1}}}},
    {"blk.0.ffn_gate.weight has 2 axes, 32 x 32, instead of 32 x 64",
     {.change_tensor = "blk.0.ffn_gate.weight", .change = {.axes = {0, 32}}}},
    {"type I8 is not supported here",
     {.change_tensor = "blk.0.ffn_gate.weight", .change = {.type = 24}}},
    {"type Q8_0 is not supported here",
     {.change_tensor = "output_norm.weight", .change = {.type = 8}}},
    {"blk.1.ffn_norm.weight: element 0 is no finite", {.poison_tensor = "blk.1.ffn_norm.weight"}},
};

static void every_breach_is_refused_with_a_sentence_that_names_it(void **state) {
    (void)state;
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof breaches / sizeof *breaches; i++) {
        struct buf file;
        struct error error = {0};
        buf_init(&file, 1 << 24);
        build_gguf(&breaches[i].recipe, &file);
        enum err err = load_bytes(&file, &error);
        if (err != ERR_INVALID || !strstr(error.text, breaches[i].says)) {
            print_message("# breach %zu: wanted \"%s\", got %s: %s\n", i, breaches[i].says,
                          err_name(err), error.text);
            wrong++;
        }
        buf_release(&file);
    }
    assert_int_equal(wrong, 0);
    assert_true(sizeof breaches / sizeof *breaches >= 60);
}

static void what_would_take_long_to_read_is_refused_by_its_size(void **state) {
    (void)state;
    struct buf file;
    struct error error = {0};
    char key[1026];
    memset(key, 'k', 1025);
    key[1025] = '\0';
    buf_init(&file, 1 << 26);
    build_gguf(&(struct recipe){.extra_key = key, .set_kind = GGUF_U32}, &file);
    assert_int_equal(load_bytes(&file, &error), ERR_INVALID);
    assert_string_equal(error.text, "key 18 is 1025 bytes long, more than 1024");
    buf_clear(&file);
    size_t bytes = 12 + (1 << 24) + 1;
    unsigned char *array = calloc(1, bytes);
    memcpy(array, (unsigned char[]){7, 0, 0, 0, 1, 0, 0, 1}, 8); /* (1 << 24) + 1 bools */
    build_gguf(
        &(struct recipe){
            .set_key = "x", .set_kind = GGUF_ARRAY, .set_raw = array, .set_raw_bytes = bytes},
        &file);
    assert_int_equal(load_bytes(&file, &error), ERR_INVALID);
    assert_string_equal(error.text, "key x: an array of 16777217 elements, more than 16777216");
    free(array);
    buf_release(&file);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    struct buf file;
    buf_init(&file, 1 << 20);
    build_gguf(&(struct recipe){0}, &file);
    /* The last tensor is a norm of 128 bytes, so that the file ends in no padding. */
    for (size_t bytes = 0; bytes < file.bytes; bytes++) {
        struct error error = {0};
        char *copy = malloc(bytes > 0 ? bytes : 1);
        memcpy(copy, file.at, bytes);
        assert_int_equal(check_bytes(copy, bytes, &error), ERR_INVALID);
        assert_true(strlen(error.text) > 10);
        free(copy);
        if (bytes > 4096) bytes += 37;
    }
    buf_release(&file);
}

/* Every byte of the descriptions takes a few other values. The result may be a sound file, or a
 * refusal with a sentence, but not a crash. */
static void any_changed_byte_is_survived(void **state) {
    (void)state;
    struct buf file;
    buf_init(&file, 1 << 20);
    build_gguf(&(struct recipe){.no_data = true}, &file);
    size_t header_bytes = file.bytes;
    buf_clear(&file);
    build_gguf(&(struct recipe){0}, &file);
    static const unsigned char masks[] = {0x01, 0x20, 0x80, 0xFF};
    size_t refused = 0;
    for (size_t at = 0; at < header_bytes; at++)
        for (size_t i = 0; i < sizeof masks; i++) {
            struct error error = {0};
            file.at[at] = (char)(file.at[at] ^ masks[i]);
            if (check_bytes(file.at, file.bytes, &error) != OK) {
                refused++;
                assert_true(strlen(error.text) > 10);
            }
            file.at[at] = (char)(file.at[at] ^ masks[i]);
        }
    assert_true(refused > header_bytes);
    buf_release(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sound_file_is_accepted),
        cmocka_unit_test(every_breach_is_refused_with_a_sentence_that_names_it),
        cmocka_unit_test(what_would_take_long_to_read_is_refused_by_its_size),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(any_changed_byte_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
