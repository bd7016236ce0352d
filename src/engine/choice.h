/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* choice: one generated sequence on its way from tokens to text: detokenised bytes, stop strings,
 * tool calls, log probabilities.
 *
 * The text is kept as the bytes of the visible tokens. A stop string matches bytes, so it matches
 * over token borders; among several the one that is complete first wins, the longer one on a tie,
 * so the outcome does not depend on where the borders lie. What may be shown before the end is
 * choice_shown: never a part of a stop string that may still become whole, never a part of a UTF-8
 * character. Repairing that text piece by piece gives the same as repairing it at once.
 *
 * Thread: one at a time.  Memory: owns its buffers; choice_release frees.
 * Invariant: shown <= choice_shown(…) <= raw.bytes. */

#include "engine/logprobs.h"
#include "engine/request.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

#define CHOICE_TEXT_BYTES_MAX ((size_t)48 * 1024 * 1024)

/* Zero is a valid start, after choice_init. */
struct choice {
    struct buf raw;
    size_t shown;        /* bytes of raw already in a stream */
    size_t stop_from;    /* no stop string begins before this (min_tokens) */
    bool stopped;        /* a stop string was found; raw ends where the answer ends */
    bool is_done;        /* FINISHED has come */
    bool has_begun;      /* its first chunk was sent */
    bool has_ended;      /* its last chunk was sent */
    bool ended_by_token; /* by a stop or end token */
    enum finish_reason reason;
    uint32_t prompt_tokens, cached_tokens;
    uint32_t token_count; /* generated, a stop token included */

    struct logprobs logprobs;
    size_t logprobs_shown;
    double logprob_sum;   /* of all generated tokens, when candidates are ranked */
    struct ids token_ids; /* all generated, when the request wants them returned */
    size_t token_ids_shown;

    struct tool_reader *tools; /* NULL: calls are not read. Owned */
    size_t content_shown;      /* bytes of tools->content already in a stream */
    size_t calls_shown;        /* halves of calls: a name is one, its arguments are the other */
};

void choice_init(struct choice *choice, const struct request *request);
void choice_release(struct choice *choice);

/* Takes one sampled token. `is_end`: it ends the sequence, being a stop or end token; its text is
 * then part of the answer only with include_stop. `sample` holds its log probabilities. True when a
 * stop string became whole: the caller ends the sequence, and gives no more tokens. */
bool choice_add(struct choice *choice, const struct request *request,
                const struct tokenizer *tokenizer, const struct sample *sample, bool is_end);

/* Reads the tool calls in what may be shown, if they are read. */
void choice_read_tools(struct choice *choice, const struct request *request);
/* The sequence has ended; no more tokens come. */
void choice_end(struct choice *choice, enum finish_reason reason);

/* How many bytes of raw may be shown now; all of them once is_done. */
size_t choice_shown(const struct choice *choice, const struct request *request);
/* The log probabilities that go with the first `shown` bytes: how many from the first on. */
size_t choice_logprobs_shown(const struct choice *choice, size_t shown);
/* "stop", "length" or "tool_calls". */
const char *choice_reason(const struct choice *choice);
