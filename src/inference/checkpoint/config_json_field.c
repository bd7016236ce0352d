/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of a config.json, one by one. */

#include "checkpoint/config_json.h"

#define SHOWN_BYTES 64

struct str config_json_shown(struct str text) {
    bool is_printable = text.bytes > 0 && text.bytes <= SHOWN_BYTES;
    for (size_t i = 0; is_printable && i < text.bytes; i++)
        is_printable = text.at[i] >= 0x20 && text.at[i] < 0x7F;
    return is_printable ? text : STR("?");
}

enum err config_json_count(const json_t *object, const char *key, uint32_t max, uint32_t *value,
                           struct error *error) {
    const json_t *field = json_member(object, key);
    if (!field) return OK;
    json_int_t count = json_integer_value(field);
    if (!json_is_integer(field) || count < 1 || count > max)
        return err_set(error, ERR_INVALID, "%s is no integer of 1..%u", key, max);
    *value = (uint32_t)count;
    return OK;
}

enum err config_json_number(const json_t *object, const char *key, double min, double max,
                            float *value, struct error *error) {
    const json_t *field = json_member(object, key);
    if (!field) return OK;
    double number = json_number_value(field);
    if (!json_is_number(field) || !(number >= min && number <= max))
        return err_set(error, ERR_INVALID, "%s is no number of %g..%g", key, min, max);
    *value = (float)number;
    return OK;
}

enum err config_json_bool(const json_t *object, const char *key, bool *value, struct error *error) {
    const json_t *field = json_member(object, key);
    if (!field) return OK;
    if (!json_is_boolean(field)) return err_set(error, ERR_INVALID, "%s is no boolean", key);
    *value = json_is_true(field);
    return OK;
}
