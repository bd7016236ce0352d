/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/curator.h"

#include "client/objects.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t user_of(const json_t *annotation) {
    const json_t *by = json_member(annotation, "completed_by");
    if (json_is_object(by)) by = json_member(by, "id");
    return json_is_integer(by) ? (int64_t)json_integer_value(by) : 0;
}

void curator_name(const json_t *users, const json_t *annotation, char ret_name[CURATOR_BYTES]) {
    int64_t id = user_of(annotation);
    const json_t *user;
    size_t index;
    struct str email = json_member_str(json_member(annotation, "completed_by"), "email");
    json_array_foreach(users, index, user) {
        const json_t *number = json_member(user, "id");
        if (json_is_integer(number) && json_integer_value(number) == id && !email.at)
            email = json_member_str(user, "email");
    }
    if (email.bytes > 0 && email.bytes < CURATOR_BYTES)
        object_copy_text(email, ret_name, CURATOR_BYTES);
    else
        snprintf(ret_name, CURATOR_BYTES, "label-studio:%" PRId64, id);
}
