/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/temperature.h"

#include "decisions/parts.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>

struct str question_name(const struct questions *questions, uint32_t index,
                         struct question_place *place) {
    const struct question *question = &questions->at[index];
    if (questions->is_systemone) return question->id;
    if (question->name) return json_str(question->name);
    snprintf(place->at, sizeof place->at, "%" PRIu32, index);
    return str_from(place->at);
}

static bool check(const json_t *value, const char *param, struct refusal *refusal) {
    char text[VALUE_TEXT_BYTES];
    if (!json_is_number(value)) return refuse_type(refusal, param, "a number", value);
    double number = json_number_value(value);
    return (number >= TEMPERATURE_LEAST && number <= TEMPERATURE_MOST) ||
           refuse(refusal, "invalid_value", param,
                  "Invalid '%s': %s. Expected a number from %g to %g.", param,
                  value_text(value, text), TEMPERATURE_LEAST, TEMPERATURE_MOST);
}

bool temperatures_read(struct questions *questions, const json_t *body,
                       struct refusal *ret_refusal) {
    const json_t *all = json_member(body, "temperature");
    const json_t *named = json_member(body, "temperatures");
    const char *key;
    json_t *value;
    if (all && !check(all, "temperature", ret_refusal)) return false;
    if (named && !json_is_object(named))
        return refuse_type(ret_refusal, "temperatures", "an object of numbers by question", named);
    json_object_foreach((json_t *)(uintptr_t)named, key, value) {
        char path[REFUSAL_PARAM_BYTES];
        if (!check(value, parts_path(path, "temperatures", key), ret_refusal)) return false;
    }
    for (uint32_t i = 0; i < questions->count; i++) {
        struct question_place place;
        struct str name = question_name(questions, i, &place);
        const json_t *own = named ? json_object_getn(named, name.at, name.bytes) : NULL;
        if (!own) own = all;
        if (own) questions->at[i].temperature = json_number_value(own);
    }
    return true;
}
