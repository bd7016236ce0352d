/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses of a model of the caller's (scheduler_guess_fn), next to those from a sequence's own text
 * (drafts.c). They cost time before the step, so it is decided first how many are worth it. */
#include "scheduler/state.h"

#include "base/min_max.h"

#include <assert.h>

/* A guess from the text that is right this often is taken without asking the model. */
#define TEXT_CHANCE 0.75
/* Tokens asked for while no time is known. */
#define FIRST_TOKENS 4u
/* Where guesses do not pay, one token is guessed with every so many, in case that they do now. */
#define RETRY_TOKENS 32u
/* Guesses must bring this many times the tokens per time. */
#define GAIN_MIN 1.05
/* A time or a chance moves by 1/PACE towards what was seen. */
#define PACE 8

/* In 1/255 before any is learned, by certainty; and of the first token whatever its certainty. */
static const uint8_t first_chances[SEQUENCE_DRAFT_CERTAINTIES] = {60, 110, 165, 220};
#define FIRST_CHANCE 170

uint8_t *guess_chance_at(struct sequence *sequence, uint8_t certainty) {
    const uint32_t range = certainty * SEQUENCE_DRAFT_CERTAINTIES / 256;
    uint8_t *chance = &sequence->guess_chances[range];
    if (*chance == 0) *chance = first_chances[range];
    return chance;
}

uint8_t *guess_chance_of_first(struct sequence *sequence) {
    uint8_t *chance = &sequence->first_guess_chance;
    if (*chance == 0) *chance = FIRST_CHANCE;
    return chance;
}

/* The number of tokens to guess, with which a step of `rows` rows brings the most tokens per time;
 * 0: none pays. */
static uint32_t worth(const struct scheduler *scheduler, struct sequence *sequence, uint32_t room,
                      uint32_t rows) {
    const double token_ns = scheduler->guess_token_ns,
                 chance = *guess_chance_of_first(sequence) / 255.0;
    const double alone = step_costs_of(&scheduler->costs, rows);
    if (token_ns <= 0 || alone <= 1) return min_u32(room, FIRST_TOKENS);
    double most = GAIN_MIN / alone, tokens = 1, reached = 1;
    uint32_t best = 0;
    for (uint32_t count = 1; count <= min_u32(room, STEP_COSTS_ROWS - rows); count++) {
        reached *= chance;
        tokens += reached;
        const double rate =
            tokens / (step_costs_of(&scheduler->costs, rows + count) + count * token_ns);
        if (rate > most) most = rate, best = count;
    }
    if (best == 0 && sequence->generated_count % RETRY_TOKENS == 0) return 1;
    return best;
}

static void note_time(struct scheduler *scheduler, const struct scheduler_guess *guess) {
    const double ns = (double)guess->token_ns;
    scheduler->guessed_ns += guess->ns;
    if (guess->token_ns <= 0) return;
    if (scheduler->guess_token_ns <= 0)
        scheduler->guess_token_ns = ns;
    else
        scheduler->guess_token_ns += (ns - scheduler->guess_token_ns) / PACE;
}

/* The tokens of the guess up to one that would end the sequence. */
static void take(const struct scheduler *scheduler, struct draft *draft,
                 const struct scheduler_guess *guess) {
    struct sequence *sequence = draft->sequence;
    *draft = (struct draft){.sequence = sequence, .is_from_model = true};
    for (uint32_t i = 0; i < guess->count; i++) {
        const int32_t token = guess->tokens[i];
        if (token < 0 || (uint32_t)token >= scheduler->backend->caps.vocab ||
            sampling_is_stop(&sequence->request->sampling, token, UINT32_MAX))
            break;
        draft->certainty[draft->found] = guess->certainty[i];
        draft->tokens[draft->found++] = token;
    }
}

void guess_for(struct scheduler *scheduler, struct draft *draft, uint32_t room, uint32_t rows) {
    struct sequence *sequence = draft->sequence;
    const struct live_request *request = sequence->request;
    if (room == 0 || rows == 0 || rows >= STEP_COSTS_ROWS) return;
    if (draft->found > 0 && draft_chance(draft, 0) >= TEXT_CHANCE) return;
    struct scheduler_guess guess = {.sequence = sequence->started,
                                    .prompt = request->prompt,
                                    .prompt_count = request->prompt_count,
                                    .generated = sequence->generated,
                                    .generated_count = sequence->generated_count,
                                    .room = worth(scheduler, sequence, room, rows)};
    if (guess.room == 0) return;
    scheduler->guess(scheduler->guesser, &guess);
    assert(guess.count <= guess.room);
    note_time(scheduler, &guess);
    if (guess.count > 0) take(scheduler, draft, &guess);
}
