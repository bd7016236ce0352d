/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* choice: one generated sequence on its way from tokens to text: detokenised bytes, stop strings,
 * tool calls, log probabilities.
 *
 * The text is the bytes of the visible tokens. Stop strings match bytes, so they match across token
 * borders. The stop string that is complete first wins, the longer one on a tie, so that the
 * outcome does not depend on the borders. Before the end, choice_shown bytes may be shown: no part
 * of a stop string that may still become whole, and no part of a UTF-8 character. Repairing the
 * text piece by piece gives the same as repairing it at once. A stop string ends an answer and no
 * thought: it is looked for behind the thought alone, and in a text that may turn out to be one,
 * once that is known.
 *
 * Thread: one at a time.
 * Memory: owns its buffers; choice_release frees.
 * Invariant: shown <= choice_shown(…) <= raw.bytes. */

#include "engine/logprobs.h"
#include "engine/request.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

#define CHOICE_TEXT_BYTES_MAX ((size_t)48 * 1024 * 1024)

/* Zero is a valid start, after choice_init. */
struct choice {
    struct buf raw;
    size_t shown; /* bytes of raw already in a stream */
    size_t
        stop_from; /* a stop string may begin here or later (min_tokens, the end of the thought) */
    size_t stop_searched; /* no stop string is whole in the bytes before this */
    bool stopped;         /* a stop string was found, and raw is cut to the answer */
    uint32_t stop_index;  /* the one of the request's that was found, once stopped */
    bool is_done;         /* the scheduler has finished the sequence */
    bool has_begun;       /* its first chunk was sent */
    bool has_ended;       /* its last chunk was sent */
    bool is_lost;         /* its grammar cannot hold it */
    bool ended_by_token;  /* a stop or end token ended it */
    bool is_whole;        /* it has a grammar, and ended as a whole text of it */
    enum finish_reason reason;
    uint32_t prompt_tokens, cached_tokens;
    uint32_t token_count; /* tokens generated, a stop token included */
    int32_t last_token;   /* once token_count > 0 */
    int64_t token_ns;     /* time of the last sampled token; 0: none yet */

    struct logprobs logprobs;
    size_t logprobs_shown;
    double logprob_sum;   /* sum over all generated tokens, if candidates are ranked */
    struct ids token_ids; /* all generated tokens, if the request wants them returned */
    size_t token_ids_shown;

    struct thought thought;
    size_t thought_shown;      /* bytes of the thought already in a stream */
    uint32_t closing_count;    /* tokens of the closing mark that were forced */
    bool is_closing;           /* the next token is one of them */
    struct tool_reader *tools; /* NULL: neither calls nor messages are read. Owned */
    size_t content_shown;      /* bytes of the content already in a stream */
    size_t call_at;            /* the call of tools->shown that a stream shows now */
    bool is_call_named;        /* its name is in the stream */
    size_t arguments_shown;    /* bytes of its arguments in the stream */
};

void choice_init(struct choice *choice, const struct request *request);
void choice_release(struct choice *choice);

/* Takes one sampled token. `is_end`: it is a stop or end token, whose text is part of the answer
 * only with include_stop. `sample` holds its log probabilities. True if a stop string became whole:
 * the caller then ends the sequence and adds no more tokens. */
bool choice_add(struct choice *choice, const struct request *request,
                const struct tokenizer *tokenizer, const struct sample *sample, bool is_end);

/* The text of the thought, and that behind it, in the first `shown` bytes of raw. Where an answer
 * is messages, the thought is that of the messages that tools has read, and all of raw is behind
 * it. */
struct str choice_thought(const struct choice *choice, size_t shown);
struct str choice_answer(const struct choice *choice, size_t shown);
/* True if the thought has all the tokens it may have, and must be closed by the next one. */
bool choice_must_close(const struct choice *choice, const struct request *request, uint32_t limit);
/* Reads the tool calls in the text that may be shown, if the choice reads calls. */
void choice_read_tools(struct choice *choice, const struct request *request);
/* Ends the sequence; no more tokens come. */
void choice_end(struct choice *choice, const struct request *request, enum finish_reason reason);

/* The number of bytes of raw that may be shown now; all of them once is_done. */
size_t choice_shown(const struct choice *choice, const struct request *request);
/* The number of log probability entries, from the first on, that belong to the first `shown`
 * bytes. */
size_t choice_logprobs_shown(const struct choice *choice, size_t shown);
/* "stop", "length" or "tool_calls"; the call of a named tool ends with "stop", as with OpenAI. */
const char *choice_reason(const struct choice *choice, const struct request *request);
