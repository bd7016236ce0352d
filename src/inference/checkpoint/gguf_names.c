/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gguf_names.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *architecture;
    const char *file; /* behind "blk.N." */
    const char *ours;
} pairs[] = {
    {"gpt-oss", "post_attention_norm.weight", "ffn_norm.weight"},
    {"gptoss", "post_attention_norm.weight", "ffn_norm.weight"},
    {"gptoss", "attn_out.weight", "attn_output.weight"},
    {"seed_oss", "post_attention_norm.weight", "ffn_norm.weight"},
    {"gptoss", "attn_out.bias", "attn_output.bias"},
    {"gptoss", "attn_sinks", "attn_sinks.weight"},
};
#define PAIR_COUNT (sizeof pairs / sizeof *pairs)

static struct str architecture_of(const struct gguf *gguf) {
    struct str name = {0};
    struct error ignored;
    return gguf_get_str(gguf, "general.architecture", &name, &ignored) == OK ? name
                                                                             : (struct str){0};
}

/* "blk.N." and what follows; false for any other name. */
static bool cut(struct str name, struct str *ret_begin, struct str *ret_rest) {
    if (!str_starts_with(name, STR("blk."))) return false;
    const size_t dot = str_find_byte(name, '.', 4);
    if (dot == SIZE_MAX || dot > 16) return false;
    *ret_begin = (struct str){name.at, dot + 1};
    *ret_rest = str_skip(name, dot + 1);
    return true;
}

bool gguf_name_settle(const struct gguf *gguf, struct str name, struct tensor_name *ret_memory) {
    struct str begin, rest;
    if (!cut(name, &begin, &rest)) return false;
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
    if (!cut(str_from(settled.text), &begin, &rest)) return;
    for (size_t i = 0; i < PAIR_COUNT; i++) {
        if (!str_is(rest, pairs[i].ours) || !str_is(architecture, pairs[i].architecture)) continue;
        snprintf(name->text, sizeof name->text, "%.*s%s", STR_ARGS(begin), pairs[i].file);
        return;
    }
}
