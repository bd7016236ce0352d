/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/shapes.h"

#include "base/mem.h"
#include "chat/tool_format.h"
#include "engine/request_thought.h"
#include "grammar/grammar_mask.h"
#include "grammar/grammar_set.h"
#include "grammar/tags.h"
#include "scheduler/step_costs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CLOSING_TOKENS_MAX 64 /* tokens that close thoughts, over all templates */
#define MARK_BYTES 2          /* length of a mark in a grammar's text */
#define FORCED_BYTES_MAX 1024 /* looked at for one run of given tokens */
#define FORCED_BYTES_MIN 2    /* one byte is one token, and a mask finds it as well */

_Static_assert(CHAT_MARKS_MAX <= TAGS_MARKS_MAX, "every mark has a number in a grammar");

/* The mask that allows one token. */
struct closing {
    int32_t token;
    uint32_t *mask; /* owned */
};

struct shapes {
    const struct served_model *model;
    const int32_t *end_tokens; /* (end_token_count) borrowed */
    uint32_t end_token_count;
    struct grammar_set *grammars;
    pthread_mutex_t lock; /* guards the members below */
    struct closing closing[CLOSING_TOKENS_MAX];
    size_t closing_count;
    struct grammar_masks *masks; /* NULL: not made yet */
    pthread_t opener;            /* makes them after the start, if has_opener */
    bool has_opener;
    /* Scratch of shapes_given. */
    struct buf forced, text;
    struct ids ids;
};

/* The bytes that a token adds to an answer; none for a token that may not stand in it. A control
 * token that is a mark of calls has the two bytes of tags.h, which no other token may spell. */
static struct str text_of(const struct shapes *shapes, int32_t token, char mark_bytes[MARK_BYTES]) {
    const struct vocabulary *vocabulary = &shapes->model->vocabulary;
    enum token_kind kind = tokenizer_kind(vocabulary->tokenizer, token);
    bool is_text = kind == TOKEN_NORMAL || kind == TOKEN_BYTE || kind == TOKEN_USER_DEFINED;
    struct str text = {NULL, 0};
    if (vocabulary_is_end(vocabulary, token)) return text;
    size_t mark = kind == TOKEN_CONTROL ? vocabulary_mark(vocabulary, token) : CHAT_MARKS_MAX;
    if (mark < CHAT_MARKS_MAX) {
        mark_bytes[0] = (char)TAGS_MARK_BYTE;
        mark_bytes[1] = (char)mark;
        return (struct str){mark_bytes, MARK_BYTES};
    }
    if (is_text) text = tokenizer_bytes(vocabulary->tokenizer, token);
    bool has_mark = text.bytes > 0 && memchr(text.at, (int)TAGS_MARK_BYTE, text.bytes);
    return has_mark ? (struct str){NULL, 0} : text;
}

static void open_masks(struct shapes *shapes) {
    const struct served_model *model = shapes->model;
    const struct backend_caps *caps = &model->backend->caps;
    uint32_t count = (uint32_t)tokenizer_count(model->vocabulary.tokenizer);
    if (count > caps->vocab) count = caps->vocab;
    struct str *tokens = mem_new((size_t)count + 1, sizeof *tokens);
    char marks[CHAT_MARKS_MAX][MARK_BYTES], bytes[MARK_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        size_t mark = vocabulary_mark(&model->vocabulary, (int32_t)i);
        tokens[i] = text_of(shapes, (int32_t)i, mark < CHAT_MARKS_MAX ? marks[mark] : bytes);
    }
    struct grammar_masks_options options = {
        .tokens = tokens,
        .token_count = count,
        .end_tokens = shapes->end_tokens,
        .end_token_count = shapes->end_token_count,
        .vocab = caps->vocab,
        /* Rows of all steps under way point at masks, and those of guesses do. */
        .masks_min = caps->sequences_max * BACKEND_STEPS_MAX + STEP_COSTS_ROWS + 1,
        .grammar_bytes_max = GRAMMAR_BYTES_MAX,
    };
    shapes->masks = grammar_masks_open(&options);
    free(tokens);
}

/* Waits while another thread makes the masks. */
static void need_masks(struct shapes *shapes) {
    pthread_mutex_lock(&shapes->lock);
    if (!shapes->masks) open_masks(shapes);
    pthread_mutex_unlock(&shapes->lock);
}

static void *opener_main(void *user) {
    pthread_setname_np(pthread_self(), "quern-masks");
    need_masks(user);
    return NULL;
}

struct shapes *shapes_open(const struct served_model *model, const int32_t *end_tokens,
                           uint32_t end_token_count) {
    struct shapes *shapes = mem_new(1, sizeof *shapes);
    *shapes = (struct shapes){.model = model,
                              .end_tokens = end_tokens,
                              .end_token_count = end_token_count,
                              .grammars = grammar_set_open(GRAMMAR_BYTES_MAX)};
    pthread_mutex_init(&shapes->lock, NULL);
    buf_init(&shapes->forced, BUF_UNLIMITED);
    buf_init(&shapes->text, BUF_UNLIMITED);
    shapes->has_opener = pthread_create(&shapes->opener, NULL, opener_main, shapes) == 0;
    return shapes;
}

void shapes_close(struct shapes *shapes) {
    if (!shapes) return;
    if (shapes->has_opener) pthread_join(shapes->opener, NULL);
    for (size_t i = 0; i < shapes->closing_count; i++) free(shapes->closing[i].mask);
    grammar_masks_close(shapes->masks);
    buf_release(&shapes->forced);
    buf_release(&shapes->text);
    ids_release(&shapes->ids);
    grammar_set_close(shapes->grammars);
    pthread_mutex_destroy(&shapes->lock);
    free(shapes);
}

static bool refuse_shape(struct job *job, const struct error *error, struct refusal *refusal) {
    const char *param = job->request.shape.param;
    if (error->code != ERR_UNAVAILABLE)
        return asked_shape_refuse(&job->request.shape, error, refusal);
    job->outcome = OUTCOME_TRY_AGAIN;
    return refuse_status(refusal, 503, "engine_overloaded", param, "The engine is busy: %s.",
                         error->text);
}

bool shapes_compile(struct shapes *shapes, struct job *job, struct grammar **ret_grammar,
                    struct refusal *ret_refusal) {
    struct asked_shape *shape = &job->request.shape;
    struct grammar *grammar;
    struct error error;
    *ret_grammar = NULL;
    if (!shape->source) return true;
    if (grammar_set_take(shapes->grammars, shape->kind, shape->source, &grammar, &error) != OK)
        return refuse_shape(job, &error, ret_refusal);
    need_masks(shapes);
    json_decref(shape->source);
    shape->source = NULL;
    *ret_grammar = grammar;
    return true;
}

/* Whether nothing but its shape decides about the tokens of a request, and none needs a log
 * probability. */
static bool takes_given(const struct request *request) {
    return !request->logprobs && request->candidates == request->choices &&
           !request->is_echo_only && request->bias_count == 0 &&
           request->allowed_tokens.count == 0 && request->bad_word_runs.count == 0 &&
           request->stop_tokens.count == 0;
}

void shapes_begin(struct job *job, struct grammar *grammar) {
    if (!grammar) return;
    job->takes_given = takes_given(&job->request);
    job->shapes = mem_new(job->choice_count, sizeof *job->shapes);
    for (uint32_t i = 0; i < job->choice_count; i++) grammar_state_init(&job->shapes[i], grammar);
    grammar_drop(grammar);
}

/* The mask of one token, kept for all jobs; under the lock. NULL: there are too many. */
static const uint32_t *mask_of(struct shapes *shapes, int32_t token) {
    size_t at = 0, words = (shapes->model->backend->caps.vocab + 31) / 32;
    while (at < shapes->closing_count && shapes->closing[at].token != token) at++;
    if (at == CLOSING_TOKENS_MAX || (size_t)token / 32 >= words) return NULL;
    if (at == shapes->closing_count) {
        uint32_t *mask = mem_new(words, sizeof *mask);
        mask[token / 32] |= UINT32_C(1) << (token % 32);
        shapes->closing[shapes->closing_count++] = (struct closing){token, mask};
    }
    return shapes->closing[at].mask;
}

void shapes_limit_thought(struct shapes *shapes, struct job *job) {
    const struct token_list *tokens = &job->request.closing_tokens;
    bool has_shape = job->shapes && !job->request.is_frame_only;
    job->thought_limit = request_thought_limit(&job->request, has_shape, job->max_tokens);
    if (job->thought_limit == UINT32_MAX) return;
    bool is_good = true;
    job->closing_masks = mem_new(tokens->count, sizeof *job->closing_masks);
    pthread_mutex_lock(&shapes->lock);
    for (uint32_t i = 0; i < tokens->count; i++) {
        job->closing_masks[i] = mask_of(shapes, tokens->at[i]);
        if (!job->closing_masks[i]) is_good = false;
    }
    pthread_mutex_unlock(&shapes->lock);
    if (!is_good) job->thought_limit = UINT32_MAX;
}

const uint32_t *shapes_allowed(struct shapes *shapes, struct job *job, uint32_t index) {
    struct choice *choice = &job->choices[index];
    if (choice_must_close(choice, &job->request, job->thought_limit)) {
        choice->is_closing = true;
        return job->closing_masks[choice->closing_count];
    }
    if (!job->shapes) return NULL;
    const uint32_t *mask = grammar_mask(shapes->masks, &job->shapes[index]);
    if (!mask) job->choices[index].is_lost = true;
    return mask;
}

/* A thought that may have to be closed is not guessed: its end depends on more than its bytes. */
uint32_t shapes_ahead(struct shapes *shapes, struct job *job, uint32_t index, const int32_t *tokens,
                      uint32_t count, const uint32_t **ret_allowed) {
    if (!job->shapes || job->closing_masks || job->choices[index].is_lost) return 0;
    struct grammar_state state;
    uint32_t known = 0;
    grammar_state_copy(&state, &job->shapes[index]);
    for (; known < count; known++) {
        char mark[MARK_BYTES];
        const struct str text = text_of(shapes, tokens[known], mark);
        if (text.bytes == 0 || grammar_accept(&state, text) != GRAMMAR_ACCEPTED) break;
        ret_allowed[known] = grammar_mask(shapes->masks, &state);
        if (!ret_allowed[known]) break;
    }
    grammar_state_release(&state);
    return known;
}

/* --- tokens that are given --- */

/* Encodes a stretch behind `last` (TOKEN_NONE: no token is before it), and adds its tokens to
 * shapes->ids. False where the encoding has no border between the two, or other bytes. */
static bool encode_behind(struct shapes *shapes, int32_t last, struct str stretch) {
    const struct tokenizer *tokenizer = shapes->model->vocabulary.tokenizer;
    struct str before =
        last == TOKEN_NONE ? (struct str){NULL, 0} : tokenizer_bytes(tokenizer, last);
    struct encode_options options = {.continues = true};
    struct ids *ids = &shapes->ids;
    struct error error;
    size_t first = ids->count, at = 0;
    buf_clear(&shapes->text);
    buf_add_str(&shapes->text, before);
    buf_add_str(&shapes->text, stretch);
    if (tokenizer_encode(tokenizer, buf_str(&shapes->text), options, ids, &error) != OK)
        return false;
    if (before.bytes > 0) {
        if (ids->count == first || ids->at[first] != last) return false;
        ids->count--;
        memmove(ids->at + first, ids->at + first + 1, (ids->count - first) * sizeof *ids->at);
    }
    for (size_t i = first; i < ids->count; i++) {
        char mark[MARK_BYTES];
        struct str bytes = text_of(shapes, ids->at[i], mark);
        if (bytes.bytes == 0 || !str_starts_with(str_skip(stretch, at), bytes)) return false;
        at += bytes.bytes;
    }
    return at == stretch.bytes;
}

/* The tokens of the forced bytes, in which marks are tokens of their own. False as encode_behind.
 */
static bool encode_forced(struct shapes *shapes, int32_t last) {
    struct str forced = buf_str(&shapes->forced);
    shapes->ids.count = 0;
    while (forced.bytes > 0) {
        const char *mark = memchr(forced.at, (int)TAGS_MARK_BYTE, forced.bytes);
        struct str stretch = {forced.at, mark ? (size_t)(mark - forced.at) : forced.bytes};
        if (stretch.bytes > 0 && !encode_behind(shapes, last, stretch)) return false;
        forced = str_skip(forced, stretch.bytes);
        if (forced.bytes < MARK_BYTES) break;
        ids_add(&shapes->ids, shapes->model->vocabulary.marks.at[(unsigned char)forced.at[1]]);
        forced = str_skip(forced, MARK_BYTES);
        last = TOKEN_NONE; /* the encoder cuts a text at such a token */
    }
    return true;
}

uint32_t shapes_given(struct shapes *shapes, struct job *job, uint32_t index, uint32_t room,
                      int32_t *ret_tokens) {
    const struct choice *choice = &job->choices[index];
    if (!job->takes_given || job->is_refused || choice->stopped || choice->is_lost) return 0;
    if (choice->thought.state == THOUGHT_INSIDE) return 0;
    struct grammar_state *state = &job->shapes[index];
    char mark[MARK_BYTES];
    int32_t last = choice->token_count > 0 ? choice->last_token : TOKEN_NONE;
    if (last != TOKEN_NONE &&
        tokenizer_kind(shapes->model->vocabulary.tokenizer, last) == TOKEN_CONTROL)
        last = TOKEN_NONE;
    buf_clear(&shapes->forced);
    grammar_forced(state, FORCED_BYTES_MAX, &shapes->forced);
    if (shapes->forced.bytes < FORCED_BYTES_MIN || !encode_forced(shapes, last)) return 0;
    uint32_t count = (uint32_t)shapes->ids.count;
    struct str end =
        count > 0 ? text_of(shapes, shapes->ids.at[count - 1], mark) : (struct str){NULL, 0};
    bool is_cut = shapes->forced.bytes == FORCED_BYTES_MAX;
    if (is_cut || grammar_token_crosses(shapes->masks, state, buf_str(&shapes->forced), end.bytes))
        count -= count > 0;
    if (count > room) count = room;
    if (count > 0) memcpy(ret_tokens, shapes->ids.at, count * sizeof *ret_tokens);
    return count;
}

bool shapes_take(struct shapes *shapes, struct job *job, uint32_t index, int32_t token, bool is_end,
                 struct refusal *ret_refusal) {
    struct choice *choice = &job->choices[index];
    char mark[MARK_BYTES];
    if (!choice->is_lost && !is_end)
        choice->is_lost =
            grammar_accept(&job->shapes[index], text_of(shapes, token, mark)) != GRAMMAR_ACCEPTED;
    if (!choice->is_lost) return true;
    if (job->shapes && job->shapes[index].is_spent)
        return refuse(
            ret_refusal, "constraint_too_costly", job->request.shape.param,
            "The answer could not be held to '%s': which token may follow takes more work "
            "to find out than a step may do. Counts around patterns and several patterns "
            "of one string cause this.",
            job->request.shape.param);
    return refuse(ret_refusal, "constraint_not_held", job->request.shape.param,
                  "The answer of this model could not be held to '%s': it has no token that may "
                  "follow, or the constraint has too many states.",
                  job->request.shape.param);
}
