/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/key_scope.h"

static const char *const scope_names[KEY_SCOPE_NAMED_COUNT] = {"admin", "files", "batches", "infer",
                                                               "metrics"};

const char *key_scope_name(enum key_scope scope) {
    return scope < KEY_SCOPE_NAMED_COUNT ? scope_names[scope] : "any";
}

bool key_scope_find(struct str name, uint32_t *scopes) {
    for (int i = 0; i < KEY_SCOPE_NAMED_COUNT; i++) {
        if (!str_is(name, scope_names[i])) continue;
        *scopes |= 1u << i;
        return true;
    }
    return false;
}

enum err key_scopes_read(struct str list, uint32_t *ret_scopes, struct error *error) {
    uint32_t scopes = 0;
    while (list.bytes > 0) {
        size_t comma = str_find_byte(list, ',', 0);
        struct str name = str_trim((struct str){list.at, comma == SIZE_MAX ? list.bytes : comma});
        list = str_skip(list, comma == SIZE_MAX ? list.bytes : comma + 1);
        if (!key_scope_find(name, &scopes))
            return err_set(error, ERR_INVALID,
                           "'%.*s' is no scope; there are files, batches, infer, metrics and admin",
                           (int)(name.bytes < 60 ? name.bytes : 60), name.at);
    }
    if (scopes == 0) return err_set(error, ERR_INVALID, "a key needs a scope");
    *ret_scopes = scopes;
    return OK;
}
