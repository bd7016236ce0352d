/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cost_guess: what a file of requests may cost at most at a server that cannot tell it.
 *
 * Without the model's tokenizer a token is taken for four bytes of a request's body, and an answer
 * is as long as its max_tokens allows. A request without max_tokens has no bound, so that the file
 * has none either.
 *
 * Thread: main.
 * Memory: one line. */

#include "client/requests_file.h"

struct cost_guess {
    uint64_t requests;
    uint64_t unbounded; /* requests without max_tokens, of endpoints that generate */
    double input_tokens, output_tokens;
};

enum err cost_guess_make(struct cost_guess *ret_guess, const struct requests_file *input,
                         struct error *error) MUST_CHECK;
