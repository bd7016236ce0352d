/* SPDX-License-Identifier: Apache-2.0 */
#include "masks.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "masks VOCABULARY                        answer the questions of tools/differential-masks\n"
    "masks --bench VOCABULARY SCHEMA [N]     time N (default 100) random answers to a schema\n";

enum grammar_kind kind_of(const char *name) {
    static const char *const names[] = {"schema", "regex", "choice", "ebnf", "tags"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return (enum grammar_kind)i;
    fprintf(stderr, "masks: no kind '%s'\n", name);
    exit(2);
}

/* As in engine/shapes.c, without marks. */
static void read_tokens(const struct vocabulary *vocabulary, struct vocabulary_tokens *tokens) {
    *tokens = (struct vocabulary_tokens){.count = (uint32_t)tokenizer_count(vocabulary->tokenizer)};
    tokens->at = mem_new((size_t)tokens->count + 1, sizeof *tokens->at);
    for (uint32_t i = 0; i < tokens->count; i++) {
        int32_t token = (int32_t)i;
        enum token_kind kind = tokenizer_kind(vocabulary->tokenizer, token);
        if (vocabulary_is_end(vocabulary, token)) {
            if (tokens->end_count < VOCABULARY_ENDS_MAX) tokens->ends[tokens->end_count++] = token;
        } else if (kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED) {
            struct str text = tokenizer_bytes(vocabulary->tokenizer, token);
            if (text.bytes == 0 || !memchr(text.at, 0xff, text.bytes)) tokens->at[i] = text;
        }
    }
}

struct grammar_masks *masks_of(const struct vocabulary_tokens *tokens) {
    return grammar_masks_open(
        &(struct grammar_masks_options){.tokens = tokens->at,
                                        .token_count = tokens->count,
                                        .end_tokens = tokens->ends,
                                        .end_token_count = tokens->end_count,
                                        .vocab = tokens->count,
                                        .masks_min = 4,
                                        .grammar_bytes_max = GRAMMAR_BYTES_MAX});
}

int main(int argc, char **argv) {
    struct vocabulary vocabulary = {0};
    struct vocabulary_tokens tokens;
    struct error error;
    bool is_bench = argc > 3 && strcmp(argv[1], "--bench") == 0;
    if (argc != 2 && !is_bench) {
        fputs(usage, stderr);
        return 2;
    }
    if (vocabulary_open_file(&vocabulary, argv[is_bench ? 2 : 1], &error) != OK) {
        fprintf(stderr, "masks: %s\n", error.text);
        return 1;
    }
    read_tokens(&vocabulary, &tokens);
    uint32_t answers = is_bench && argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 100;
    int status = is_bench ? masks_bench(&tokens, argv[3], answers) : masks_asked(&tokens);
    free(tokens.at);
    vocabulary_close(&vocabulary);
    return status;
}
