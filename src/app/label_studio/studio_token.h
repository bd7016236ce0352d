/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_token: the header line by which Label Studio knows a user.
 *
 *     legacy token           40 letters and digits     "Authorization: Token …"
 *     personal access token  a JWT that has `exp`      POST /api/token/refresh/ gives a JWT for
 *                                                      minutes: "Authorization: Bearer …"
 *
 * A bought token lasts for its `exp` less its `iat`, by the monotonic clock from the answer on: the
 * clocks of the two machines may differ.
 *
 * Thread: one.
 * Memory: studio_token_release wipes both texts. */

#include "client/remote.h"

struct studio_token {
    char *text;       /* the user's token */
    bool is_personal; /* a personal access token, which buys tokens */
    char *line;       /* the header line; NULL: none is valid */
    int64_t renew_ns; /* monotonic time at which the line is too old; 0: never */
};

void studio_token_init(struct studio_token *ret_token, const char *text);
void studio_token_release(struct studio_token *token);
/* Makes sure that `line` is valid, by a call if necessary. ERR_DENIED if the token buys none. */
enum err studio_token_ready(struct studio_token *token, struct remote *remote,
                            struct error *error) MUST_CHECK;
/* Drops the line after a 401. False if no new token can be bought. */
bool studio_token_forget(struct studio_token *token);
/* A whole number in the payload of a JWT; 0 if the text is no JWT or lacks the member. */
int64_t studio_token_claim(struct str text, const char *name);
