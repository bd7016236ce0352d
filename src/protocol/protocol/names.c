/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ALIAS_HOPS_MAX 8

#define ADVICE_NAMES 4       /* served names in an advice */
#define ADVICE_NAME_BYTES 80 /* longer names are not shown, so that the sentence stays whole */

static const struct str latest = {":latest", 7};

static bool equals_in_any_case(struct str a, const char *b) {
    return strlen(b) == a.bytes && strncasecmp(a.at, b, a.bytes) == 0;
}

/* The name without Ollama's default tag, its default namespace and anything before that. */
static struct str plain(struct str name) {
    if (str_ends_with(name, latest)) name.bytes -= latest.bytes;
    size_t at = str_find(name, STR("library/"), 0);
    if (at == 0 || (at != SIZE_MAX && name.at[at - 1] == '/'))
        name = str_skip(name, at + strlen("library/"));
    return name;
}

bool name_alias_has_star(const struct name_alias *alias) {
    return str_ends_with(str_from(alias->name), STR("*"));
}

/* The bytes that an alias has in common with the names that it means; 0 if this is none of them. An
 * exact alias counts as longer than one with a star. */
static size_t alias_fit(const struct name_alias *alias, struct str name) {
    struct str start = str_from(alias->name);
    if (str_equals(name, start)) return start.bytes + 1;
    if (!name_alias_has_star(alias)) return 0;
    start.bytes--;
    return str_starts_with(name, start) ? start.bytes + 1 : 0;
}

/* What the aliases make of a name: the name itself if none is for it, or if they form a circle. A
 * name that a client has given stands for a model's own name; `room` holds that. */
static struct str resolve_alias(const struct names *names, struct str name,
                                char room[MODEL_NAME_BYTES]) {
    struct str now = name;
    for (int hops = 0; names && hops <= ALIAS_HOPS_MAX; hops++) {
        const struct name_alias *best = NULL;
        size_t best_fit = 0;
        for (size_t i = 0; i < names->alias_count; i++) {
            size_t fit = alias_fit(&names->aliases[i], now);
            if (fit <= best_fit) continue;
            best = &names->aliases[i];
            best_fit = fit;
        }
        bool is_exact = best && !name_alias_has_star(best);
        if (!is_exact && names->added && names_added_find(names->added, now, room))
            return str_from(room);
        /* The model of a star may be one of the names that the star means. */
        if (!best || (name_alias_has_star(best) && str_is(now, best->model))) return now;
        now = str_from(best->model);
    }
    return name;
}

const char *names_of_known(const struct known_name *known, size_t index) {
    const size_t others = sizeof known->ollama / sizeof *known->ollama;
    if (index == 0) return known->repository;
    return index <= others ? known->ollama[index - 1] : NULL;
}

const struct known_name *names_known(struct str name) {
    struct str wanted = plain(name);
    for (size_t i = 0; i < names_table_count; i++) {
        const char *one;
        for (size_t j = 0; (one = names_of_known(&names_table[i], j)); j++)
            if (equals_in_any_case(wanted, one)) return &names_table[i];
    }
    return NULL;
}

/* Whether the worker serves exactly this name. */
static bool serves(struct worker *worker, struct str name, char ret_served[MODEL_NAME_BYTES]) {
    if (name.bytes == 0 || name.bytes >= MODEL_NAME_BYTES || memchr(name.at, '\0', name.bytes))
        return false;
    if (!worker->ops->serves(worker, name)) return false;
    memcpy(ret_served, name.at, name.bytes);
    ret_served[name.bytes] = '\0';
    return true;
}

/* With and without the default tag. */
static bool serves_either(struct worker *worker, struct str name,
                          char ret_served[MODEL_NAME_BYTES]) {
    char longer[MODEL_NAME_BYTES];
    if (serves(worker, name, ret_served)) return true;
    if (str_ends_with(name, latest))
        return serves(worker, (struct str){name.at, name.bytes - latest.bytes}, ret_served);
    if (str_find_byte(name, ':', 0) != SIZE_MAX || name.bytes + latest.bytes >= sizeof longer)
        return false;
    snprintf(longer, sizeof longer, "%.*s:latest", STR_ARGS(name));
    return serves(worker, str_from(longer), ret_served);
}

bool names_find(const struct names *names, struct worker *worker, struct str name,
                char ret_served[MODEL_NAME_BYTES]) {
    char room[MODEL_NAME_BYTES];
    struct str wanted = resolve_alias(names, name, room);
    if (serves_either(worker, wanted, ret_served)) return true;
    const struct known_name *known = names_known(wanted);
    const char *one;
    for (size_t i = 0; known && (one = names_of_known(known, i)); i++)
        if (serves_either(worker, str_from(one), ret_served)) return true;
    return false;
}

/* --- advice --- */

/* Whether a name can be shown, and given to a shell, as it is. */
static bool is_plain(struct str name) {
    if (name.bytes == 0 || name.bytes > ADVICE_NAME_BYTES) return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       (c != '\0' && strchr("-._/:", c) != NULL);
        if (!is_good) return false;
    }
    return true;
}

void names_write_advice(const struct names *names, struct buf *buf, struct str wanted,
                        const struct str *served, size_t count) {
    char room[MODEL_NAME_BYTES];
    size_t shown = 0;
    struct str first = {NULL, 0}, meant = resolve_alias(names, wanted, room);
    bool has_alias = !str_equals(meant, wanted);
    if (has_alias && is_plain(meant))
        buf_printf(buf, " An alias makes it '%.*s', which is not served.", STR_ARGS(meant));
    for (size_t i = 0; i < count && shown < ADVICE_NAMES; i++) {
        if (!is_plain(served[i])) continue;
        buf_printf(buf, "%s'%.*s'", shown++ ? ", " : " Served here: ", STR_ARGS(served[i]));
        if (!first.at) first = served[i];
    }
    if (shown == 0) return;
    if (count > shown) buf_printf(buf, " and %zu more", count - shown);
    buf_add_text(buf, ".");
    if (is_plain(wanted) && !has_alias)
        buf_printf(buf, " --alias %.*s=%.*s serves a model under this name.", STR_ARGS(wanted),
                   STR_ARGS(first));
}
