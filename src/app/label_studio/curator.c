/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/curator.h"

#include "client/objects.h"
#include "json/json.h"
#include "label_studio/review.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t number_of(const json_t *by) {
    if (json_is_object(by)) by = json_member(by, "id");
    return json_is_integer(by) ? (int64_t)json_integer_value(by) : 0;
}

/* Who stands for the annotation: its annotator, or who has accepted it in a review. */
static const json_t *user_of(const json_t *annotation) {
    struct review review = review_read(annotation);
    bool is_accepted = review.state == REVIEW_ACCEPTED || review.state == REVIEW_FIXED;
    return is_accepted && number_of(review.by) ? review.by
                                               : json_member(annotation, "completed_by");
}

void curator_name(const json_t *users, const json_t *annotation, char ret_name[CURATOR_BYTES]) {
    const json_t *by = user_of(annotation), *user;
    int64_t id = number_of(by);
    size_t index;
    struct str email = json_member_str(by, "email");
    json_array_foreach(users, index, user) {
        if (number_of(user) == id && !email.at) email = json_member_str(user, "email");
    }
    if (email.bytes > 0 && email.bytes < CURATOR_BYTES)
        object_copy_text(email, ret_name, CURATOR_BYTES);
    else
        snprintf(ret_name, CURATOR_BYTES, "label-studio:%" PRId64, id);
}
