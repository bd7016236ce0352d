/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* review: what somebody has said about an annotation: that it is accepted, was fixed and accepted,
 * or is rejected.
 *
 *     last_action              accepted, fixed_and_accepted, rejected; another word is no review
 *     reviews (Enterprise)     the newest one, before last_action
 *
 * Every Label Studio keeps last_action and lets a client set it. Buttons that set it, and the list
 * of reviews, belong to its Enterprise edition.
 *
 * An annotation that quern made of a flagged judgement is rejected from the start. That state is no
 * review, so it does not hide what an annotator changes there.
 *
 * Thread: any; pure.
 * Memory: borrows the annotation. */

#include <jansson.h>

enum review_state { REVIEW_NONE, REVIEW_ACCEPTED, REVIEW_FIXED, REVIEW_REJECTED, REVIEW_STATES };

struct review {
    enum review_state state;
    const json_t *by; /* the reviewer, as a number or an object; NULL: not known */
};

/* The word of last_action; NULL for REVIEW_NONE. */
const char *review_word(enum review_state state);
struct review review_read(const json_t *annotation);
/* The state that says the same as a judgement of quern: accepted, corrected, flagged. */
enum review_state review_of_judgement(const json_t *judgement);
