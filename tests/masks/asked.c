/* SPDX-License-Identifier: Apache-2.0 */
/* Questions, one per line, and answers, one line each:
 *
 *     tokens                 "tokens N", then N lines: the bytes of each token in hexadecimal
 *     ends                   "ends N…": the numbers of the tokens that end an answer
 *     grammar KIND JSON      "ok", or "refused" and the reason; the text is empty then
 *     mask                   "mask BYTES", then so many bytes, the lowest bit first; or "lost"
 *     take N                 "ok", or "refused" if the grammar does not go on with this token
 *     ending N               "ending" and, in hexadecimal, bytes that make a whole text out of the
 *                            text so far and token N; or "refused" */
#include "masks.h"

#include "base/mem.h"
#include "grammar/grammar_internal.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDING_STATES_MAX 200000

struct asked {
    const struct vocabulary_tokens *tokens;
    struct grammar_masks *masks;
    struct grammar *grammar; /* NULL: none yet */
    struct grammar_state state;
};

static void close_grammar(struct asked *asked) {
    if (!asked->grammar) return;
    grammar_state_release(&asked->state);
    grammar_drop(asked->grammar);
    asked->grammar = NULL;
}

static void write_hex(struct str bytes) {
    for (size_t i = 0; i < bytes.bytes; i++) printf("%02x", (unsigned)(unsigned char)bytes.at[i]);
    putchar('\n');
}

static void open_grammar(struct asked *asked, char *words) {
    char *source = strchr(words, ' ');
    struct error error;
    json_t *value;
    close_grammar(asked);
    if (!source) exit(2);
    *source++ = '\0';
    if (json_read(&value, str_from(source), &error) != OK) {
        printf("refused %s\n", error.text);
        return;
    }
    if (grammar_open(&asked->grammar, kind_of(words), value, &error) == OK) {
        grammar_state_init(&asked->state, asked->grammar);
        puts("ok");
    } else {
        asked->grammar = NULL;
        printf("refused %s\n", error.text);
    }
    json_decref(value);
}

/* A state that was met, and how. */
struct met {
    uint32_t state, from;
    unsigned char byte;
};

/* The shortest text that leads from `start` to the end of a whole text. False: it was not found. */
static bool find_ending(struct exprs *exprs, uint32_t start, struct buf *ending) {
    struct met *met = mem_new(ENDING_STATES_MAX, sizeof *met);
    bool *is_met = mem_new(EXPR_COUNT_MAX, sizeof *is_met);
    size_t count = 0, at = 0;
    met[count++] = (struct met){.state = start};
    is_met[start] = true;
    for (; at < count && !expr_is_nullable(exprs, met[at].state); at++) {
        for (uint32_t k = 0; k < exprs->class_count && count < ENDING_STATES_MAX; k++) {
            exprs->fuel = EXPR_FUEL;
            uint32_t next = expr_step(exprs, met[at].state, exprs->byte_of[k]);
            if (next == EXPR_NEVER || is_met[next]) continue;
            is_met[next] = true;
            met[count++] = (struct met){next, (uint32_t)at, exprs->byte_of[k]};
        }
    }
    bool is_found = at < count && !exprs->overflowed;
    struct buf back;
    buf_init(&back, BUF_UNLIMITED);
    for (size_t i = at; is_found && i > 0; i = met[i].from) buf_add_byte(&back, (char)met[i].byte);
    for (size_t i = back.bytes; i-- > 0;) buf_add_byte(ending, back.at[i]);
    buf_release(&back);
    free(is_met);
    free(met);
    return is_found;
}

static void write_ending(struct asked *asked, int32_t token) {
    struct grammar_state copy;
    struct buf ending;
    bool is_good = true;
    grammar_state_init(&copy, asked->grammar);
    buf_init(&ending, BUF_UNLIMITED);
    if (asked->state.text.bytes > 0)
        is_good = grammar_accept(&copy, buf_str(&asked->state.text)) == GRAMMAR_ACCEPTED;
    if (is_good) is_good = grammar_accept(&copy, asked->tokens->at[token]) == GRAMMAR_ACCEPTED;
    if (is_good) is_good = find_ending(&asked->grammar->exprs, copy.state, &ending);
    if (asked->grammar->exprs.overflowed) grammar_forget(asked->grammar);
    if (is_good) {
        printf("ending ");
        write_hex(buf_str(&ending));
    } else {
        puts("refused");
    }
    buf_release(&ending);
    grammar_state_release(&copy);
}

static void write_mask(struct asked *asked) {
    const uint32_t *mask = grammar_mask(asked->masks, &asked->state);
    size_t bytes = ((size_t)asked->tokens->count + 31) / 32 * sizeof *mask;
    if (!mask) {
        puts("lost");
        return;
    }
    printf("mask %zu\n", bytes);
    fwrite(mask, 1, bytes, stdout);
}

static void answer(struct asked *asked, char *line) {
    const struct vocabulary_tokens *tokens = asked->tokens;
    if (strcmp(line, "tokens") == 0) {
        printf("tokens %u\n", tokens->count);
        for (uint32_t i = 0; i < tokens->count; i++) write_hex(tokens->at[i]);
    } else if (strcmp(line, "ends") == 0) {
        printf("ends");
        for (uint32_t i = 0; i < tokens->end_count; i++) printf(" %d", tokens->ends[i]);
        putchar('\n');
    } else if (strncmp(line, "grammar ", 8) == 0) {
        open_grammar(asked, line + 8);
    } else if (asked->grammar && strcmp(line, "mask") == 0) {
        write_mask(asked);
    } else if (asked->grammar && strncmp(line, "take ", 5) == 0) {
        long token = strtol(line + 5, NULL, 10);
        bool is_good = token >= 0 && token < (long)tokens->count &&
                       grammar_accept(&asked->state, tokens->at[token]) == GRAMMAR_ACCEPTED;
        puts(is_good ? "ok" : "refused");
    } else if (asked->grammar && strncmp(line, "ending ", 7) == 0) {
        write_ending(asked, (int32_t)strtol(line + 7, NULL, 10));
    } else {
        fprintf(stderr, "masks: '%.60s' is no question\n", line);
        exit(2);
    }
}

int masks_asked(const struct vocabulary_tokens *tokens) {
    struct asked asked = {.tokens = tokens, .masks = masks_of(tokens)};
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t bytes; (bytes = getline(&line, &capacity, stdin)) > 0;) {
        if (line[bytes - 1] == '\n') line[bytes - 1] = '\0';
        answer(&asked, line);
        fflush(stdout);
    }
    free(line);
    close_grammar(&asked);
    grammar_masks_close(asked.masks);
    return 0;
}
