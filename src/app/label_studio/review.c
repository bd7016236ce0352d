/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/review.h"

#include "json/json.h"

#include <stddef.h>

static const char *const words[REVIEW_STATES] = {[REVIEW_ACCEPTED] = "accepted",
                                                 [REVIEW_FIXED] = "fixed_and_accepted",
                                                 [REVIEW_REJECTED] = "rejected"};

const char *review_word(enum review_state state) {
    return words[state];
}

/* Whether the annotation was made rejected, of a judgement that is flagged (annotation.c). */
static bool was_made_rejected(const json_t *annotation) {
    const json_t *first = json_array_get(json_member(annotation, "result"), 0);
    return str_starts_with(json_member_str(first, "id"), STR("quern-r"));
}

/* The newest of the reviews; texts of times compare, because one server writes one form. */
static const json_t *newest(const json_t *reviews) {
    const json_t *review, *found = NULL;
    size_t index;
    json_array_foreach(reviews, index, review) {
        if (!json_is_boolean(json_member(review, "accepted"))) continue;
        if (!found || str_compare(json_member_str(found, "created_at"),
                                  json_member_str(review, "created_at")) <= 0)
            found = review;
    }
    return found;
}

struct review review_read(const json_t *annotation) {
    const json_t *own = newest(json_member(annotation, "reviews"));
    struct str action = json_member_str(annotation, "last_action");
    struct review review = {REVIEW_NONE, json_member(annotation, "updated_by")};
    for (int state = REVIEW_ACCEPTED; state < REVIEW_STATES; state++)
        if (str_is(action, words[state])) review.state = (enum review_state)state;
    /* Whoever changes such an annotation does not reject it. */
    if (review.state == REVIEW_REJECTED && was_made_rejected(annotation))
        review.state = REVIEW_NONE;
    if (!own) return review;
    bool is_fixed = json_member(own, "fixed_annotation_history") != NULL;
    review.state = is_fixed ? REVIEW_FIXED : REVIEW_ACCEPTED;
    if (json_is_false(json_member(own, "accepted"))) review.state = REVIEW_REJECTED;
    review.by = json_member(own, "created_by");
    return review;
}

enum review_state review_of_judgement(const json_t *judgement) {
    struct str verdict = json_member_str(judgement, "verdict");
    if (json_is_true(json_member(judgement, "flagged"))) return REVIEW_REJECTED;
    if (str_is(verdict, "accepted")) return REVIEW_ACCEPTED;
    return str_is(verdict, "corrected") ? REVIEW_FIXED : REVIEW_NONE;
}
