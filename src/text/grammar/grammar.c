/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar.h"

#include "base/mem.h"
#include "grammar/ebnf.h"
#include "grammar/grammar_internal.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/tags.h"
#include "grammar/token_tree.h"
#include "json/json.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define TEXT_BYTES_MAX ((size_t)48 << 20)
#define FUEL_PER_BYTE_AGAIN 4u /* for a text that is read again, in addition to a step's */

/* All grammars of the process. */
static struct {
    pthread_mutex_t lock; /* guards all members, and those of grammars that say so */
    struct grammar *first;
    size_t sealed_bytes, bytes;
    uint64_t counts;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

size_t grammar_sealed_bytes(void) {
    pthread_mutex_lock(&all.lock);
    size_t bytes = all.sealed_bytes;
    pthread_mutex_unlock(&all.lock);
    return bytes;
}

size_t grammar_bytes_in_use(void) {
    pthread_mutex_lock(&all.lock);
    size_t bytes = all.bytes;
    pthread_mutex_unlock(&all.lock);
    return bytes;
}

/* The lock is held. */
static void set_bytes(struct grammar *grammar, size_t bytes) {
    all.bytes += bytes - grammar->bytes;
    grammar->bytes = bytes;
}

static void join(struct grammar *grammar) {
    exprs_shrink(&grammar->exprs);
    grammar->sealed_bytes = sizeof *grammar + exprs_bytes(&grammar->exprs);
    pthread_mutex_lock(&all.lock);
    all.sealed_bytes += grammar->sealed_bytes;
    set_bytes(grammar, grammar->sealed_bytes);
    grammar->next = all.first;
    grammar->link = &all.first;
    if (grammar->next) grammar->next->link = &grammar->next;
    all.first = grammar;
    pthread_mutex_unlock(&all.lock);
}

static void leave(struct grammar *grammar) {
    if (!grammar->link) return; /* it did not compile */
    pthread_mutex_lock(&all.lock);
    all.sealed_bytes -= grammar->sealed_bytes;
    set_bytes(grammar, 0);
    *grammar->link = grammar->next;
    if (grammar->next) grammar->next->link = grammar->link;
    pthread_mutex_unlock(&all.lock);
}

/* The grammar that has grown and was not counted for longest; NULL: none has. The lock is held. */
static struct grammar *oldest_grown(void) {
    struct grammar *oldest = NULL;
    for (struct grammar *one = all.first; one; one = one->next)
        if (one->bytes > one->sealed_bytes && (!oldest || one->used_at < oldest->used_at))
            oldest = one;
    return oldest;
}

void grammar_count(struct grammar *grammar, size_t bytes_max) {
    struct grammar *oldest;
    pthread_mutex_lock(&all.lock);
    set_bytes(grammar, sizeof *grammar + exprs_bytes(&grammar->exprs));
    grammar->used_at = ++all.counts;
    while (all.bytes > bytes_max && (oldest = oldest_grown())) {
        exprs_shrink(&oldest->exprs);
        oldest->epoch++;
        set_bytes(oldest, oldest->sealed_bytes);
    }
    pthread_mutex_unlock(&all.lock);
}

static enum err choice_expr(struct exprs *exprs, const json_t *source, uint32_t *ret_expr) {
    size_t count = json_array_size(source);
    uint32_t *parts = mem_new(count + 1, sizeof *parts);
    for (size_t i = 0; i < count && !exprs->overflowed; i++)
        parts[i] = expr_bytes(exprs, json_str(json_array_get(source, i)));
    *ret_expr = expr_alt(exprs, parts, count);
    free(parts);
    return OK;
}

static enum err read_source(struct exprs *exprs, enum grammar_kind kind, const json_t *source,
                            uint32_t *ret_expr, struct error *error) {
    switch (kind) {
    case GRAMMAR_SCHEMA: return schema_expr(exprs, source, ret_expr, error);
    case GRAMMAR_REGEX:
        return regex_expr(exprs, json_str(source), REGEX_WHOLE, SPELLING_PLAIN, ret_expr, error);
    case GRAMMAR_CHOICE: return choice_expr(exprs, source, ret_expr);
    case GRAMMAR_EBNF: return ebnf_expr(exprs, json_str(source), ret_expr, error);
    case GRAMMAR_TAGS: return tags_expr(exprs, source, ret_expr, error);
    }
    return err_set(error, ERR_INVALID, "no such kind of grammar");
}

/* Makes the automaton's sealed part in `exprs`, which the caller releases. */
static enum err compile(struct exprs *exprs, enum grammar_kind kind, const json_t *source,
                        uint32_t *ret_start, uint64_t *work, struct error *error) {
    uint32_t start;
    exprs_init(exprs);
    enum err err = read_source(exprs, kind, source, &start, error);
    *work += EXPR_FUEL - exprs->fuel;
    if (err != OK) return err;
    start = exprs_seal(exprs, start);
    *work += EXPR_FUEL - exprs->fuel;
    if (exprs->overflowed) return err_set(error, ERR_LIMIT, "it is too large");
    if (start == EXPR_NEVER) return err_set(error, ERR_INVALID, "no text satisfies it");
    *ret_start = start;
    return OK;
}

enum err grammar_try(enum grammar_kind kind, const json_t *source, struct grammar_cost *cost,
                     struct error *error) {
    struct exprs exprs;
    uint32_t start;
    enum err err = compile(&exprs, kind, source, &start, &cost->work, error);
    if (err == OK) cost->bytes += exprs_bytes(&exprs);
    exprs_release(&exprs);
    return err;
}

enum err grammar_open(struct grammar **ret_grammar, enum grammar_kind kind, const json_t *source,
                      struct error *error) {
    static atomic_uint_least64_t last_id;
    struct grammar *grammar = mem_new(1, sizeof *grammar);
    atomic_init(&grammar->holds, 1);
    grammar->id = atomic_fetch_add(&last_id, 1) + 1;
    uint64_t work = 0;
    enum err err = compile(&grammar->exprs, kind, source, &grammar->start, &work, error);
    if (err != OK) {
        grammar_drop(grammar);
        return err;
    }
    join(grammar);
    *ret_grammar = grammar;
    return OK;
}

struct grammar *grammar_hold(struct grammar *grammar) {
    atomic_fetch_add(&grammar->holds, 1);
    return grammar;
}

void grammar_drop(struct grammar *grammar) {
    if (!grammar || atomic_fetch_sub(&grammar->holds, 1) > 1) return;
    leave(grammar);
    exprs_release(&grammar->exprs);
    free(grammar);
}

void grammar_state_init(struct grammar_state *state, struct grammar *grammar) {
    *state = (struct grammar_state){.grammar = grammar_hold(grammar)};
    buf_init(&state->text, TEXT_BYTES_MAX);
    state->epoch = UINT32_MAX; /* the first renewal sets the state, on the loop's thread */
}

void grammar_state_copy(struct grammar_state *ret_state, const struct grammar_state *from) {
    *ret_state = *from;
    grammar_hold(from->grammar);
    buf_init(&ret_state->text, TEXT_BYTES_MAX);
    buf_add_str(&ret_state->text, buf_str(&from->text));
}

void grammar_state_release(struct grammar_state *state) {
    grammar_drop(state->grammar);
    buf_release(&state->text);
    *state = (struct grammar_state){0};
}

void grammar_forget(struct grammar *grammar) {
    exprs_reset(&grammar->exprs);
    grammar->epoch++;
}

void grammar_refuel(struct grammar_state *state, size_t steps) {
    const struct grammar *grammar = state->grammar;
    size_t again = state->epoch == grammar->epoch ? 0 : state->text.bytes * FUEL_PER_BYTE_AGAIN;
    size_t fuel = steps * GRAMMAR_STEP_FUEL + again;
    state->grammar->exprs.fuel = fuel < UINT32_MAX ? (uint32_t)fuel : UINT32_MAX;
    state->is_spent = false;
}

bool grammar_state_retry(struct grammar_state *state) {
    struct exprs *exprs = &state->grammar->exprs;
    uint32_t fuel = exprs->fuel;
    state->is_spent = fuel == 0;
    if (state->is_spent) {
        exprs->overflowed = false; /* nothing that is kept was made after it */
    } else {
        grammar_forget(state->grammar);
        exprs->fuel = fuel;
    }
    return !state->is_spent;
}

/* Where `bytes` lead from `from`. EXPR_NEVER also when the automaton is full. */
static uint32_t walk(struct grammar *grammar, uint32_t from, struct str bytes) {
    for (size_t i = 0; i < bytes.bytes && from != EXPR_NEVER; i++)
        from = expr_step(&grammar->exprs, from, (unsigned char)bytes.at[i]);
    return from;
}

bool grammar_state_renew(struct grammar_state *state) {
    struct grammar *grammar = state->grammar;
    if (state->epoch == grammar->epoch) return true;
    uint32_t at = walk(grammar, grammar->start, buf_str(&state->text));
    if (grammar->exprs.overflowed) {
        /* Once more with an empty automaton; what others need comes back when they ask. */
        if (!grammar_state_retry(state)) return false;
        at = walk(grammar, grammar->start, buf_str(&state->text));
        if (grammar->exprs.overflowed) {
            (void)grammar_state_retry(state);
            return false;
        }
    }
    assert(at != EXPR_NEVER); /* the text was accepted before */
    state->state = at;
    state->epoch = grammar->epoch;
    return true;
}

enum grammar_answer grammar_accept(struct grammar_state *state, struct str bytes) {
    struct grammar *grammar = state->grammar;
    grammar_refuel(state, 1 + bytes.bytes / (TOKEN_BYTES_MAX + 1));
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!grammar_state_renew(state)) return GRAMMAR_LOST;
        uint32_t next = walk(grammar, state->state, bytes);
        if (!grammar->exprs.overflowed) {
            if (next == EXPR_NEVER) return GRAMMAR_REFUSED;
            buf_add_str(&state->text, bytes);
            state->state = next;
            return state->text.overflowed ? GRAMMAR_LOST : GRAMMAR_ACCEPTED;
        }
        if (!grammar_state_retry(state)) return GRAMMAR_LOST;
    }
    return GRAMMAR_LOST;
}

/* The byte of a class that has no other; -1: it has several. */
static int lone_byte(const struct exprs *exprs, uint32_t number) {
    return exprs->class_bytes[number] == 1 ? exprs->byte_of[number] : -1;
}

/* The only byte that may come next, and *ret_next behind it; -1: there are several, or none, or the
 * text may end. */
static int only_byte(struct exprs *exprs, uint32_t state, uint32_t *ret_next) {
    int byte = -1;
    if (expr_is_nullable(exprs, state)) return -1;
    for (uint32_t number = 0; number < exprs->class_count; number++) {
        uint32_t next = expr_step(exprs, state, exprs->byte_of[number]);
        if (next == EXPR_NEVER) continue;
        if (byte >= 0 || lone_byte(exprs, number) < 0) return -1;
        byte = lone_byte(exprs, number);
        *ret_next = next;
    }
    return byte;
}

void grammar_forced(struct grammar_state *state, size_t bytes_max, struct buf *buf) {
    grammar_refuel(state, 1);
    if (!grammar_state_renew(state)) return;
    struct exprs *exprs = &state->grammar->exprs;
    size_t before = buf->bytes;
    uint32_t at = state->state;
    while (buf->bytes - before < bytes_max) {
        int byte = only_byte(exprs, at, &at);
        if (byte < 0) break;
        buf_add_byte(buf, (char)byte);
    }
    if (!exprs->overflowed) return;
    buf_truncate(buf, before);
    (void)grammar_state_retry(state); /* the next question makes do with what is left */
}

bool grammar_can_end(struct grammar_state *state) {
    grammar_refuel(state, 1);
    return grammar_state_renew(state) && expr_is_nullable(&state->grammar->exprs, state->state);
}
