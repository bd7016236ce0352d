/* SPDX-License-Identifier: Apache-2.0 */
#include "shrink.h"

#include <stdio.h>
#include <string.h>

#define RUNS_MAX 200u

/* The words in brackets at the end name the kind of a violation, or else its beginning does. */
static void write_kind(const char *sentence, char ret_kind[48]) {
    const char *bracket = strrchr(sentence, '(');
    snprintf(ret_kind, 48, "%.40s", bracket ? bracket : sentence);
}

void shrink_begin(struct shrink *shrink, bool (*run)(const void *plan), const char *wrong,
                  size_t plan_bytes) {
    *shrink = (struct shrink){.run = run, .wrong = wrong, .plan_bytes = plan_bytes};
    write_kind(wrong, shrink->kind);
}

bool shrink_fails(struct shrink *shrink, const void *plan) {
    char now[sizeof shrink->kind];
    if (shrink->runs == RUNS_MAX) return false;
    shrink->runs++;
    if (shrink->run(plan)) return false;
    write_kind(shrink->wrong, now);
    return strcmp(now, shrink->kind) == 0;
}

void shrink_try(struct shrink *shrink, void *plan, const void *smaller) {
    if (memcmp(smaller, plan, shrink->plan_bytes) != 0 && shrink_fails(shrink, smaller))
        memcpy(plan, smaller, shrink->plan_bytes);
}
