/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gguf_names.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *architecture;
    const char *file; /* behind "blk.N.", or the whole name */
    const char *ours;
    bool is_rare; /* most files of the family have our name */
} pairs[] = {
    {"gpt-oss", "post_attention_norm.weight", "ffn_norm.weight", false},
    {"gptoss", "post_attention_norm.weight", "ffn_norm.weight", false},
    {"gptoss", "attn_out.weight", "attn_output.weight", false},
    {"seed_oss", "post_attention_norm.weight", "ffn_norm.weight", false},
    {"glm4moe", "post_attention_norm.weight", "ffn_norm.weight", false},
    {"gptoss", "attn_out.bias", "attn_output.bias", false},
    {"lfm2", "token_embd_norm.weight", "output_norm.weight", false},
    {"lfm2moe", "token_embd_norm.weight", "output_norm.weight", false},
    {"gptoss", "attn_sinks", "attn_sinks.weight", false},
    {"qwen35", "ssm_dt", "ssm_dt.bias", false},
    {"qwen35moe", "ssm_dt", "ssm_dt.bias", false},
    {"qwen3next", "ssm_dt", "ssm_dt.bias", false},
    {"gemma3", "dense.0.weight", "dense_2.weight", false},
    {"gemma3", "dense.1.weight", "dense_3.weight", false},
    {"gemma3", "norm.weight", "output_norm.weight", true},
    {"gemma4", "ffn_gate_inp.per_expert_scale", "ffn_down_exps.scale", true},
    {"deepseek2", "attn_out.weight", "attn_output.weight", true},
    {"deepseek2", "exp_probs_b", "exp_probs_b.bias", true},
    {"glm4moelite", "attn_out.weight", "attn_output.weight", true},
    {"glm4moelite", "exp_probs_b", "exp_probs_b.bias", true},
    {"nemotron_h_moe", "exp_probs_b", "exp_probs_b.bias", true},
    {"nemotron_h_omni", "exp_probs_b", "exp_probs_b.bias", true},
};
#define PAIR_COUNT (sizeof pairs / sizeof *pairs)

static struct str architecture_of(const struct gguf *gguf) {
    struct str name = {0};
    struct error ignored;
    return gguf_get_str(gguf, "general.architecture", &name, &ignored) == OK ? name
                                                                             : (struct str){0};
}

/* "blk.N." and what follows; any other name has no begin. */
static void cut(struct str name, struct str *ret_begin, struct str *ret_rest) {
    const size_t dot = str_find_byte(name, '.', 4);
    const bool is_of_layer = str_starts_with(name, STR("blk.")) && dot != SIZE_MAX && dot <= 16;
    *ret_begin = (struct str){name.at, is_of_layer ? dot + 1 : 0};
    *ret_rest = str_skip(name, ret_begin->bytes);
}

bool gguf_name_settle(const struct gguf *gguf, struct str name, struct tensor_name *ret_memory) {
    struct str begin, rest;
    cut(name, &begin, &rest);
    const struct str architecture = architecture_of(gguf);
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        if (!str_is(rest, pairs[i].file) || !str_is(architecture, pairs[i].architecture)) continue;
        snprintf(ret_memory->text, sizeof ret_memory->text, "%.*s%s", STR_ARGS(begin),
                 pairs[i].ours);
        return true;
    }
    return false;
}

void gguf_name_spell(const struct gguf *gguf, struct tensor_name *name) {
    const struct tensor_name settled = *name;
    const struct str architecture = architecture_of(gguf);
    struct str begin, rest;
    cut(str_from(settled.text), &begin, &rest);
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        if (pairs[i].is_rare || !str_is(rest, pairs[i].ours) ||
            !str_is(architecture, pairs[i].architecture))
            continue;
        snprintf(name->text, sizeof name->text, "%.*s%s", STR_ARGS(begin), pairs[i].file);
        return;
    }
}
