/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/names_added.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct names_added {
    pthread_rwlock_t lock;
    struct name_added names[NAMES_ADDED_MAX];
    size_t count;
};

struct names_added *names_added_open(void) {
    struct names_added *added = mem_new(1, sizeof *added);
    pthread_rwlock_init(&added->lock, NULL);
    return added;
}

void names_added_close(struct names_added *added) {
    if (!added) return;
    pthread_rwlock_destroy(&added->lock);
    free(added);
}

struct str names_added_plain(struct str name) {
    const struct str latest = STR(":latest");
    if (str_ends_with(name, latest)) name.bytes -= latest.bytes;
    return name;
}

/* The entry's index; `count` if there is none. The lock is held. */
static size_t find(const struct names_added *added, struct str name) {
    struct str plain = names_added_plain(name);
    size_t at = 0;
    while (at < added->count && !str_is(plain, added->names[at].name)) at++;
    return at;
}

static bool fits(struct str text) {
    return text.bytes > 0 && text.bytes < MODEL_NAME_BYTES && !memchr(text.at, '\0', text.bytes);
}

static void copy(char ret_text[MODEL_NAME_BYTES], struct str text) {
    memcpy(ret_text, text.at, text.bytes);
    ret_text[text.bytes] = '\0';
}

bool names_added_put(struct names_added *added, struct str name, struct str model) {
    struct str plain = names_added_plain(name);
    if (!fits(plain) || !fits(model)) return false;
    pthread_rwlock_wrlock(&added->lock);
    size_t at = find(added, plain);
    bool has_room = at < added->count || added->count < NAMES_ADDED_MAX;
    if (has_room) {
        if (at == added->count) added->count++;
        copy(added->names[at].name, plain);
        copy(added->names[at].model, model);
    }
    pthread_rwlock_unlock(&added->lock);
    return has_room;
}

bool names_added_has_room(struct names_added *added) {
    pthread_rwlock_rdlock(&added->lock);
    bool has_room = added->count < NAMES_ADDED_MAX;
    pthread_rwlock_unlock(&added->lock);
    return has_room;
}

bool names_added_remove(struct names_added *added, struct str name) {
    pthread_rwlock_wrlock(&added->lock);
    size_t at = find(added, name);
    bool is_found = at < added->count;
    if (is_found) {
        added->count--;
        memmove(&added->names[at], &added->names[at + 1],
                (added->count - at) * sizeof *added->names);
    }
    pthread_rwlock_unlock(&added->lock);
    return is_found;
}

bool names_added_find(struct names_added *added, struct str name,
                      char ret_model[MODEL_NAME_BYTES]) {
    pthread_rwlock_rdlock(&added->lock);
    size_t at = find(added, name);
    bool is_found = at < added->count;
    if (is_found) memcpy(ret_model, added->names[at].model, MODEL_NAME_BYTES);
    pthread_rwlock_unlock(&added->lock);
    return is_found;
}

bool names_added_of(struct names_added *added, struct str model, char ret_name[MODEL_NAME_BYTES]) {
    pthread_rwlock_rdlock(&added->lock);
    size_t at = 0;
    while (at < added->count && !str_is(model, added->names[at].model)) at++;
    bool is_found = at < added->count;
    if (is_found) memcpy(ret_name, added->names[at].name, MODEL_NAME_BYTES);
    pthread_rwlock_unlock(&added->lock);
    return is_found;
}

size_t names_added_list(struct names_added *added, struct name_added ret_names[NAMES_ADDED_MAX]) {
    pthread_rwlock_rdlock(&added->lock);
    size_t count = added->count;
    memcpy(ret_names, added->names, count * sizeof *ret_names);
    pthread_rwlock_unlock(&added->lock);
    return count;
}
