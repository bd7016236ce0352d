/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/key_new.h"

#include <string.h>

#define SPAN_COUNT_MAX 36500 /* a century in days; the limit of hours and minutes, too */

/* Reads "90d", "12h" or "30m". */
static bool read_span(struct str text, int64_t *ret_seconds) {
    if (text.bytes < 2) return false;
    char unit = text.at[--text.bytes];
    int64_t each = unit == 'd' ? 86400 : unit == 'h' ? 3600 : unit == 'm' ? 60 : 0, count;
    if (!each || !str_to_i64(text, &count) || count < 1 || count > SPAN_COUNT_MAX) return false;
    *ret_seconds = count * each;
    return true;
}

/* A name is shown on terminals, so it has no control character. */
static bool read_name(struct str name, struct key_row *row) {
    if (name.bytes == 0 || name.bytes >= sizeof row->name) return false;
    for (size_t i = 0; i < name.bytes; i++)
        if ((unsigned char)name.at[i] < 0x20 || name.at[i] == 0x7f) return false;
    memcpy(row->name, name.at, name.bytes);
    row->name[name.bytes] = '\0';
    return true;
}

static bool read_owner(struct str owner, struct key_row *row) {
    if (!owner.at) return true;
    if (!key_owner_is_sane(owner)) return false;
    if (str_is(owner, "default")) return true;
    memcpy(row->owner, owner.at, owner.bytes);
    row->owner[owner.bytes] = '\0';
    return true;
}

/* The precision for "%.*s": at most 80 bytes of the text. */
static int shown(struct str text) {
    return (int)(text.bytes < 80 ? text.bytes : 80);
}

enum err key_new_read(const struct key_new *key, int64_t now_unix_s, struct key_row *ret_row,
                      const char **ret_field, struct error *error) {
    struct key_row row = {.scopes = KEY_SCOPES_DEFAULT,
                          .requests_per_minute = (uint64_t)key->requests_per_minute,
                          .queued_tokens_max = (uint64_t)key->queued_tokens_max,
                          .batches_max = (uint64_t)key->batches_max,
                          .stored_bytes_max = (uint64_t)key->stored_bytes_max};
    int64_t seconds = 0;
    *ret_field = "name";
    if (!read_name(key->name, &row))
        return err_set(error, ERR_INVALID,
                       "it is missing, longer than %zu bytes, or has a control character",
                       sizeof row.name - 1);
    *ret_field = "owner";
    if (!read_owner(key->owner, &row))
        return err_set(error, ERR_INVALID,
                       "'%.*s' is not 1 to 63 letters, digits, '.', '_' and '-'", shown(key->owner),
                       key->owner.at);
    *ret_field = "expires";
    if (key->expires.at && !read_span(key->expires, &seconds))
        return err_set(error, ERR_INVALID, "'%.*s' is not a time such as 90d, 12h, 30m",
                       shown(key->expires), key->expires.at);
    if (seconds) row.expires_unix_s = now_unix_s + seconds;
    *ret_field = "scopes";
    if (key->scopes.at) {
        enum err err = key_scopes_read(key->scopes, &row.scopes, error);
        if (err != OK) return err;
    }
    *ret_row = row;
    return OK;
}
