/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gguf_builder: a small sound llama model as GGUF bytes, with what a test wants wrong in it.
 *
 * The model has 2 layers, a width of 32, 4 heads of 8 over 2 key-value heads, a feed-forward of 64
 * and 8 tokens: every tensor there must be, and nothing more. A recipe may have it wider and its
 * matrices of another type, or with experts: then it is a qwen3moe, and its keys are so named. */

#include "../../../block_scales.h"
#include "base/buf.h"
#include "base/rng.h"
#include "checkpoint/gguf.h"
#include "kernels/quant.h"

#include <stdio.h>
#include <string.h>

/* In a change, where zero means "as it was". */
#define TO_ZERO 77777

struct recipe_tensor {
    const char *name;
    uint32_t axis_count;
    uint64_t axes[4];
    uint32_t type;
};

/* Differences from the sound file. All zero is the sound file. */
struct recipe {
    const char *drop_key;
    const char *set_key;   /* replaces the key, or adds it */
    const char *extra_key; /* a second one, of the same kind and value */
    uint32_t set_kind;
    uint64_t set_u64; /* the value's bytes, for all kinds but strings and f32 */
    float set_f32;
    const char *set_str;
    const void *set_raw; /* all bytes of the value instead */
    size_t set_raw_bytes;

    const char *drop_tensor;
    const char *change_tensor;   /* this one gets: */
    struct recipe_tensor change; /* …what is not zero in here */
    bool has_axis_count;         /* …change.axis_count, even when zero */
    uint64_t offset_add;         /* …added to its offset */
    struct recipe_tensor extra;  /* one more, when named */
    bool no_data;                /* descriptions only */
    const char *poison_tensor;   /* its first float becomes NaN */
    uint32_t version;            /* 0: 3 */
    const char *magic;           /* NULL: GGUF */
    uint64_t pair_count_add, tensor_count_add;

    uint32_t times;   /* 0 is 1: all widths so many times as large */
    uint32_t type;    /* 0: Q8_0; of the matrices */
    bool as_f32;      /* the values of that type, stored in float32 */
    uint32_t experts; /* 0: a llama; else a qwen3moe of so many, of which a token uses two */
};

static inline uint32_t times(const struct recipe *recipe, uint32_t width) {
    return recipe->times ? recipe->times * width : width;
}

static inline void put(struct buf *buf, const void *value, size_t bytes) {
    buf_add(buf, value, bytes);
}

static inline void put_u32(struct buf *buf, uint32_t value) {
    put(buf, &value, sizeof value);
}

static inline void put_u64(struct buf *buf, uint64_t value) {
    put(buf, &value, sizeof value);
}

static inline void put_str(struct buf *buf, const char *text) {
    put_u64(buf, strlen(text));
    buf_add_text(buf, text);
}

/* The pairs of the file under construction. */
struct pairs {
    const struct recipe *recipe;
    struct buf bytes;
    uint64_t count;
    bool was_set;
};

static inline void put_set_value(struct pairs *pairs, const char *key) {
    const struct recipe *recipe = pairs->recipe;
    static const unsigned char bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    put_str(&pairs->bytes, key);
    put_u32(&pairs->bytes, recipe->set_kind);
    if (recipe->set_raw)
        put(&pairs->bytes, recipe->set_raw, recipe->set_raw_bytes);
    else if (recipe->set_str)
        put_str(&pairs->bytes, recipe->set_str);
    else if (recipe->set_kind == GGUF_F32)
        put(&pairs->bytes, &recipe->set_f32, sizeof recipe->set_f32);
    else
        put(&pairs->bytes, &recipe->set_u64,
            recipe->set_kind < GGUF_KIND_COUNT ? bytes[recipe->set_kind] : 0);
    pairs->count++;
}

/* Whether the sound value of the key is to be written; writes the recipe's instead when it has one.
 */
static inline bool begins(struct pairs *pairs, const char *key, uint32_t kind) {
    const struct recipe *recipe = pairs->recipe;
    char other[96];
    if (recipe->experts > 0 && strncmp(key, "llama.", 6) == 0) {
        snprintf(other, sizeof other, "qwen3moe.%s", key + 6);
        key = other;
    }
    if (recipe->drop_key && strcmp(recipe->drop_key, key) == 0) return false;
    if (recipe->set_key && strcmp(recipe->set_key, key) == 0 && !pairs->was_set) {
        pairs->was_set = true;
        put_set_value(pairs, key);
        return false;
    }
    put_str(&pairs->bytes, key);
    put_u32(&pairs->bytes, kind);
    pairs->count++;
    return true;
}

static inline void pair_u32(struct pairs *pairs, const char *key, uint32_t value) {
    if (begins(pairs, key, GGUF_U32)) put_u32(&pairs->bytes, value);
}

static inline void pair_str(struct pairs *pairs, const char *key, const char *value) {
    if (begins(pairs, key, GGUF_STRING)) put_str(&pairs->bytes, value);
}

static inline void put_vocabulary(struct pairs *pairs) {
    static const char *const tokens[] = {"<s>", "</s>", "a", "b", "c", "ab", "bc", "abc"};
    static const char *const merges[] = {"a b", "b c", "ab c"};
    pair_str(pairs, "tokenizer.ggml.model", "gpt2");
    pair_str(pairs, "tokenizer.ggml.pre", "llama-bpe");
    if (begins(pairs, "tokenizer.ggml.tokens", GGUF_ARRAY)) {
        put_u32(&pairs->bytes, GGUF_STRING);
        put_u64(&pairs->bytes, 8);
        for (int i = 0; i < 8; i++) put_str(&pairs->bytes, tokens[i]);
    }
    if (begins(pairs, "tokenizer.ggml.token_type", GGUF_ARRAY)) {
        put_u32(&pairs->bytes, GGUF_I32);
        put_u64(&pairs->bytes, 8);
        for (int i = 0; i < 8; i++) put_u32(&pairs->bytes, i < 2 ? 3 : 1);
    }
    if (begins(pairs, "tokenizer.ggml.merges", GGUF_ARRAY)) {
        put_u32(&pairs->bytes, GGUF_STRING);
        put_u64(&pairs->bytes, 3);
        for (int i = 0; i < 3; i++) put_str(&pairs->bytes, merges[i]);
    }
    pair_u32(pairs, "tokenizer.ggml.bos_token_id", 0);
    pair_u32(pairs, "tokenizer.ggml.eos_token_id", 1);
    pair_str(pairs, "tokenizer.chat_template", "{{ messages }}");
}

static inline void put_pairs(struct pairs *pairs) {
    const struct recipe *recipe = pairs->recipe;
    pair_str(pairs, "general.architecture", recipe->experts > 0 ? "qwen3moe" : "llama");
    pair_str(pairs, "general.name", "grain");
    pair_u32(pairs, "llama.block_count", 2);
    pair_u32(pairs, "llama.context_length", 64);
    pair_u32(pairs, "llama.embedding_length", times(recipe, 32));
    pair_u32(pairs, "llama.feed_forward_length", times(recipe, 64));
    pair_u32(pairs, "llama.attention.head_count", 4);
    pair_u32(pairs, "llama.attention.head_count_kv", 2);
    float eps = 1e-5f, base = 10000.0f;
    if (begins(pairs, "llama.attention.layer_norm_rms_epsilon", GGUF_F32))
        put(&pairs->bytes, &eps, sizeof eps);
    if (begins(pairs, "llama.rope.freq_base", GGUF_F32)) put(&pairs->bytes, &base, sizeof base);
    if (recipe->experts > 0) {
        pair_u32(pairs, "llama.expert_count", recipe->experts);
        pair_u32(pairs, "llama.expert_used_count", 2);
        pair_u32(pairs, "llama.expert_feed_forward_length", times(recipe, 64));
    }
    put_vocabulary(pairs);
    if (recipe->set_key && !pairs->was_set) put_set_value(pairs, recipe->set_key);
    if (recipe->extra_key) put_set_value(pairs, recipe->extra_key);
}

/* The descriptions and the data of the file under construction. */
struct tensors {
    const struct recipe *recipe;
    struct buf descriptions;
    struct buf data;
    uint64_t count;
    struct rng rng;
};

/* Gives the scales in a block of random bytes small values. */
static inline void calm_block(uint32_t type, unsigned char *block) {
    const struct block_scales *scales = block_scales_find(type);
    for (uint32_t h = 0; scales && h < scales->count; h++)
        block[scales->at + 2 * h + 1] = scales->high;
    if (type == TENSOR_MXFP4 || type == TENSOR_MXFP4_PAIRS) block[0] = 122;
    /* Floats need both signs. */
    if (type == TENSOR_F16) block[1] = (unsigned char)(0x24 | (block[1] & 0x80u));
    if (type == TENSOR_BF16) block[1] = (unsigned char)(0x3C | (block[1] & 0x80u));
}

/* The weights of another file in a type of blocks. */
static inline void put_values(struct tensors *tensors, uint32_t type, const unsigned char *block) {
    float values[256];
    uint32_t count = tensor_type_block_elements((enum tensor_type)type);
    quant_row_to_f32((enum tensor_type)type, block, count, values);
    buf_add(&tensors->data, (const char *)values, count * sizeof *values);
}

static inline void put_data(struct tensors *tensors, const struct recipe_tensor *tensor) {
    const struct gguf_type *type = gguf_type_find(tensor->type);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->axis_count; i++) elements *= tensor->axes[i];
    uint64_t bytes = type ? elements / type->block_elements * type->block_bytes : 0;
    if (bytes > 1 << 20) bytes = 1 << 20; /* bytes that a wrong description claims do not exist */
    size_t begin = tensors->data.bytes;
    for (uint64_t i = 0; i < bytes;) {
        /* Random, but with every float and every scale small. */
        unsigned char block[256];
        uint64_t part = type->block_bytes < bytes - i ? type->block_bytes : bytes - i;
        for (uint64_t j = 0; j < part; j++) block[j] = (unsigned char)rng_next(&tensors->rng);
        if (tensor->type == 0 && part == 4) block[3] = 0x3C;
        if (part == type->block_bytes) calm_block(tensor->type, block);
        if (tensors->recipe->as_f32 && tensor->axis_count >= 2)
            put_values(tensors, tensor->type, block);
        else
            buf_add(&tensors->data, (const char *)block, part);
        i += part;
    }
    const char *poisoned = tensors->recipe->poison_tensor;
    if (poisoned && strcmp(poisoned, tensor->name) == 0)
        memcpy(tensors->data.at + begin, "\0\0\xC0\x7F", 4);
    while (tensors->data.bytes % 32 != 0) buf_add_byte(&tensors->data, 0);
}

static inline void put_tensor(struct tensors *tensors, struct recipe_tensor tensor) {
    const struct recipe *recipe = tensors->recipe;
    if (recipe->drop_tensor && strcmp(recipe->drop_tensor, tensor.name) == 0) return;
    uint64_t offset = tensors->data.bytes;
    const char *name = tensor.name;
    if (recipe->change_tensor && strcmp(recipe->change_tensor, name) == 0) {
        const struct recipe_tensor *change = &recipe->change;
        if (change->name) name = change->name;
        if (change->axis_count || recipe->has_axis_count) tensor.axis_count = change->axis_count;
        for (int i = 0; i < 4; i++)
            if (change->axes[i]) tensor.axes[i] = change->axes[i] == TO_ZERO ? 0 : change->axes[i];
        if (change->type) tensor.type = change->type == TO_ZERO ? 0 : change->type;
        offset += recipe->offset_add;
    }
    put_str(&tensors->descriptions, name);
    put_u32(&tensors->descriptions, tensor.axis_count);
    for (uint32_t i = 0; i < tensor.axis_count && i < 16; i++)
        put_u64(&tensors->descriptions, i < 4 ? tensor.axes[i] : 1);
    put_u32(&tensors->descriptions, recipe->as_f32 ? 0 : tensor.type);
    put_u64(&tensors->descriptions, offset);
    tensors->count++;
    if (tensor.axis_count <= 4) put_data(tensors, &tensor);
}

/* What a layer of a qwen3moe has in the place of a feed-forward, and the norms of its heads. */
static inline void put_experts(struct tensors *tensors, int layer, uint32_t type) {
    const struct recipe *recipe = tensors->recipe;
    const uint64_t width = times(recipe, 32), ffn = times(recipe, 64), experts = recipe->experts;
    const struct recipe_tensor all[] = {
        {"attn_q_norm.weight", 1, {width / 4}, 0},
        {"attn_k_norm.weight", 1, {width / 4}, 0},
        {"ffn_gate_inp.weight", 2, {width, experts}, 0},
        {"ffn_gate_exps.weight", 3, {width, ffn, experts}, type},
        {"ffn_up_exps.weight", 3, {width, ffn, experts}, type},
        {"ffn_down_exps.weight", 3, {ffn, width, experts}, type},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        struct recipe_tensor tensor = all[i];
        snprintf(name, sizeof name, "blk.%d.%s", layer, all[i].name);
        tensor.name = name;
        put_tensor(tensors, tensor);
    }
}

static inline void put_tensors(struct tensors *tensors) {
    static const struct {
        const char *name;
        uint32_t cols, rows;
    } layer_tensors[] = {
        {"attn_norm.weight", 32, 0}, {"attn_q.weight", 32, 32},      {"attn_k.weight", 32, 16},
        {"attn_v.weight", 32, 16},   {"attn_output.weight", 32, 32}, {"ffn_norm.weight", 32, 0},
        {"ffn_gate.weight", 32, 64}, {"ffn_up.weight", 32, 64},      {"ffn_down.weight", 64, 32}};
    const struct recipe *recipe = tensors->recipe;
    uint32_t type = recipe->type ? recipe->type : 8;
    put_tensor(tensors,
               (struct recipe_tensor){"token_embd.weight", 2, {times(recipe, 32), 8}, type});
    for (int layer = 0; layer < 2; layer++) {
        if (recipe->experts > 0) put_experts(tensors, layer, type);
        for (size_t i = 0; i < sizeof layer_tensors / sizeof *layer_tensors; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s", layer, layer_tensors[i].name);
            if (recipe->experts > 0 && i > 5) continue; /* ffn_gate, ffn_up and ffn_down */
            bool is_vector = layer_tensors[i].rows == 0;
            put_tensor(tensors, (struct recipe_tensor){name,
                                                       is_vector ? 1u : 2u,
                                                       {times(recipe, layer_tensors[i].cols),
                                                        times(recipe, layer_tensors[i].rows)},
                                                       is_vector ? 0u : type});
        }
    }
    put_tensor(tensors, (struct recipe_tensor){"output_norm.weight", 1, {times(recipe, 32)}, 0});
    if (tensors->recipe->extra.name) put_tensor(tensors, tensors->recipe->extra);
}

/* Appends the whole file. */
static inline void build_gguf(const struct recipe *recipe, struct buf *file) {
    struct pairs pairs = {.recipe = recipe};
    struct tensors tensors = {.recipe = recipe, .rng = {.state = 7}};
    buf_init(&pairs.bytes, 1 << 26);
    buf_init(&tensors.descriptions, 1 << 26);
    buf_init(&tensors.data, 1 << 26);
    put_pairs(&pairs);
    put_tensors(&tensors);
    buf_add_text(file, recipe->magic ? recipe->magic : "GGUF");
    put_u32(file, recipe->version ? recipe->version : 3);
    put_u64(file, tensors.count + recipe->tensor_count_add);
    put_u64(file, pairs.count + recipe->pair_count_add);
    buf_add(file, pairs.bytes.at, pairs.bytes.bytes);
    buf_add(file, tensors.descriptions.at, tensors.descriptions.bytes);
    if (!recipe->no_data) {
        while (file->bytes % 32 != 0) buf_add_byte(file, 0);
        buf_add(file, tensors.data.at, tensors.data.bytes);
    }
    buf_release(&pairs.bytes);
    buf_release(&tensors.descriptions);
    buf_release(&tensors.data);
}
